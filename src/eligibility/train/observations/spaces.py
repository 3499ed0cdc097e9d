"""Which encoding an observation space has."""

from __future__ import annotations

from typing import Any

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.train.domains import shown
from eligibility.train.observations.boxes import BoxObservations
from eligibility.train.observations.composite import CompositeObservations
from eligibility.train.observations.indices import (
    DiscreteObservations,
    MultiBinaryObservations,
    MultiDiscreteObservations,
)
from eligibility.train.observations.observations import Observations


def observations_for(
    space: Any, keys: tuple[str, ...] | None = None, *, scale: bool = False
) -> Observations:
    """The encoding for the observation space of one environment.

    Args:
        space: The space.
        keys: Of a ``Dict``, which entries the network sees; None: all of them.
        scale: Measure floating-point numbers that have bounds from the middle of their range, in
            standard deviations of a uniform one.

    Raises:
        InvalidTypeError: None is written for this kind of space.
        InvalidValueError: The space does not have these keys.
    """
    from gymnasium import spaces

    if keys is not None:
        known = list(space.spaces) if isinstance(space, spaces.Dict) else []
        for key in keys:
            if key not in known:
                raise InvalidValueError(
                    "`observation_keys`",
                    shown(key),
                    " or ".join(known) or "no keys: the observation space is not a Dict",
                    "choose keys of the observation space",
                )
        return CompositeObservations({key: _encoding(space[key], scale, key) for key in keys})
    return _encoding(space, scale)


def _encoding(space: Any, scale: bool, place: str = "") -> Observations:
    """The encoding of a space; ``place`` says where in the whole one it stands."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        bounds = (space.low, space.high) if scale else None
        return BoxObservations(tuple(space.shape), space.dtype, bounds)
    if isinstance(space, spaces.Discrete):
        return DiscreteObservations(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteObservations(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryObservations(tuple(space.shape))
    if isinstance(space, spaces.Dict) and space.spaces:
        return CompositeObservations(
            {key: _encoding(part, scale, _below(place, key)) for key, part in space.spaces.items()}
        )
    if isinstance(space, spaces.Tuple) and space.spaces:
        return CompositeObservations(
            {
                i: _encoding(part, scale, _below(place, str(i)))
                for i, part in enumerate(space.spaces)
            }
        )
    raise _unsupported(space, place)


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _unsupported(space: Any, place: str) -> EligibilityError:
    got = type(space).__name__ if place else str(space)
    return InvalidTypeError(
        f"the observation space at `{place}`" if place else "the observation space",
        got,
        "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
        "leave it out with observation_keys, or wrap the environment in "
        "gymnasium.wrappers.TransformObservation",
    )
