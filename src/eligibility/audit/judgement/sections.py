"""The minimum of a function of one number in [0, 1], as discounts are."""

from __future__ import annotations

from collections.abc import Callable

_RATIO = (5.0**0.5 - 1.0) / 2.0
_SECTIONS = 50


def refined(left: Callable[[float], float], start: float, step: float) -> float:
    """A minimum of ``left`` within a ``step`` of ``start``, by golden sections."""
    low, high = max(start - step, 0.0), min(start + step, 1.0)
    for _ in range(_SECTIONS):
        a, b = high - _RATIO * (high - low), low + _RATIO * (high - low)
        low, high = (low, b) if left(a) < left(b) else (a, high)
    return min((low, start, high), key=left)
