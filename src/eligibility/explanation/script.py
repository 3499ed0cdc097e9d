"""`explain_script`: an unmodified script, run in a child process and explained."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError
from eligibility.explanation.derivation import Explanation

# The memory that the child may take for its data, and how much of its output is kept.
_GIB = 2**30
_MOST_OUTPUT = 1_000_000


@dataclass(frozen=True)
class BackwardCall:
    """One call of ``backward()`` or ``torch.autograd.grad`` in the script.

    Attributes:
        line: Where the script called it; 0 if it never did, and this shows what it would give.
        code: That line.
        times: How often that line called it; the first call is explained.
        explanation: What the call did.
    """

    line: int
    code: str
    times: int
    explanation: Explanation


@dataclass(frozen=True)
class MissingGradient:
    """A ``.grad`` that the script read and that was None.

    Attributes:
        line: Where it was read.
        name: What the script calls the tensor.
        reason: Why it was None at that moment, and what to do.
    """

    line: int
    name: str
    reason: str


@dataclass(frozen=True)
class ScriptExplanation:
    """Every gradient of a script, and every one that it looked for in vain.

    Attributes:
        script: The path of the script.
        calls: Its backward passes, in the order of their first calls.
        missing: The ``.grad`` that were None when the script read them.
        notes: What a reader must know about the run.
        output: What the script printed.
    """

    script: str
    calls: tuple[BackwardCall, ...]
    missing: tuple[MissingGradient, ...]
    notes: tuple[str, ...]
    output: str

    def text(self, width: int = 80) -> str:
        """The explanations as plain text, folded to ``width`` columns."""
        from eligibility.explanation.terminal import render_script, to_text

        return to_text(render_script(self), width)

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
        from eligibility.explanation.terminal import render_script

        return render_script(self)


def explain_script(
    path: str | Path,
    argv: Sequence[str] = (),
    *,
    line: int | None = None,
    tensor: str | None = None,
    timeout: float = 120.0,
    memory: float = 8.0,
) -> ScriptExplanation:
    """Run a script unmodified in a child process and explain its backward passes.

    Args:
        path: The script.
        argv: Its arguments.
        line: Explain only the backward pass that this line of the script calls.
        tensor: Explain only backward passes of the variable with this name.
        timeout: Seconds after which the child is stopped; what was explained until then is shown.
        memory: GiB of data that the child may hold.

    Returns:
        The explanations, one for each line that calls ``backward()``.

    Raises:
        InvalidValueError: The script does not exist, raises, explains nothing in time, or has no
            backward pass at ``line`` or of ``tensor``.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidValueError(
            f"`{path}`", "no such file", "a Python script", "check the name and the folder"
        )
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        request = {
            "script": str(path.resolve()), "argv": list(argv), "line": line, "tensor": tensor,
            "report": str(report), "memory": int(memory * _GIB),
        }  # fmt: skip
        output, ended = _run(request, timeout)
        found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    return _read(path, found, output, ended, timeout, line, tensor)


def _run(request: dict[str, Any], timeout: float) -> tuple[str, bool]:
    """The child's output, and whether it ended by itself."""
    command = [sys.executable, "-m", "eligibility.explanation.child", json.dumps(request)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return output[-_MOST_OUTPUT:], True
    except subprocess.TimeoutExpired:
        return "", False
    finally:
        # The script's own children too, if it left any.
        _stop(process)


def _import_path() -> list[str]:
    """Where the child finds this package, then where it would look anyway."""
    own = str(Path(__file__).parents[2])
    return [own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _stop(process: subprocess.Popen[str]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _read(
    path: Path,
    found: dict[str, Any] | None,
    output: str,
    ended: bool,
    timeout: float,
    line: int | None,
    tensor: str | None,
) -> ScriptExplanation:
    """The child's report as the record."""
    report: dict[str, Any] = found or {"calls": [], "missing": [], "notes": [], "seen": []}
    error = report.get("error")
    if error is not None:
        raise InvalidValueError(
            f"`{path}`", error, "a script that runs to its end", "run it alone to see the traceback"
        )
    calls = tuple(map(_call, report["calls"]))
    notes = list(report["notes"])
    if not ended:
        if not calls:
            raise InvalidValueError(
                f"`{path}`",
                f"no backward pass within {timeout:g} s",
                "a script that reaches one in time",
                "give it smaller work or a larger `--timeout`",
            )
        notes.append(f"The script was stopped after {timeout:g} s.")
    elif found is None or "ended" not in found:
        raise InvalidValueError(
            f"`{path}`", "an end without a report", "a script that runs to its end",
            "it was killed, perhaps for memory: give it smaller work or a larger `--memory`",
        )  # fmt: skip
    if not calls and (line is not None or tensor is not None):
        _raise_not_found(path, report["seen"], line, tensor)
    missing = tuple(MissingGradient(**item) for item in report["missing"])
    return ScriptExplanation(str(path), calls, missing, tuple(notes), output)


def _call(call: dict[str, Any]) -> BackwardCall:
    explanation = Explanation.from_json(json.dumps(call["explanation"]))
    return BackwardCall(call["line"], call["code"], call["times"], explanation)


def _raise_not_found(
    path: Path, seen: Sequence[Sequence[Any]], line: int | None, tensor: str | None
) -> None:
    asked = f"line {line}" if line is not None else f"the tensor {tensor!r}"
    known = ", ".join(f"{name}.backward() in line {at}" for at, name in seen) or "none at all"
    raise InvalidValueError(
        f"`{path}`",
        f"no backward pass of {asked}",
        f"one of its own: {known}",
        "choose one of them",
    )
