"""Which encoding an observation space has."""

from __future__ import annotations

from typing import Any

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.spaces import built_of, kind_of, parts_of
from eligibility.train.domains import shown
from eligibility.train.observations.composite import CompositeObservations
from eligibility.train.observations.observations import Observations, encoding_of


def observations_for(
    space: Any, keys: tuple[str, ...] | None = None, *, scale: bool = False
) -> Observations:
    """The encoding for the observation space of one environment; of a ``Dict``, of these keys."""
    if keys is None:
        return _encoding(space, scale)
    parts = parts_of(space)
    known = [key for key in parts if isinstance(key, str)]
    for key in keys:
        if key not in known:
            raise InvalidValueError(
                "`observation_keys`",
                shown(key),
                " or ".join(known) or "no keys: the observation space is not a Dict",
                "choose keys of the observation space",
            )
    return CompositeObservations({key: _encoding(parts[key], scale, key) for key in keys})


def _encoding(space: Any, scale: bool, place: str = "") -> Observations:
    """The encoding of a space; ``place`` says where in the whole one it stands."""

    def of_leaf(leaf: Any, at: str) -> Observations:
        encoding = encoding_of(kind_of(leaf), leaf, scale)
        if encoding is None:
            raise _unsupported(leaf, at)
        return encoding

    return built_of(space, of_leaf, CompositeObservations, place)


def _unsupported(space: Any, place: str) -> EligibilityError:
    got = type(space).__name__ if place else str(space)
    return InvalidTypeError(
        f"the observation space at `{place}`" if place else "the observation space",
        got,
        "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
        "exclude it with observation_keys, or wrap the environment in "
        "gymnasium.wrappers.TransformObservation",
    )
