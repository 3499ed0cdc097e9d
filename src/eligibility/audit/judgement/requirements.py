"""What a program needs that could not be run: an argument, a package, or an adapter."""

from __future__ import annotations

import re
from pathlib import Path

from eligibility.audit.trace import Trace

_ADAPTER = (
    "or audit its parts: `el.audit_agent(factory, act=…, update=…)` for an agent object, "
    "`el.audit_loss(loss)` for its loss, `el.audit_token_loss(loss)` for a language model's"
)
# A pattern in the error's text -> what to do; the first that is found.
_NEEDS = (
    (
        r"may not start or signal processes|'/dev/shm/|/dev/shm",
        "it starts processes without `multiprocessing`, which the audit cannot follow; pass an "
        f"argument that keeps it in one process, {_ADAPTER}",
    ),
    (
        r"has no network",
        f"it needs the network, which the audit blocks; pass local data, {_ADAPTER}",
    ),
    (
        r"No module named '([\w.]+)'",
        "it imports `{0}`, which is not installed here; install it in this environment, "
        + _ADAPTER,
    ),
    (
        r"cannot import name '(\w+)' from '([\w.]+)'",
        "the installed `{1}` has no `{0}`; install the version that the program needs, "
        + _ADAPTER,
    ),
    (
        r"No such file or directory: '([^']+)'",
        f"it reads the file `{{0}}`, which does not exist; create it first, {_ADAPTER}",
    ),
    (
        r"EOFError: EOF when reading a line",
        f"it reads from the keyboard; pass the input as an argument, {_ADAPTER}",
    ),
    (
        r"IndexError: list index out of range|not enough values to unpack.*got 1",
        "an index is out of range; if it reads `sys.argv`, pass its arguments after `--`",
    ),
    (
        r"KeyError: '([A-Z][A-Z0-9_]+)'",
        "it looks up `{0}`; if that is an environment variable, set it before `eligibility audit`",
    ),
    (
        r"CUDA|cuda|GPU|(?<!\w)mps",
        "it requires an accelerator, which the audit does not use; pass an argument that makes it "
        f"run on the CPU, {_ADAPTER}",
    ),
    (
        r"(Namespace|Version)NotFound|NameNotFound|UnregisteredEnv|DeprecatedEnv",
        "its environment is not registered here; install the package that registers it, or "
        "audit the program with another environment that has the same spaces",
    ),
    (
        r"exit status (\d+)",
        "it exited with status {0} before it learned anything, perhaps because an argument is "
        "missing; pass its arguments after `--`",
    ),
    (r"may not (?:write|change) (.+)", "it writes {0}, outside its folder; pass a path inside it"),
    (r"MemoryError|allocate memory", "it needs more memory than the limit; raise `--memory-limit`"),
    (
        r"(observations|actions) of (\w+) in (\S+)",
        "`{2}` has {0} of type {1}, which the probe does not support; "
        + _ADAPTER.removeprefix("or "),
    ),
)  # fmt: skip


def what_it_needs(trace: Trace, program: str = "") -> str:
    """One sentence on a run that did not come to an update: where it ended, and what would help.

    Args:
        trace: The run.
        program: The file that was run; the place in another one has that one's name.
    """
    elsewhere = program.endswith(".py") and Path(trace.file).name != Path(program).name
    file = f"{Path(trace.file).name}, " if elsewhere else ""
    place = f" ({file}line {trace.line})" if trace.line else ""
    if trace.outcome == "choices":
        need = (
            "it makes too many random choices before its first update; pass arguments after `--` "
            f"that make its batches smaller, {_ADAPTER}"
        )
    elif trace.outcome == "work":
        need = (
            f"it takes more than {trace.detail} before its first update; pass arguments after "
            f"`--` that make its batches smaller, {_ADAPTER}"
        )
    elif trace.outcome == "time":
        need = f"{trace.detail}; raise `--time-limit`, or pass arguments that make it shorter"
    else:
        need = _of_error(trace.detail)
    return f"the program could not be run{place}: {need}"


def _of_error(detail: str) -> str:
    for pattern, need in _NEEDS:
        found = re.search(pattern, detail)
        if found:
            return f"{need.format(*found.groups())} ({detail})"
    return detail
