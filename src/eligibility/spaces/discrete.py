"""``Discrete``: one index."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.spaces.kind import Allow, Kind, kind_of, read_masks


class Index(Kind):
    """One of ``number`` values, counted from ``start``."""

    def __init__(self, number: int, start: int = 0) -> None:
        self.number, self.first = number, start
        self.sizes = (number,)

    def member(self, number: int) -> Any:
        """The values in turn."""
        return np.int64(self.first + number % self.number)

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is one number an action: 0 forbids it."""
        meaning = "give one number an action, 0 for those that are forbidden"
        return np.asarray(read_masks(masks, self.number, meaning) != 0, np.uint8)

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where every action is forbidden."""
        return np.asarray(~codes.any(-1))

    def mask(self, allow: Allow) -> Any:
        """One number an action."""
        return allow(self.number)


@kind_of.register
def _(space: spaces.Discrete) -> Index:
    return Index(int(space.n), int(space.start))
