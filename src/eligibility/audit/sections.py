"""The minimum of a function of one number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eligibility.audit.arrays import Array

_RATIO = (5.0**0.5 - 1.0) / 2.0
_SECTIONS = 50
_POINTS, _ROUNDS = 21, 11  # each round keeps a tenth


def refined(
    left: Callable[[float], float],
    start: float,
    step: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> float:
    """A minimum of ``left`` within a ``step`` of ``start``, by golden sections.

    Discounts and λ are in [0, 1]; other numbers have other ``bounds``.
    """
    low, high = max(start - step, bounds[0]), min(start + step, bounds[1])
    a, b = high - _RATIO * (high - low), low + _RATIO * (high - low)
    at_a, at_b = left(a), left(b)
    for _ in range(_SECTIONS):  # each keeps one of the two inner points, and adds the other
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - _RATIO * (high - low)
            at_a = left(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _RATIO * (high - low)
            at_b = left(b)
    return min((low, start, high), key=left)


def refined_together(left: Callable[[Array], Array], start: float, step: float) -> float:
    """The same in [0, 1], of a function that is as fast for many numbers as for one."""
    low, high = max(start - step, 0.0), min(start + step, 1.0)
    for _ in range(_ROUNDS):
        points = np.linspace(low, high, _POINTS)
        least = int(left(points).argmin())
        low, high = points[max(least - 1, 0)], points[min(least + 1, _POINTS - 1)]
    return float(points[least])
