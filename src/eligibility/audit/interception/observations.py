"""What the probe shows of its states, in every space that programs expect to see."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.audit.interception.action_numbers import masks_of
from eligibility.audit.job import STATES
from eligibility.spaces import Numbers, kind_of, parts_of, put_together

_JITTER = 0.3  # of observations that are of size 1
MASK = "action_mask"  # the entry of a Dict that says what is allowed


def shown_space(space: spaces.Space[Any], dtype: Any) -> spaces.Space[Any]:
    """``space`` with Box parts of real numbers in ``dtype``."""
    parts = {
        key: part if key == MASK else shown_space(part, dtype)
        for key, part in parts_of(space).items()
    }
    if parts:
        shown = put_together(space, parts)
        return spaces.Dict(shown) if isinstance(shown, dict) else spaces.Tuple(shown)
    return spaces.Box(-9.0, 9.0, space.shape, dtype) if isinstance(space, spaces.Box) else space


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
    return [row.round(2).astype(space.dtype) for row in drawn]


def jittered(observation: Any, number: int, features: int) -> Any:
    """The same with extra small features, which a number and a choice of features decide.

    No generator: the audit enumerates those. What is not a real number stays as it is.
    """
    if isinstance(observation, dict):
        return {key: jittered(value, number, features) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(jittered(value, number, features) for value in observation)
    if not isinstance(observation, np.ndarray) or observation.dtype.kind != "f":
        return observation
    index = np.arange(observation.size).reshape(observation.shape)
    chaos = np.abs(np.sin(12.9898 * index + 78.233 * number + 1.7 * features)) * 43758.5453
    return (observation + _JITTER * (2.0 * (chaos % 1.0) - 1.0)).astype(observation.dtype)
