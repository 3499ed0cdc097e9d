"""The exact eligibility: the slope of a density in mpmath, and how well its inputs determine it.

The rules are not used here, nor are their formulas: a central difference at 200 digits is good to
more than 50. Inputs are the numbers that a distribution holds, taken as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp
from mpmath import mpf

DIGITS = 200
_STEP, _FROM_ZERO = mpf("1e-60"), mpf("1e-100")
_Inputs = dict[str, Any]


def slopes(
    density: Callable[..., mpf], inputs: _Inputs, parameter: str, *, symmetric: bool = False
) -> list[mpf]:
    """``∂ density/∂ parameter``, entry by entry; a scalar parameter has one."""
    with mp.workdps(DIGITS):
        held = inputs[parameter]
        found = []
        for path in _paths(held):
            size = abs(_at(held, path))
            if mp.isinf(size):
                found.append(mpf(0))
                continue
            step = _STEP * size if size else _FROM_ZERO
            ends = [
                density(**{**inputs, parameter: _moved(held, path, sign * step, symmetric)})
                for sign in (1, -1)
            ]
            found.append((ends[0] - ends[1]) / (2 * step))
        return found


def condition(gradient: Callable[[_Inputs], mpf], inputs: _Inputs, movable: list[str]) -> mpf:
    """``Σ |x ∂e/∂x / e|`` over the inputs: relative change of the result by that of the inputs."""
    with mp.workdps(DIGITS):
        here = gradient(inputs)
        if here == 0:
            return mp.inf
        total = mpf(0)
        for name in movable:
            for path in _paths(inputs[name]):
                size = _at(inputs[name], path)
                if size == 0 or mp.isinf(size):
                    continue
                step = size * mpf("1e-12")
                moved = gradient({**inputs, name: _moved(inputs[name], path, step, False)})
                total += abs((moved - here) / here) * mpf("1e12")
        return total


def _paths(held: Any) -> Iterator[tuple[int, ...]]:
    if not isinstance(held, list):
        yield ()
        return
    for index, inner in enumerate(held):
        for path in _paths(inner):
            yield (index, *path)


def _at(held: Any, path: tuple[int, ...]) -> mpf:
    for index in path:
        held = held[index]
    return held


def _moved(held: Any, path: tuple[int, ...], step: mpf, symmetric: bool) -> Any:
    """``held`` with one entry moved; in a symmetric matrix half the step on each side."""
    if symmetric and path[0] != path[1]:
        once = _moved(held, path, step / 2, False)
        return _moved(once, path[::-1], step / 2, False)
    if not path:
        return held + step
    return [
        _moved(inner, path[1:], step, False) if index == path[0] else inner
        for index, inner in enumerate(held)
    ]
