"""Which policy an action space has."""

from __future__ import annotations

from typing import Any

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.spaces import built_of, kind_of
from eligibility.train.policies.gaussian import SquashedGaussianPolicy
from eligibility.train.policies.parts import CompositePolicy
from eligibility.train.policies.policy import Policy, policy_of


def policy_for(space: Any, squash: bool = False) -> Policy:
    """The policy for the action space of one environment."""
    policy = _policy(space, squash)
    if squash and not any(isinstance(leaf, SquashedGaussianPolicy) for leaf in policy.leaves):
        raise InvalidValueError(
            "`squash_actions`", "True", "a Box among the actions", f"{space} has none: omit it"
        )
    return policy


def _policy(space: Any, squash: bool) -> Policy:
    def of_leaf(leaf: Any, place: str) -> Policy:
        policy = policy_of(kind_of(leaf), leaf, squash)
        if policy is None:
            raise _unsupported(leaf, place)
        return policy

    return built_of(space, of_leaf, CompositePolicy)


def _unsupported(space: Any, place: str) -> EligibilityError:
    return InvalidTypeError(
        f"the action space at `{place}`" if place else "the action space",
        str(space),
        "Discrete, MultiDiscrete, MultiBinary, Counts, Box of floating-point numbers, or a Dict "
        "or Tuple of these",
        "wrap the environment, for instance in gymnasium.wrappers.TransformAction",
    )
