"""The child process of `explain_script`: runs the script, watches, and writes a report.

Started by `eligibility.explanation.script`, and confined before anything else is loaded. The script
sees nothing of it but three names of torch that call through: ``torch.autograd.backward``,
``torch.autograd.grad`` and the attribute ``Tensor.grad``.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from eligibility.errors import EligibilityError
from eligibility.explanation.by_graph import explain_tensor
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.failure import History, describe_failure, line_of
from eligibility.explanation.graph import graph_between
from eligibility.explanation.names import Names, names_in
from eligibility.explanation.recorder import Recording, record
from eligibility.files import write_atomically
from eligibility.notebooks import place_in_words
from eligibility.sandbox import limit

# Lines whose first backward pass is explained, at most.
_MOST_CALLS = 8
# Passes after which a training loop repeats itself, and runs on unrecorded.
_MOST_RECORDED = 20
_backward, _gradient = torch.autograd.backward, torch.autograd.grad


class Watch:
    """What the script does with gradients, and what is said about it."""

    def __init__(self, request: dict[str, Any], recording: Recording) -> None:
        self._script: str = request["script"]
        self._report = Path(request["report"])
        self._line, self._tensor = request["line"], request["tensor"]
        self._recording = recording
        self._busy = False
        self._calls: dict[int, dict[str, Any]] = {}
        self._missing: dict[tuple[int, str], dict[str, Any]] = {}
        self._notes: list[str] = []
        self._seen: list[tuple[int, str]] = []
        self._reached: set[int] = set()
        self._passes = 0
        self.history = History()
        self.lines = Path(self._script).read_text(encoding="utf-8", errors="replace").splitlines()
        self._evidence = evidence_in("\n".join(self.lines))
        if self._evidence.is_compiled:
            self._notes.append(
                "torch.compile is switched off here: the eager program is explained."
            )

    def install(self) -> None:
        """Call through from now on."""
        torch.autograd.backward = self.backward
        torch.autograd.grad = self.gradient
        stored: Any = torch._C.TensorBase.grad
        watched = property(self._read_grad, stored.__set__, stored.__delete__)
        torch.Tensor.grad = watched  # type: ignore[assignment]  # on purpose

    def backward(self, tensors: Any, *args: Any, **options: Any) -> None:
        """``torch.autograd.backward``, explained first."""
        names = ("grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
        given = {**dict(zip(names, args, strict=False)), **options}
        leaves = self._explain(tensors, given.get("grad_tensors"), given.get("inputs"))
        _backward(tensors, *args, **options)
        self._reached |= leaves
        if not (given.get("retain_graph") or given.get("create_graph")):
            self._recording.forget()
            frame = self._frame_of_script()
            if frame is not None and not self._recording.is_paused:
                self.history.note_freed(_listed(tensors), frame.f_lineno)

    def gradient(self, outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """``torch.autograd.grad``, explained first; it leaves every ``.grad`` as it is."""
        if not self._busy:
            start = args[0] if args else options.get("grad_outputs")
            self._explain(outputs, start, inputs)
        return _gradient(outputs, inputs, *args, **options)

    def finish(self, variables: dict[str, Any]) -> None:
        """After the script: what a backward pass would have given, if it never made one."""
        if not self._seen and self._line is None:
            names = Names(variables)
            for name, tensor in _results(variables):
                if self._tensor in (None, name):
                    code = f"{name}.backward()"
                    self._add(0, code, partial(explain_tensor, tensor, None, names))
        self.write(ended=True)

    def write(
        self, ended: bool = False, error: str | None = None, failure: str = "", failing: int = 0
    ) -> None:
        """The report, as far as it is known."""
        report: dict[str, Any] = {
            "calls": list(self._calls.values()),
            "missing": list(self._missing.values()),
            "notes": [
                note
                for note in dict.fromkeys(self._notes)
                if not note.startswith(f"Line {failing} is not")
            ],
            "seen": [(place_in_words(line), name) for line, name in dict.fromkeys(self._seen)],
            "error": error,
            "failure": failure,
        }
        if ended:
            report["ended"] = True
        write_atomically(self._report, json.dumps(report))

    def _explain(self, tensors: Any, gradients: Any, inputs: Any) -> set[int]:
        """Explain a call if it is the first of its line; the ids of the leaves it reaches."""
        frame = self._frame_of_script()
        if frame is None:
            return set()
        names, line = names_in(frame), frame.f_lineno
        self.history.failing = (_listed(tensors), names)
        code = linecache.getline(self._script, line).strip()
        wrt = None if inputs is None else [t for t in _listed(inputs) if isinstance(t, Tensor)]
        reached: set[int] = set()
        starts = repeat(None) if gradients is None else _listed(gradients)  # None stands for ones
        for tensor, gradient in zip(_listed(tensors), starts, strict=False):
            name = names.of(tensor) or "output"
            self._seen.append((line, name))
            if tensor.grad_fn is not None:
                ends = graph_between(tensor.grad_fn, wrt).ends
                reached |= {id(end.tensor) for end in ends}
            if line in self._calls:
                self._calls[line]["times"] += 1
            elif self._line in (None, line) and self._tensor in (None, name):
                self._add(line, code, partial(explain_tensor, tensor, wrt, names, gradient))
        self._passes += 1
        enough = self._passes >= _MOST_RECORDED or len(self._calls) >= _MOST_CALLS
        self._recording.is_paused = enough
        return reached

    def _add(self, line: int, code: str, explain: Callable[[], Explanation]) -> None:
        if len(self._calls) >= _MOST_CALLS:
            self._notes.append(
                f"Only the first {_MOST_CALLS} lines with a backward pass are shown."
            )
            return
        paused = self._recording.is_paused
        self._busy = self._recording.is_paused = True
        try:
            record = json.loads(self._without_unasked(explain()).to_json())
        except (EligibilityError, RuntimeError) as error:
            self._notes.append(f"Line {line} is not explained: {' '.join(str(error).split())}")
        else:
            self._calls[line] = {"line": line, "code": code, "times": 1, "explanation": record}
            self.write()
        finally:
            self._busy, self._recording.is_paused = False, paused

    def _without_unasked(self, explanation: Explanation) -> Explanation:
        """Only those expectations that the script gives evidence of."""
        name = explanation.subject.of
        expected = [e for e in explanation.expected if self._evidence.supports(e.evidence, name)]
        return replace(explanation, expected=tuple(expected))

    def _read_grad(self, tensor: Tensor) -> Tensor | None:
        stored: Any = torch._C.TensorBase.grad
        value: Tensor | None = stored.__get__(tensor)
        if value is None and not self._busy:
            frame = sys._getframe(1)
            if frame.f_code.co_filename == self._script:
                name = names_in(frame).of(tensor) or "a tensor"
                reason = self._why_none(tensor, name)
                self._missing[frame.f_lineno, name] = {
                    "line": frame.f_lineno, "name": name, "reason": reason,
                }  # fmt: skip
        return value

    def _why_none(self, tensor: Tensor, name: str) -> str:
        """Why ``tensor.grad`` is None now."""
        never = "" if self._seen else " Besides, nothing has called backward() up to here."
        if not tensor.requires_grad:
            return (
                "it does not require a gradient: nothing it was computed from does, or it was "
                "detached. Create the tensor you want a gradient for with requires_grad=True."
            )
        if not tensor.is_leaf:
            return (
                "it is not a leaf, and only leaves keep their gradient: call "
                f"{name}.retain_grad() after computing it and before backward().{never}"
            )
        if never:
            return "nothing has called backward() up to here: a gradient exists only after that."
        if id(tensor) in self._reached:
            return (
                "it was set to None after the backward pass: zero_grad() does that, and so does "
                "assigning None."
            )
        return (
            "no backward pass has reached it: what backward() was called on does not depend on "
            "it. Look for detach(), no_grad(), or a copy between them."
        )

    def _frame_of_script(self) -> FrameType | None:
        """The innermost running frame of the script."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._script:
            frame = frame.f_back
        return frame


def _listed(tensors: Any) -> Sequence[Any]:
    return list(tensors) if isinstance(tensors, Sequence) else [tensors]


def _results(variables: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """The variables that were computed and that no other variable was computed from."""
    computed = {
        name: value
        for name, value in variables.items()
        if isinstance(value, Tensor) and value.grad_fn is not None
    }
    below = {
        node
        for tensor in computed.values()
        for node in graph_between(tensor.grad_fn).nodes
        if node is not tensor.grad_fn
    }
    return [(name, tensor) for name, tensor in computed.items() if tensor.grad_fn not in below]


def main(request: dict[str, Any]) -> int:
    """Run the script and write the report; the exit status of the child."""
    script = request["script"]
    if sys.platform != "win32":
        limit(None, request["megabytes"])
    sys.argv = [script, *request["argv"]]
    sys.path[0] = request["home"]
    sys.path += request["import_path"]
    os.chdir(request["folder"])
    with record() as recording:
        watch = Watch(request, recording)
        watch.install()
        try:
            variables = runpy.run_path(script, run_name="__main__")
        except SystemExit as stopped:
            if stopped.code not in (None, 0):
                watch.write(ended=True, error=f"exit status {stopped.code}")
                return 1
            variables = {}
        except Exception as error:  # of the user's script: it is described
            failure = describe_failure(error, script, recording, watch.history, watch.lines)
            watch.write(ended=True, failure=failure, failing=line_of(error, script))
            return 1
        watch.finish(variables)
    return 0


@dataclass(frozen=True)
class Evidence:
    """What a script looks at."""

    gradients: bool = False  # whether it reads or compares a gradient
    # The names whose value it prints, or takes with ``.item()``.
    values: frozenset[str] = frozenset()
    is_compiled: bool = False  # whether it calls ``torch.compile``

    def supports(self, evidence: str, name: str) -> bool:
        """Whether an expectation that needs ``evidence`` may be the one behind the script."""
        known = {"": True, "gradient": self.gradients, "value": name in self.values}
        return known.get(evidence, False)  # "intermediate": answered by `Watch` where it is read


def evidence_in(code: str) -> Evidence:
    """Read the text of a script; nothing is found in one that cannot be parsed."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return Evidence()
    gradients, compiled, values = False, False, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            reads = node.attr == "grad" and isinstance(node.ctx, ast.Load)
            gradients |= reads and ast.unparse(node) not in ("torch.autograd.grad", "autograd.grad")
            compiled |= ast.unparse(node) == "torch.compile"
            if node.attr == "item":
                values |= _names(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            values |= {name for argument in node.args for name in _names(argument)}
        elif isinstance(node, ast.Assert):
            gradients |= "grad" in ast.unparse(node.test)
    return Evidence(gradients, frozenset(values), compiled)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
