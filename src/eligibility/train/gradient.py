"""The policy gradient of a rollout, in one pass through the network, or several if it is large.

The gradient at the policy's outputs is known in closed form,

    −A e − c ∂H/∂outputs,  averaged over the steps,

with the advantage A, the eligibility e = ∂ log π(a)/∂outputs and the entropy H, so no loss is
computed: the closed form is what the network is differentiated with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.config import Config
from eligibility.train.observations import Observations
from eligibility.train.policies import Policy
from eligibility.train.rollout import Rollout

# Numbers in the network's input up to which one pass is made.
_LARGEST_INPUT = 2**24


@dataclass(frozen=True)
class GradientFacts:
    """What is known of a rollout's gradient once it is computed.

    Attributes:
        norm: Its Euclidean norm.
        entropy: Mean entropy of the policy over the rollout's steps, in nats.
    """

    norm: float
    entropy: float


class PolicyGradient:
    """Fills the weights' ``.grad`` with the descent direction of a rollout."""

    def __init__(
        self, config: Config, network: nn.Module, policy: Policy, observations: Observations
    ) -> None:
        self._config, self._network, self._policy = config, network, policy
        self._rows = max(1, _LARGEST_INPUT // observations.features)
        self.estimator = AdvantageEstimator(config, observations)

    def __call__(self, rollout: Rollout) -> GradientFacts:
        """Differentiate; afterwards each parameter's ``.grad`` is this rollout's alone."""
        advantages = self.estimator(rollout)
        number, alive = len(advantages), rollout.alive
        self._network.zero_grad()
        parts = [
            self._add(observations, actions, advantage, number)
            for observations, actions, advantage in zip(
                torch.split(rollout.observations[alive], self._rows),
                torch.split(rollout.actions[alive], self._rows),
                torch.split(advantages, self._rows),
                strict=True,
            )
        ]
        gradients = [p.grad for p in self._network.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        return GradientFacts(norm=float(norm), entropy=float(torch.cat(parts).mean()))

    def _add(
        self, observations: Tensor, actions: Tensor, advantages: Tensor, number: int
    ) -> Tensor:
        """Add the share of some of the ``number`` steps; returns the entropy of each."""
        outputs = self._network(observations)
        with torch.no_grad():
            entropy, entropy_gradient = self._policy.entropy(outputs)
            eligibility = self._policy.eligibility(outputs, actions)
            ascent = eligibility * advantages.unsqueeze(-1)
            ascent += self._config.entropy_coef * entropy_gradient
        # As outputs.backward(−ascent / N), which would first import a compiler.
        (outputs * ascent).sum().div(-number).backward()
        return entropy
