"""Which policy an action space has."""

from __future__ import annotations

from typing import Any

from eligibility.errors import InvalidTypeError
from eligibility.train.policies.bernoulli import BernoulliPolicy
from eligibility.train.policies.categorical import CategoricalPolicy, MultiCategoricalPolicy
from eligibility.train.policies.gaussian import GaussianPolicy
from eligibility.train.policies.policy import Policy


def policy_for(space: Any) -> Policy:
    """The policy for the action space of one environment.

    Raises:
        InvalidTypeError: None is written for this kind of space.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return CategoricalPolicy(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategoricalPolicy(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return BernoulliPolicy(tuple(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return GaussianPolicy(space.low, space.high)
    raise InvalidTypeError(
        "the action space",
        str(space),
        "Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers",
        "wrap the environment, for instance in gymnasium.wrappers.TransformAction",
    )
