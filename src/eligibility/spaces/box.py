"""``Box``: continuous numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.spaces.kind import Kind, kind_of


@dataclass(frozen=True, eq=False)
class Numbers(Kind):
    """Numbers between two arrays of bounds, which may be infinite; they cannot be masked."""

    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]  # of the bounds
        """All are continuous."""
        return (0,) * int(np.prod(self.low.shape or (1,)))

    @property
    def is_bounded(self) -> bool:
        """Whether every number has both bounds."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())


@kind_of.register
def _(space: spaces.Box) -> Numbers:
    return Numbers(space.low, space.high)
