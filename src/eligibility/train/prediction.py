"""What a policy does at observations that somebody hands it, one by one or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.train.network import is_recurrent
from eligibility.train.observations import Observations
from eligibility.train.observations.masked import MaskedObservations
from eligibility.train.policies import Policy


@dataclass(frozen=True, eq=False)
class Predictor:
    """Observations as the environment returns them, to actions as it takes them."""

    network: nn.Module
    policy: Policy
    observations: Observations
    generator: torch.Generator

    def __call__(
        self,
        observation: Any,
        deterministic: bool,
        action_masks: Any,
        state: Any,
        episode_start: Any,
    ) -> Any:
        """See `eligibility.Reinforce.predict`."""
        kept, several = self._kept(observation, action_masks)
        if not np.isfinite(kept).all():
            raise InvalidValueError(
                "`observation`", "NaN or infinity", "finite numbers", "correct the environment"
            )
        seen, policy = torch.from_numpy(kept), self.policy
        after: Tensor | None = None
        with torch.inference_mode():
            if is_recurrent(self.network):
                start = self.network.start(len(kept))
                before = _states(start, state, episode_start, several)
                outputs, after = self.network.step(seen, before)
            else:
                _check_no_memory(state, episode_start)
                outputs = self.network(seen)
            if deterministic:
                action = policy.mode(outputs)
            else:
                noise = torch.empty(len(outputs), *policy.noise_shape, dtype=policy.noise_dtype)
                policy.fill_noise(noise, self.generator)
                action = policy.sample(outputs, noise)
        actions = policy.to_environment(action)
        actions = actions if several else policy.first(actions)
        if after is None:
            return actions
        return actions, (after if several else after[0]).numpy()

    def _kept(self, observation: Any, action_masks: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """The observations as kept, and whether they are several."""
        if action_masks is None:
            return self.observations.read(observation)
        if isinstance(self.observations, MaskedObservations):
            return self.observations.read_masked(observation, action_masks)
        raise InvalidValueError(
            "`action_masks`",
            "masks for a policy that has none",
            "None, because the training environment had no masks",
            "omit them, or train with mask_actions on an environment with masks",
        )


def _states(start: Tensor, state: Any, episode_start: Any, several: bool) -> Tensor:
    """The states before the observations, ``[N, state_size]``: ``start`` where episodes begin."""
    states, number = start, len(start)
    if state is not None:
        given, shape = np.asarray(state), list(start.shape if several else start.shape[1:])
        if given.dtype.kind != "f" or list(given.shape) != shape:
            raise ShapeError(
                "`state`",
                f"{given.dtype} of shape {list(given.shape)}",
                f"floating-point numbers of shape {shape}",
                "pass what the last call returned, or None where all episodes begin",
            )
        states = torch.from_numpy(given).to(start).reshape(start.shape)
    if episode_start is not None:
        begins = np.asarray(episode_start)
        if begins.dtype != bool or begins.size != number:
            raise ShapeError(
                "`episode_start`",
                f"{begins.dtype} of shape {list(begins.shape)}",
                f"{number} booleans, one for each observation",
                "pass terminated | truncated of the step before",
            )
        states = torch.where(torch.from_numpy(begins.reshape(number, 1)), start, states)
    return states


def _check_no_memory(state: Any, episode_start: Any) -> None:
    """Refuse what a policy that remembers nothing would have to ignore."""
    for name, given in (("state", state), ("episode_start", episode_start)):
        if given is not None:
            raise InvalidTypeError(
                f"`{name}`",
                type(given).__name__,
                "None, because this policy is not recurrent",
                "omit it, or train with recurrent='gru'",
            )
