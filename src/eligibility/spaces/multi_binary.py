"""``MultiBinary``: independent bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.errors import InvalidValueError
from eligibility.spaces.kind import ALWAYS, FREE, NEVER, Allow, Kind, kind_of, read_masks

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
        """Where a bit may be neither 0 nor 1."""
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
