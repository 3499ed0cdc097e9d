"""``MultiDiscrete``: several independent indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.spaces.kind import Allow, Kind, kind_of, read_masks


class Indices(Kind):
    """How many values each index can take, as an array, and where they start."""

    def __init__(self, numbers: Any, first: Any = 0) -> None:
        self.numbers, self.first = np.asarray(numbers), np.asarray(first)
        self.sizes = tuple(int(number) for number in self.numbers.reshape(-1))

    def member(self, number: int) -> Any:
        """The values of each index in turn."""
        return self.first + number % self.numbers

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is one a component, as a tuple or in one row: 0 forbids the index."""
        meaning = "give one number an index of each component, 0 for those that are forbidden"
        if not isinstance(masks, np.ndarray) or masks.dtype == object:
            masks = [_one_row(mask) for mask in masks]
        return np.asarray(read_masks(masks, sum(self.sizes), meaning) != 0, np.uint8)

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where every index of a component is forbidden."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        allowed = np.add.reduceat(codes, starts, -1, dtype=np.int64)
        return np.asarray((allowed == 0).any(-1))

    def mask(self, allow: Allow) -> Any:
        """One number an index of each component, in one row."""
        return np.concatenate([allow(size) for size in self.sizes])


def _one_row(mask: Any) -> np.ndarray[Any, Any]:
    """The masks of several components, nested or not, in one row."""
    if isinstance(mask, (tuple, list)) and any(np.ndim(part) for part in mask):
        return np.concatenate([_one_row(part) for part in mask])
    return np.asarray(mask).reshape(-1)


@kind_of.register
def _(space: spaces.MultiDiscrete) -> Indices:
    return Indices(space.nvec, space.start)
