"""Where a policy meets an environment: what their spaces mean to each other, decided once."""

from __future__ import annotations

from typing import Any, NamedTuple

from gymnasium.vector import VectorEnv

from eligibility.train.config import Config
from eligibility.train.masks import KEY, MaskedVector, observed_mask, with_masks
from eligibility.train.observations import Observations, observations_for
from eligibility.train.observations.masked import MaskedObservations
from eligibility.train.policies import Policy, policy_for


class Interface(NamedTuple):
    """Environments, how their observations are kept and encoded, and the policy of actions."""

    # The environments; their observations include masks if they have any.
    vector: VectorEnv[Any, Any, Any]
    observations: Observations  # encoding of the observation space
    policy: Policy  # policy of the action space


def interface(vector: VectorEnv[Any, Any, Any], config: Config) -> Interface:
    """The interface of environments, with the options of the config that concern spaces."""
    policy = policy_for(vector.single_action_space, config.squash_actions)
    space: Any = vector.single_observation_space
    keys = config.observation_keys
    key = KEY if config.mask_actions and observed_mask(space) else None
    if key is not None and keys is None:
        keys = tuple(name for name in space.spaces if name != key)
    observations = observations_for(space, keys, scale=config.scale_observations)
    masked = with_masks(vector, policy) if config.mask_actions else vector
    if isinstance(masked, MaskedVector):
        observations = MaskedObservations(observations, policy, key)
    return Interface(masked, observations, policy)
