"""Which policy an action space has."""

from __future__ import annotations

from typing import Any

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.train.policies.bernoulli import BernoulliPolicy
from eligibility.train.policies.categorical import CategoricalPolicy, MultiCategoricalPolicy
from eligibility.train.policies.composite import CompositePolicy
from eligibility.train.policies.gaussian import GaussianPolicy, SquashedGaussianPolicy
from eligibility.train.policies.multinomial import MultinomialPolicy
from eligibility.train.policies.policy import Policy


def policy_for(space: Any, squash: bool = False) -> Policy:
    """The policy for the action space of one environment.

    Args:
        space: The space.
        squash: For bounded ``Box`` spaces, tanh of normal numbers instead of clipped ones.

    Raises:
        InvalidTypeError: None is written for this kind of space.
        InvalidValueError: There is nothing to squash, or it has no bounds.
    """
    made: list[Policy] = []
    policy = _policy(space, squash, "", made)
    if squash and not any(isinstance(part, SquashedGaussianPolicy) for part in made):
        raise InvalidValueError(
            "`squash_actions`", "True", "a Box among the actions", f"{space} has none: leave it out"
        )
    return policy


def _policy(space: Any, squash: bool, place: str, made: list[Policy]) -> Policy:
    """The policy of a space, noted in ``made``; ``place`` says where in the whole it stands."""
    made.append(_part(space, squash, place, made))
    return made[-1]


def _part(space: Any, squash: bool, place: str, made: list[Policy]) -> Policy:
    from gymnasium import spaces

    from eligibility.spaces.counts import Counts

    if isinstance(space, spaces.Discrete):
        return CategoricalPolicy(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategoricalPolicy(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return BernoulliPolicy(tuple(space.shape))
    if isinstance(space, Counts):
        return MultinomialPolicy(space.total, space.bins)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return _numbers(space, squash)
    if isinstance(space, (spaces.Dict, spaces.Tuple)) and len(space.spaces):
        own: Any = space.spaces
        parts = own.items() if isinstance(own, dict) else enumerate(own)
        return CompositePolicy(
            {key: _policy(part, squash, f"{place}.{key}".strip("."), made) for key, part in parts}
        )
    raise _unsupported(space, place)


def _numbers(space: Any, squash: bool) -> Policy:
    if not squash:
        return GaussianPolicy(space.low, space.high)
    if not space.is_bounded("both"):
        raise InvalidValueError(
            "`squash_actions`",
            f"{space}",
            "bounds on both sides of every number",
            "leave it out, or bound the numbers with gymnasium.wrappers.TransformAction",
        )
    return SquashedGaussianPolicy(space.low, space.high)


def _unsupported(space: Any, place: str) -> EligibilityError:
    return InvalidTypeError(
        f"the action space at `{place}`" if place else "the action space",
        str(space),
        "Discrete, MultiDiscrete, MultiBinary, Counts, Box of floating-point numbers, or a Dict "
        "or Tuple of these",
        "wrap the environment, for instance in gymnasium.wrappers.TransformAction",
    )
