"""What the probe shows of its states, in every space that programs expect to see."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.audit.interception.action_numbers import masks_of
from eligibility.audit.job import STATES
from eligibility.spaces import Numbers, kind_of, parts_of, put_together

_FARTHEST = 9.0  # what an observation of size 1 never reaches
_WIDE = 1.0  # of an interval in which states differ enough for a network to tell them apart
_JITTER = 0.3  # of observations that are of size 1
MASK = "action_mask"  # the entry of a Dict that says what is allowed


def shown_space(space: spaces.Space[Any], dtype: Any) -> spaces.Space[Any]:
    """``space`` with Box parts of real numbers in ``dtype``, in as wide bounds as the probe's.

    Where a program may rely on them, as in ``log``, ``arccos`` or a mask, the bounds are its own.
    """
    parts = {
        key: part if key == MASK else shown_space(part, dtype)
        for key, part in parts_of(space).items()
    }
    if parts:
        shown = put_together(space, parts)
        return spaces.Dict(shown) if isinstance(shown, dict) else spaces.Tuple(shown)
    if not isinstance(space, spaces.Box):
        return space
    low, high = np.maximum(space.low, -_FARTHEST), np.minimum(space.high, _FARTHEST)
    wide = high - low >= _WIDE
    low, high = np.where(wide, low, -_FARTHEST), np.where(wide, high, _FARTHEST)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def observations_of(space: spaces.Space[Any], actions: spaces.Space[Any]) -> list[Any]:
    """One observation a state, the terminal one last; it refuses what the probe cannot imitate."""
    return _drawn(space, actions, np.random.Generator(np.random.PCG64(11)))


def _drawn(
    space: spaces.Space[Any], actions: spaces.Space[Any], generator: np.random.Generator
) -> list[Any]:
    states = range(STATES + 1)
    parts = parts_of(space)
    if parts:
        columns = {
            key: [masks_of(actions, state) for state in states]
            if key == MASK
            else _drawn(part, actions, generator)
            for key, part in parts.items()
        }
        return [
            put_together(space, {key: column[state] for key, column in columns.items()})
            for state in states
        ]
    kind = kind_of(space)
    if kind is None:
        raise NotImplementedError(f"observations of {type(space).__name__}")
    if not isinstance(kind, Numbers):
        return [kind.member(state).astype(space.dtype) for state in states]
    shape = space.shape or (4,)
    drawn = generator.normal(size=(STATES + 1, *shape))
    return [_folded(row.round(2), space) for row in drawn]


def jittered(observation: Any, space: spaces.Space[Any], number: int, features: int) -> Any:
    """The same with extra small features, which a number and a choice of features decide.

    No generator: the audit enumerates those. What is not a real number stays as it is.
    """
    parts = parts_of(space)
    if parts:
        changed = {
            key: jittered(observation[key], part, number, features) for key, part in parts.items()
        }
        return put_together(space, changed)
    if not isinstance(space, spaces.Box):
        return observation
    index = np.arange(observation.size).reshape(observation.shape)
    chaos = np.abs(np.sin(12.9898 * index + 78.233 * number + 1.7 * features)) * 43758.5453
    return _folded(observation + _JITTER * (2.0 * (chaos % 1.0) - 1.0), space)


def _folded(numbers: Any, space: spaces.Space[Any]) -> Any:
    """The same within the bounds of a Box: what is outside is reflected at them."""
    assert isinstance(space, spaces.Box)
    low, width = space.low.astype(float), (space.high - space.low).astype(float)
    outside = (numbers < space.low) | (numbers > space.high)
    reflected = low + width - np.abs((numbers - low) % (2.0 * width) - width)
    return np.where(outside, reflected, numbers).astype(space.dtype)
