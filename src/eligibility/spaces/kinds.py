"""What a space holds that is not made of others: some numbers, each an index or continuous."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError

# What a mask says of an output, apart from 1 for "free": its logit is −∞, or +∞.
NEVER, FREE, ALWAYS = 0, 1, 2

Allow = Callable[[int], np.ndarray[Any, Any]]


class Kind(ABC):
    """The interface. A member of the space is an array of numbers, in their order."""

    sizes: tuple[int, ...]  # number of values that each number can take; 0 if it is continuous
    # The lowest value of each number that is not continuous, as one array or one number.
    first: Any = 0
    have_fixed_sum = False  # whether the numbers of every member have the same sum

    @property
    def draws(self) -> int:
        """How many random numbers draw a member: one a number, unless a kind says otherwise."""
        return len(self.sizes)

    def member(self, number: int) -> Any:
        """Some member of a space that is not continuous, in turn."""
        raise NotImplementedError(f"the members of {type(self).__name__} in turn")

    # A mask of actions is read as one code a value that a choice is made of; where it forbids, the
    # policy's output becomes −∞, and from there on everything else follows: π = 0, e = 0, no share
    # in the entropy.

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """The codes uint8 ``[N, P]`` of N masks, each as the environment gives it."""
        raise InvalidTypeError(
            "the action mask",
            "one for numbers of a Box",
            "none: there is nothing to choose from",
            "omit it, or None for this part of a Dict or Tuple",
        )

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where nothing is allowed, bool ``[N]``."""
        return np.zeros(len(codes), bool)

    def mask(self, allow: Allow) -> Any:
        """The mask of one environment; ``allow(K)`` says which of K values it allows, ``[K]``."""
        return None


@singledispatch
def kind_of(space: Any) -> Kind | None:
    """The kind of a space; None where nothing is known of it, or it is made of others."""
    return None


def read_masks(masks: Any, width: int, meaning: str) -> np.ndarray[Any, Any]:
    """N masks of ``width`` numbers as an array ``[N, width]``."""
    try:
        array = np.asarray(masks)
    except ValueError:  # rows of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(
            "the action mask", f"{array.dtype} values", f"{width} numbers", meaning
        )
    if array.ndim < 2 or array[0].size != width:
        raise ShapeError("the action mask", f"shape {list(array.shape[1:])}", f"[{width}]", meaning)
    return array.reshape(len(array), width)


class Alternatives(Kind):
    """A choice between some alternatives. A mask is one number for each: 0 forbids it."""

    alternatives: int
    meaning: str  # of a mask, as an error says it

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        return np.asarray(read_masks(masks, self.alternatives, self.meaning) != 0, np.uint8)

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(~codes.any(-1))

    def mask(self, allow: Allow) -> Any:
        return allow(self.alternatives)


class Index(Alternatives):
    """One of ``number`` values, counted from ``start``."""

    meaning = "give one number an action, 0 for those that are forbidden"

    def __init__(self, number: int, start: int = 0) -> None:
        self.number = self.alternatives = number
        self.first, self.sizes = start, (number,)

    def member(self, number: int) -> Any:
        return np.int64(self.first + number % self.number)


@kind_of.register
def _(space: spaces.Discrete) -> Index:
    return Index(int(space.n), int(space.start))


class Indices(Alternatives):
    """How many values each index can take, as an array, and where they start."""

    meaning = "give one number an index of each component, 0 for those that are forbidden"

    def __init__(self, numbers: Any, first: Any = 0) -> None:
        self.numbers, self.first = np.asarray(numbers), np.asarray(first)
        self.sizes = tuple(int(number) for number in self.numbers.reshape(-1))
        self.alternatives = sum(self.sizes)

    def member(self, number: int) -> Any:
        return self.first + number % self.numbers

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is one a component, as a tuple or in one row."""
        if not isinstance(masks, np.ndarray) or masks.dtype == object:
            masks = [_one_row(mask) for mask in masks]
        return super().codes(masks)

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where every index of a component is forbidden."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        allowed = np.add.reduceat(codes, starts, -1, dtype=np.int64)
        return np.asarray((allowed == 0).any(-1))

    def mask(self, allow: Allow) -> Any:
        return np.concatenate([allow(size) for size in self.sizes])


def _one_row(mask: Any) -> np.ndarray[Any, Any]:
    """The masks of several components, nested or not, in one row."""
    if isinstance(mask, (tuple, list)) and any(np.ndim(part) for part in mask):
        return np.concatenate([_one_row(part) for part in mask])
    return np.asarray(mask).reshape(-1)


@kind_of.register
def _(space: spaces.MultiDiscrete) -> Indices:
    return Indices(space.nvec, space.start)


_NEITHER = 3
_MASK = "give one number a bit: 0 and 1 are what it must be, 2 leaves it free"


class Bits(Kind):
    """Bits in an array of this shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.sizes = (2,) * int(np.prod(shape))

    def member(self, number: int) -> Any:
        """The last two digits of the number, in turn."""
        bits = np.arange(len(self.sizes)).reshape(self.shape)
        return (number >> bits % 2) & 1

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is one number a bit, as Gymnasium has it: 0 and 1 are the bit, 2 leaves it free.

        Or two numbers a bit, as sb3-contrib has it: whether 0 and whether 1 is allowed.
        """
        size = len(self.sizes)
        rows = [np.reshape(mask, -1) for mask in masks]
        if rows and rows[0].size == 2 * size != size:
            pairs = read_masks(rows, 2 * size, _MASK).reshape(-1, size, 2) != 0
            zero, one = pairs[..., 0], pairs[..., 1]
            codes = np.select([zero & one, one, zero], [FREE, ALWAYS, NEVER], _NEITHER)
            return np.asarray(codes, np.uint8)
        bits = read_masks(rows, size, _MASK)
        if not np.isin(bits, (0, 1, 2)).all():
            raise InvalidValueError("the action mask", "other numbers", "0, 1 and 2", _MASK)
        return np.asarray(np.array([NEVER, ALWAYS, FREE], np.uint8)[bits.astype(int)])

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray((codes == _NEITHER).any(-1))

    def mask(self, allow: Allow) -> Any:
        """The first bit must be 1 where one of two values is forbidden; 2 leaves a bit free."""
        bits = np.full(self.shape, 2, dtype=np.int8)
        if not allow(2).all():
            bits.reshape(-1)[0] = 1
        return bits


@kind_of.register
def _(space: spaces.MultiBinary) -> Bits:
    return Bits(tuple(space.shape))


@dataclass(frozen=True, eq=False)
class Numbers(Kind):
    """Numbers between two arrays of bounds, which may be infinite; they cannot be masked."""

    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]  # of the bounds
        return (0,) * int(np.prod(self.low.shape or (1,)))


@kind_of.register
def _(space: spaces.Box) -> Numbers:
    return Numbers(space.low, space.high)
