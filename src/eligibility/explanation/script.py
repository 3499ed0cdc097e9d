"""`explain_script`: an unmodified script, run in a child process and explained."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError
from eligibility.explanation.cells import in_cells
from eligibility.explanation.derivation import Explanation
from eligibility.notebooks import is_notebook, parse_program, place_in_words, script_of
from eligibility.sandbox import COPY, GUARDS, LANDLOCK, Workspace, guard_here

# How much of the child's output is kept, and how much is too much, in bytes.
_MOST_OUTPUT, _OUTPUT_LIMIT = 1_000_000, 64 << 20
_GLANCE = 0.5  # seconds between two looks at whether the child has ended
# The guard comes first: before torch, whose threads it would not hold.
_CHILD = """import json, sys
from pathlib import Path
from eligibility.sandbox import confine
request = json.loads(sys.argv[1])
confine(Path(request["scratch"]), request["guard"], "an explained script")
from eligibility.explanation.child import main
sys.exit(main(request))"""


@dataclass(frozen=True)
class BackwardCall:
    """One call of ``backward()`` or ``torch.autograd.grad`` in the script."""

    # Where the script called it; 0 if it never did, and this shows what it would give. In a
    # notebook, the line of the cell.
    line: int
    code: str
    times: int  # how often that line called it; the first call is explained
    explanation: Explanation  # what the call did
    cell: int = 0  # the cell of a notebook, from 1; 0 in a script

    @property
    def place(self) -> str:
        """Where it was called, in words; "" if it never was."""
        return place_in_words(self.line, self.cell) if self.line else ""


@dataclass(frozen=True)
class MissingGradient:
    """A ``.grad`` that the script read and that was None."""

    line: int  # where it was read
    name: str  # what the script calls the tensor
    reason: str  # why it was None at that moment, and what to do
    cell: int = 0  # the cell of a notebook, from 1; 0 in a script

    @property
    def place(self) -> str:
        """Where it was read, in words."""
        return place_in_words(self.line, self.cell)


@dataclass(frozen=True)
class ScriptExplanation:
    """Every gradient of a script, and every one that it looked for in vain."""

    script: str  # the path of the script
    calls: tuple[BackwardCall, ...]  # its backward passes, in the order of their first calls
    missing: tuple[MissingGradient, ...]  # the ``.grad`` that were None when the script read them
    notes: tuple[str, ...]  # what a reader must know about the run
    output: str  # what the script printed, its last megabyte
    guard: str = ""  # what held its writes to a scratch folder: "landlock", "namespace" or "copy"
    # Why the script did not run to its end, in words, and its own traceback; "" if it did.
    failure: str = ""

    def text(self, width: int = 80, sections: Sequence[str] = ()) -> str:
        """The explanations as plain text, folded to ``width`` columns.

        Without ``sections``, what a reader wants first, on about one screen.
        """
        from eligibility.explanation.terminal import to_text

        return to_text(self.renderable(sections), width)

    def renderable(self, sections: Sequence[str] = ()) -> Any:
        """The same for a Rich console."""
        from eligibility.explanation.terminal import BRIEF, render_script

        return render_script(self, tuple(sections) or BRIEF)

    def latex(self) -> str:
        """The explanations as one complete LaTeX document."""
        from eligibility.explanation.latex import render_latex

        return render_latex(*(call.explanation for call in self.calls))

    def html(self) -> str:
        """The explanations as one self-contained HTML page."""
        from eligibility.explanation.page import render_script

        return render_script(self)

    def to_json(self) -> str:
        """The record as JSON."""
        record = asdict(self)
        for call, plain in zip(self.calls, record["calls"], strict=True):
            plain["explanation"] = json.loads(call.explanation.to_json())
        return json.dumps(record, ensure_ascii=False, allow_nan=False)

    def __rich__(self) -> Any:
        return self.renderable()


def explain_script(
    path: str | Path,
    argv: Sequence[str] = (),
    *,
    line: int | None = None,
    tensor: str | None = None,
    timeout: float = 120.0,
    memory: float = 8.0,
) -> ScriptExplanation:
    """Run a script or notebook unmodified in a child process and explain its backward passes.

    It runs in a copy of its folder, without network, and the kernel lets it write nowhere else.
    There is an explanation for each line that calls ``backward()``; ``line`` and ``tensor`` select.
    After ``timeout`` seconds the child is stopped, and what was explained until then is shown;
    ``memory`` is the GiB that it may take beyond what the libraries do.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidValueError(
            f"`{path}`", "no such file", "a Python script", "check the name and the folder"
        )
    if line is not None and is_notebook(path):
        raise InvalidValueError(
            "`line`", f"{line} with a notebook", "a script, whose lines are counted in one file",
            "choose a backward pass by `tensor`, the name of its variable",
        )  # fmt: skip
    for name, limit in (("--timeout", timeout), ("--memory", memory)):
        if not 0 < limit < float("inf"):
            raise InvalidValueError(
                f"`{name}`", f"{limit:g}", "a finite number > 0", "omit it to use the default"
            )
    guard = guard_here()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        scratch, report = Path(folder), Path(folder) / "report.json"
        copied = scratch / "run"
        copied.mkdir()
        workspace = Workspace(path.resolve(), Path.cwd(), copied, links=guard != COPY)
        script, cells = _as_script(path, scratch)
        parse_program(path, script.read_bytes(), cells)  # nothing of it would run if it cannot
        request = {
            "script": str(script), "home": str(path.resolve().parent),
            "argv": list(argv), "line": line, "tensor": tensor,
            "report": str(report), "megabytes": int(memory * 1024), "scratch": folder,
            "guard": guard, "folder": str(workspace.folder),
            "import_path": list(map(str, workspace.import_path)),
        }  # fmt: skip
        run = _run(request, timeout)
        found = _parsed(path, report) if report.exists() else None
        if found is not None and cells:
            found = in_cells(found, str(script), path.name, cells)
    limits = {"time": f"{timeout:g} s", "output": f"{_OUTPUT_LIMIT >> 20} MiB of output"}
    return read_report(path, found, run, limits.get(run.stopped, ""), line, tensor, guard)


def _as_script(path: Path, scratch: Path) -> tuple[Path, tuple[tuple[int, int], ...]]:
    """The file that is run; of a notebook, its cells in one file, and where each line stands."""
    if not is_notebook(path):
        return path.resolve(), ()
    text, cells = script_of(path)
    script = scratch / "cells.py"
    script.write_text(text, encoding="utf-8")
    return script, cells


@dataclass(frozen=True)
class Run:
    """How the child ended."""

    output: str  # the last of what it printed
    stopped: str  # "time" or "output" if it was stopped for that; else empty
    signal: str  # the signal that ended it, by name; else empty


def _run(request: dict[str, Any], timeout: float) -> Run:
    """Run the child to its end, or until it has taken too long or printed too much."""
    scratch = request["scratch"]
    # The child finds this package first, then looks where it would anyway.
    own = str(Path(__file__).parents[2])
    import_path = [own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    kept, stopped = bytearray(), ""
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, import_path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": scratch,
            "TMPDIR": scratch,
            "TORCHDYNAMO_DISABLE": "1",  # compiled code shows no operations
        },
    ) as process:
        try:
            stopped = _listen(process, kept, time.monotonic() + timeout)
            if not stopped:
                process.wait()
        finally:
            _kill(process)
    code = process.returncode
    name = signal.Signals(-code).name if not stopped and code < 0 else ""
    return Run(bytes(kept).decode("utf-8", errors="replace"), stopped, name)


def _listen(process: subprocess.Popen[bytes], kept: bytearray, deadline: float) -> str:
    """Keep the last that the child prints until it ends; why it must be stopped, if it must."""
    assert process.stdout is not None
    descriptor, printed = process.stdout.fileno(), 0
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if ready.select(min(left, _GLANCE)):
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    return ""
                kept += chunk
                del kept[:-_MOST_OUTPUT]
                printed += len(chunk)
                if printed > _OUTPUT_LIMIT:
                    return "output"
            elif process.poll() is not None:
                return ""  # children of the script hold its output open
    return "time"


def _parsed(path: Path, report: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        for name in ("calls", "missing", "notes", "seen"):
            found[name]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"`{path}`", "an overwritten report", "a script that does not touch it",
            "do not write to the folder above the one that the script runs in",
        ) from error  # fmt: skip
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child, and the script's own children if it left any."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def read_report(
    path: Path,
    found: dict[str, Any] | None,
    run: Run,
    limit: str,
    line: int | None,
    tensor: str | None,
    guard: str,
) -> ScriptExplanation:
    """The child's report as the record."""
    report: dict[str, Any] = found or {"calls": [], "missing": [], "notes": [], "seen": []}
    if report.get("error") is not None:
        lines = run.output.strip().splitlines()
        said = f"; its last line: {lines[-1].strip()}" if lines else ""
        raise InvalidValueError(
            f"`{path}`", f"{report['error']}{said}", "a script that runs to its end",
            "pass the arguments that it requires after `--`",
        )  # fmt: skip
    calls = tuple(map(_call, report["calls"]))
    notes = list(report["notes"])
    if run.stopped:
        if not calls:
            remedy = "raise `--timeout`" if run.stopped == "time" else "print less"
            raise InvalidValueError(
                f"`{path}`",
                f"no backward pass within {limit}",
                "a script that reaches one in time",
                f"reduce its work or {remedy}",
            )  # fmt: skip
        notes.append(f"The script was stopped after {limit}.")
    elif found is None or "ended" not in found:
        by = f" (ended by {run.signal})" if run.signal else ""
        raise InvalidValueError(
            f"`{path}`", f"an end without a report{by}", "a script that runs to its end",
            "it was killed, perhaps for lack of memory; reduce its work or raise `--memory`",
        )  # fmt: skip
    if guard != LANDLOCK:
        notes.append(f"{GUARDS[guard][0].upper()}{GUARDS[guard][1:]}.")
    failure = report.get("failure", "")
    if not calls and not failure and (line is not None or tensor is not None):
        _raise_not_found(path, report["seen"], line, tensor)
    missing = tuple(MissingGradient(**item) for item in report["missing"])
    return ScriptExplanation(str(path), calls, missing, tuple(notes), run.output, guard, failure)


def _call(call: dict[str, Any]) -> BackwardCall:
    explanation = Explanation.from_json(json.dumps(call["explanation"]))
    return BackwardCall(**{**call, "explanation": explanation})


def _raise_not_found(
    path: Path, seen: Sequence[Sequence[Any]], line: int | None, tensor: str | None
) -> None:
    asked = f"line {line}" if line is not None else f"the tensor {tensor!r}"
    known = ", ".join(f"{name}.backward() in {at}" for at, name in seen) or "none at all"
    raise InvalidValueError(
        f"`{path}`",
        f"no backward pass of {asked}",
        f"one of its backward passes: {known}",
        "choose one of them",
    )
