"""What a policy does at observations that somebody hands it, one by one or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from eligibility.errors import InvalidValueError
from eligibility.train.observations import Observations
from eligibility.train.observations.masked import MaskedObservations
from eligibility.train.policies import Policy


class Predictor:
    """Observations as the environment returns them, to actions as it takes them.

    Args:
        network: Maps kept observations to the policy's outputs.
        policy: What these mean.
        observations: How observations are kept.
        generator: Draws the actions that are not the most probable ones.
    """

    def __init__(
        self,
        network: nn.Module,
        policy: Policy,
        observations: Observations,
        generator: torch.Generator,
    ) -> None:
        self._network, self._policy, self._observations = network, policy, observations
        self._generator = generator

    def __call__(self, observation: Any, deterministic: bool, action_masks: Any) -> Any:
        """The action for one observation, or an array of them for a batch."""
        kept, several = self._kept(observation, action_masks)
        policy = self._policy
        with torch.inference_mode():
            outputs = self._network(torch.from_numpy(kept))
            if deterministic:
                action = policy.mode(outputs)
            else:
                noise = torch.empty(len(outputs), *policy.noise_shape, dtype=policy.noise_dtype)
                policy.fill_noise(noise, self._generator)
                action = policy.sample(outputs, noise)
        actions = policy.to_environment(action)
        return actions if several else policy.first(actions)

    def _kept(self, observation: Any, action_masks: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """The observations as kept, and whether they are several."""
        if action_masks is None:
            return self._observations.read(observation)
        if isinstance(self._observations, MaskedObservations):
            return self._observations.read_masked(observation, action_masks)
        raise InvalidValueError(
            "`action_masks`",
            "masks for a policy without",
            "None: the environment had no masks when the model was made",
            "leave them away, or train with mask_actions on an environment with masks",
        )
