"""The policy gradient of a rollout, in one pass through the network.

The gradient at the policy's outputs is known in closed form,

    −A e − c ∂H/∂outputs,  averaged over the steps,

with the advantage A, the eligibility e = ∂ log π(a)/∂outputs and the entropy H, so no loss is
computed: the closed form is what the network is differentiated with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.config import Config
from eligibility.train.observations import Observations
from eligibility.train.policies import Policy
from eligibility.train.rollout import Rollout


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
        self.estimator = AdvantageEstimator(config, observations)

    def __call__(self, rollout: Rollout) -> GradientFacts:
        """Differentiate; afterwards each parameter's ``.grad`` is this rollout's alone."""
        advantages = self.estimator(rollout)
        alive = rollout.alive
        outputs = self._network(rollout.observations[alive])
        with torch.no_grad():
            entropy, entropy_gradient = self._policy.entropy(outputs)
            eligibility = self._policy.eligibility(outputs, rollout.actions[alive])
            ascent = eligibility * advantages.unsqueeze(-1)
            ascent += self._config.entropy_coef * entropy_gradient
        self._network.zero_grad()
        # As outputs.backward(−ascent / N), which would first import a compiler.
        (outputs * ascent).sum().div(-len(ascent)).backward()
        gradients = [p.grad for p in self._network.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        return GradientFacts(norm=float(norm), entropy=float(entropy.mean()))
