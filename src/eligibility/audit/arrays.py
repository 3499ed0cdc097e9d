"""NumPy arrays: their names in annotations, and one as a multiple of another."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


def as_multiple(vector: Array, direction: Array) -> tuple[float, float, float]:
    """c, ‖vector − c·direction‖ / ‖vector‖ for the best c, and the cosine between the two.

    0, 1 and 0 where one of them is 0.
    """
    size, length = float(np.linalg.norm(vector)), float(np.linalg.norm(direction))
    if size == 0.0 or length == 0.0:
        return 0.0, 1.0, 0.0
    product = float((vector * direction).sum())
    factor = product / length**2
    left = float(np.linalg.norm(vector - factor * direction))
    return factor, left / size, product / (size * length)
