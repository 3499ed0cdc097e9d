"""What happened in a script that raised: in words, with its own lines, and its own traceback."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eligibility.explanation.graph import graph_between
from eligibility.explanation.names import Names
from eligibility.explanation.recorder import Recording


@dataclass
class History:
    """What backward passes have done so far."""

    # Each node of a graph that a backward pass has freed -> the line that called it.
    freed: dict[Any, int] = field(default_factory=dict)
    # The tensors of the call that is running, and the variables that it can see.
    failing: tuple[Sequence[Tensor], Names] = ((), Names({}))

    def note_freed(self, tensors: Sequence[Tensor], line: int) -> None:
        """Remember whose graph is gone."""
        for tensor in tensors:
            if tensor.grad_fn is not None:
                for node in graph_between(tensor.grad_fn).nodes:
                    self.freed.setdefault(node, line)


def describe_failure(
    error: BaseException, script: str, recording: Recording, history: History, lines: Sequence[str]
) -> str:
    """WHAT HAPPENED in words where it is one of the errors of autograd; then the traceback."""
    message = " ".join(str(error).split())
    failed = _Failed(message, line_of(error, script), recording, history, lines)
    words = next((tell(failed) for words, tell in _KNOWN.items() if words in message), "")
    if isinstance(error, MemoryError) or "can't allocate memory" in message:
        words = f"{failed.quoted()} wants more memory than `--memory` allows."
    return (f"WHAT HAPPENED\n{words}\n\n" if words else "") + own_traceback(error, script)


def own_traceback(error: BaseException, script: str) -> str:
    """The script's own error: the frames of the user's files, and the message."""
    whole = traceback.TracebackException.from_exception(error)
    own = next((i for i, frame in enumerate(whole.stack) if frame.filename == script), 0)
    hidden = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    kept = [frame for frame in whole.stack[own:] if not frame.filename.startswith(hidden)]
    whole.stack = traceback.StackSummary.from_list(kept)
    return "".join(whole.format()).rstrip()


def line_of(error: BaseException, script: str) -> int:
    """The line of the script that led to the error; 0 if none did."""
    if isinstance(error, SyntaxError) and error.filename == script:
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == script]
    return own[-1] or 0 if own else 0


@dataclass(frozen=True)
class _Failed:
    """An error: its message and its line, what was recorded until then, and the script's lines."""

    message: str
    line: int
    recording: Recording
    history: History
    lines: Sequence[str]

    def quoted(self, line: int | None = None) -> str:
        """A line of the script, by default the one that failed."""
        number = self.line if line is None else line
        code = self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""
        return f"line {number}, `{code}`"


def _second_backward(failed: _Failed) -> str:
    tensors, names = failed.history.failing
    nodes = [n for t in tensors if t.grad_fn is not None for n in graph_between(t.grad_fn).nodes]
    shared = [node for node in nodes if node in failed.history.freed]
    if not shared:
        return (
            f"{failed.quoted()} needs a graph that an earlier backward pass has freed. "
            "More: eligibility explain --question 9"
        )
    variables = [name for (node, _), (name, _) in names.places.items() if node in shared]
    common = ", ".join(variables[:3]) if variables else f"{len(shared)} operations"
    first = failed.history.freed[shared[-1]]
    again = "the same line, an iteration earlier" if first == failed.line else failed.quoted(first)
    return (
        f"{failed.quoted()} goes through operations that were computed only once and whose "
        f"graph was freed by {again}: {common}. Compute them again for each backward pass, or "
        "detach() what carries over; if two losses share them, add the losses up and call "
        "backward() once. More: eligibility explain --question 9"
    )


def _in_place(failed: _Failed) -> str:
    found = re.search(r"Tensor \[([\d, ]*)\]\]", failed.message)
    shape = tuple(map(int, found.group(1).split(","))) if found and found.group(1) else ()
    writers = [
        source
        for shapes, sources in failed.recording.written
        if sorted(shape) in map(sorted, shapes)  # a layer uses its weight transposed
        for source in sources
        if source.code and source.code in map(str.strip, failed.lines)
    ]
    where = "an operation in place"
    if writers:
        where = f"line {writers[-1].line}, `{writers[-1].code}`,"
    return (
        f"{failed.quoted()} needs a tensor of shape {list(shape)} as it was in the "
        f"forward pass, and {where} has written into it since. Write `x = x + 1` instead of "
        "`x += 1`, or compute the loss again after an optimizer step."
    )


def _no_graph(failed: _Failed) -> str:
    tensors, names = failed.history.failing
    name = next((names.of(t) for t in tensors if names.of(t)), None) or "the tensor"
    pattern = re.compile(rf"^\s*{re.escape(name)}\s*=")
    assigned = [i for i, text in enumerate(failed.lines[: failed.line], 1) if pattern.match(text)]
    where = f" It is made in {failed.quoted(assigned[-1])}." if assigned else ""
    return (
        f"{failed.quoted()} starts from {name}, which has no graph: nothing that it was "
        f"computed from requires a gradient, or the graph was cut on the way.{where} sample(), "
        "argmax(), detach(), .item(), .data, .numpy(), torch.tensor(…) of a result and no_grad() "
        "all cut it. REINFORCE differentiates log_prob of the sample, not the sample. More: "
        "eligibility explain --question 8"
    )


def _nan(failed: _Failed) -> str:
    first = failed.recording.first_nan
    user = [source for source in first.sources if source.role == "user"] if first else []
    where = (
        f" The first NaN was computed in line {user[0].line}, `{user[0].code}` ({first.name})."
        if user and first
        else ""
    )
    return (
        f"{failed.quoted()} was given a NaN, which a distribution refuses.{where} Usual "
        "places: 0 · (−∞) in an entropy or under a mask, log(0), std() of one element, a step "
        "that made the weights infinite. More: eligibility explain --question 5"
    )


_KNOWN: Mapping[str, Any] = {
    "second time": _second_backward,
    "inplace operation": _in_place,
    "does not require grad": _no_graph,
    "found invalid values": _nan,
}
