"""`record`: forward values and source lines of everything that autograd sees."""

from __future__ import annotations

import linecache
import re
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Call, Calls
from eligibility.explanation.elements import Numbers, Source
from eligibility.explanation.wording import numbers_of

_TORCH = str(Path(torch.__file__).parent)
_PACKAGE = str(Path(__file__).parents[1])
# The libraries' lines that explain something to a reader: they hold mathematics.
_TELLING = tuple(f"{_TORCH}/{part}/" for part in ("distributions", "nn")) + tuple(
    f"{_PACKAGE}/{part}/" for part in ("distributions", "ops", "reinforce")
)

# Writes in place that are remembered.
_MOST_WRITTEN = 512

# The recording that was made last, or nothing.
_latest: list[Recording] = []


@dataclass(frozen=True)
class Operation:
    """One operation that ran: its name without overload ("div"), its results, and where."""

    name: str
    values: tuple[Numbers | None, ...]
    sources: tuple[Source, ...]


# An operation that wrote in place: the shapes it wrote to, and where.
Written = tuple[list[list[int]], tuple[Source, ...]]


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch
    """What `record` collects; made by `record`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._operations: dict[int, list[Operation]] = {}
        self._calls = Calls(self._is_recording)
        self.is_paused = False
        # What wrote in place last, and the first operation whose result was NaN.
        self.written: deque[Written] = deque(maxlen=_MOST_WRITTEN)
        self.first_nan: Operation | None = None

    @property
    def calls(self) -> Sequence[Call]:
        """What distributions were asked for, in order."""
        return self._calls.found

    def __enter__(self) -> Recording:
        self._watching = self._calls.watch()
        self._watching.__enter__()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]  # torch

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch
        self._watching.__exit__(*error)

    def _is_recording(self) -> bool:
        return (
            not self.is_paused
            and torch.is_grad_enabled()
            and not autograd_internals.is_inside_backward()
        )

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below for its compiler, which takes seconds to import.
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        called = func.overloadpacket.__name__
        if called.endswith("_") and args:
            targets = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
            shapes = [list(t.shape) for t in targets if isinstance(t, Tensor)]
            self.written.append((shapes, _sources(2)))
        if self._is_recording():
            number = autograd_internals.latest_sequence_number()
            if number is not None:
                operation = _operation(func, result)
                self._operations.setdefault(number, []).append(operation)
                if self.first_nan is None and _is_nan(operation):
                    self.first_nan = operation
        return result

    def forget(self) -> None:
        """Drop what was recorded: the graphs it belongs to are gone."""
        self._operations.clear()
        self._calls.found.clear()

    def find(self, node: Any) -> Operation | None:
        """The operation that made the autograd node ``node``, if it ran under this recording."""
        number = autograd_internals.sequence_number(node)
        wanted = base_name(node.name())
        ran = self._operations.get(-1 if number is None else number, [])
        return next((operation for operation in ran if operation.name == wanted), None)


def record() -> Recording:
    """Record forward values and source lines, for `eligibility.explain` to show.

    Returns:
        A context manager; what runs inside it is recorded, with the lines of the caller's file.
        `explain` finds the latest recording automatically.

    Notes:
        It sees what reaches torch's dispatcher: not the inside of custom ``autograd.Function`` or
        compiled functions. Each value is copied, the first 256 numbers of it.

    Example:
        >>> import torch, eligibility as el
        >>> weights = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> with el.record() as recording:
        ...     share = weights / weights.sum()
        >>> [(step.name, step.value.values) for step in el.explain(share, wrt=weights).steps]
        [('normalisation', (0.75, 0.25))]
    """
    recording = Recording()
    _latest[:] = [recording]
    return recording


def latest_recording() -> Recording | None:
    """What `record` made last in this process; kept, so that it may be used without a name."""
    return _latest[0] if _latest else None


@lru_cache(maxsize=4096)
def base_name(node_name: str) -> str:
    """``DivBackward0`` → ``div``: an autograd node by the spelling of `operation_name`."""
    stem = re.sub(r"Backwards?\d*(_copy)?$", r"\1", node_name.rsplit("::", 1)[-1])
    return stem.replace("_", "").lower()


@lru_cache(maxsize=4096)
def operation_name(name: str) -> str:
    """``div_`` → ``div``, ``nll_loss_forward`` → ``nllloss``: as its autograd node is called."""
    return name.removesuffix("_forward").replace("_", "").lower()


def _operation(func: Any, result: Any) -> Operation:
    name = operation_name(func.overloadpacket.__name__)
    results = result if isinstance(result, (tuple, list)) else (result,)
    values = tuple(numbers_of(item) if isinstance(item, Tensor) else None for item in results)
    return Operation(name, values, _sources())


def _is_nan(operation: Operation) -> bool:
    """Whether it computed a NaN; memory that was not written yet may hold one by chance."""
    if "empty" in operation.name:
        return False
    return any(v is not None and v.minimum != v.minimum for v in operation.values)


def _sources(above: int = 3) -> tuple[Source, ...]:
    """The user's line that is running, and the telling line of a library below it."""
    user = library = None
    frame = sys._getframe(above)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_TELLING):
            library = library or _source(file, frame.f_lineno, "library")
        elif not file.startswith((_PACKAGE, _TORCH)):
            user = _source(file, frame.f_lineno, "user")
            break
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return tuple(source for source in (user, library) if source is not None)


@lru_cache(maxsize=4096)
def _source(file: str, line: int, role: Any) -> Source:
    return Source(file, line, linecache.getline(file, line).strip(), role)
