"""What a loss does: torch's operations, and which fields of a batch each is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from eligibility.audit.language.parameters import BoundLoss
from eligibility.audit.language.token_batch import TokenBatch

Place = tuple[str, int]
NOWHERE: Place = ("", 0)
_NOT_THE_LOSS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")


@dataclass(frozen=True)
class Operation:
    """One operation of a loss.

    Attributes:
        name: Of torch's function; empty: it is none, but given to the program.
        place: File and line that called it.
        inputs: The number of the operation that made each tensor it read; −1: one that is unknown.
        graded: Whether each of these carries a gradient.
        sizes: Elements of each.
        made: Fields that its result was made of.
        differentiable: Whether its result carries a gradient.
        floating: Whether its result is floating-point.
        logical: Whether its result is true or false.
        size: Elements of its result.
        finite: Whether the result is, or some tensor read was not.
        ones: Whether its result is 1 everywhere.
        read: Fields that each tensor it read was made of.
        mark: For a program's own loop, a checksum of its result.
        reach: Likewise: "padding" and "prompt" if logits there move the result; as it is recorded,
            row, number of the token and length of the answer, of each token whose logits do.
        lost: Likewise: "first" and "last", if from here on an answer's first or last token has no
            part in the loss.
        positions: Likewise: tokens whose logits move the result.
    """

    name: str
    place: Place
    inputs: Sequence[int]
    graded: Sequence[bool]
    sizes: Sequence[int]
    made: frozenset[str]
    differentiable: bool
    floating: bool
    logical: bool
    size: int
    finite: bool
    ones: bool
    read: Sequence[frozenset[str]] = ()
    mark: int = 0
    reach: Any = frozenset()
    lost: frozenset[str] = frozenset()
    positions: int = 0


class Recorder:
    """Follows which operation every tensor was made by.

    Args:
        place: Where the program is.
    """

    def __init__(self, place: Callable[[], Place]) -> None:
        self.operations: list[Operation] = []
        self._place = place
        self._kept: list[Tensor] = []  # so that no id is given twice
        self._makers: dict[int, int] = {}

    def given(self, tensor: Tensor, made: Iterable[str]) -> None:
        """A tensor that the audit gives to the program."""
        self._note("", tensor, [], made)

    def met(self, func: Any, args: Any, options: Any, result: Any) -> None:
        """A call of torch's that was made."""
        read = list(tensors_in((args, options)))
        for tensor in tensors_in(args[0] if func is Tensor.__setitem__ else result):
            self._note(getattr(func, "__name__", ""), tensor, read, ())

    def _note(self, name: str, tensor: Tensor, read: list[Tensor], made: Iterable[str]) -> None:
        before = all(bool(torch.isfinite(each).all()) for each in read if each is not tensor)
        operation = Operation(
            name,
            self._place(),
            inputs=[self._makers.get(id(each), -1) for each in read],
            graded=[each.requires_grad for each in read],
            sizes=[each.numel() for each in read],
            made=frozenset(made),
            differentiable=tensor.requires_grad,
            floating=tensor.is_floating_point(),
            logical=tensor.dtype == torch.bool,
            size=tensor.numel(),
            finite=not before or bool(torch.isfinite(tensor).all()),
            ones=bool((tensor == 1).all()),
        )
        self._kept.append(tensor)
        self._makers[id(tensor)] = len(self.operations)
        self.operations.append(operation)


class _Following(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._recorder.met(func, args, kwargs or {}, result)
        return result


def operations(bound: BoundLoss, batch: TokenBatch) -> list[Operation]:
    """Every operation of a loss on a batch, in their order; none if they cannot be followed."""
    recorder = Recorder(_place)
    for field in fields(batch):
        if isinstance(value := getattr(batch, field.name), Tensor):
            recorder.given(value, (field.name,))
    with suppress(Exception), _Following(recorder):  # a compiled loss may not run under it
        bound(batch)
    return [
        operation
        for operation in with_fields(recorder.operations)
        if operation.name and operation.place != NOWHERE
    ]


def with_fields(recorded: Sequence[Operation]) -> list[Operation]:
    """The operations with what each of them read and made, by what those before it made."""
    found: list[Operation] = []
    for operation in recorded:
        read = [found[i].made if i >= 0 else frozenset[str]() for i in operation.inputs]
        found.append(replace(operation, read=read, made=operation.made.union(*read)))
    return found


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


def _place() -> Place:
    """File and line of the innermost frame that is neither torch's nor the audit's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_THE_LOSS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return NOWHERE
