"""The policy gradient of a rollout, in one pass through the network, or several if it is large.

The gradient at the policy's outputs is known in closed form,

    −A e − c ∂H/∂outputs,  summed over the steps, divided by their number or that of the episodes,

with the advantage A, the eligibility e = ∂ log π(a)/∂outputs and the entropy H, so no loss is
computed: the closed form is what the network is differentiated with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eligibility.reinforce.per_weight import PerWeight
from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.config import Config
from eligibility.train.observations import Observations
from eligibility.train.per_episode import per_episode_gradients
from eligibility.train.policies import Policy
from eligibility.train.rollout import Rollout
from eligibility.train.state_names import named, part_of

# An action with an eligibility below this at every output was all but certain.
_SATURATED = 0.01

# Numbers in the network's input up to which one pass is made.
_LARGEST_INPUT = 2**24


@dataclass(frozen=True)
class GradientFacts:
    """What is known of a rollout's gradient once it is computed.

    Attributes:
        norm: Its Euclidean norm.
        entropy: Mean entropy of the policy over the rollout's steps, in nats.
        saturated: The share of steps whose action has an eligibility below 0.01 at every output:
            the policy was all but certain there, and nothing can be learned.
        effective_batch: The number of steps that would tell as much if all had an equal say:
            ``(Σ w)²/Σ w²`` with w the size of a step's advantage times its eligibility.
        explained_variance: Of the returns by the baseline; see `Advantages`.
    """

    norm: float
    entropy: float
    saturated: float
    effective_batch: float
    explained_variance: float


class PolicyGradient:
    """Fills the weights' ``.grad`` with the descent direction of a rollout."""

    def __init__(
        self, config: Config, network: nn.Module, policy: Policy, observations: Observations
    ) -> None:
        self._config, self._network, self._policy = config, network, policy
        self._rows = max(1, _LARGEST_INPUT // observations.features)
        self.estimator = AdvantageEstimator(config, observations)
        self.per_weight = (
            PerWeight(config.baseline_rate) if "per-weight" in config.baseline else None
        )

    def __call__(self, rollout: Rollout) -> GradientFacts:
        """Differentiate; afterwards each parameter's ``.grad`` is this rollout's alone."""
        credited, alive = self.estimator(rollout), rollout.alive
        steps, episodes = len(credited.values), alive.shape[1]
        number = steps if self._config.average == "steps" else episodes
        self._network.zero_grad()
        passes = [
            self._pass(observations, actions, advantages, number)
            for observations, actions, advantages in zip(
                torch.split(rollout.observations[alive], self._rows),
                torch.split(rollout.actions[alive], self._rows),
                torch.split(credited.values, self._rows),
                strict=True,
            )
        ]
        entropy, ascent, eligibility = (torch.cat(parts) for parts in zip(*passes, strict=True))
        if self.per_weight is not None:
            self._subtract_per_weight(self.per_weight, rollout, ascent, eligibility, number)
        gradients = [p.grad for p in self._network.parameters() if p.grad is not None]
        size = eligibility.abs().amax(-1)
        weight = size * credited.values.abs()
        return GradientFacts(
            norm=float(torch.nn.utils.get_total_norm(gradients)),
            entropy=float(entropy.mean()),
            saturated=float((size < _SATURATED).float().mean()),
            effective_batch=float(weight.sum() ** 2 / weight.square().sum().clamp(min=1e-30)),
            explained_variance=credited.explained_variance,
        )

    def _pass(
        self, observations: Tensor, actions: Tensor, advantages: Tensor, number: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add the share of some steps to the gradient; a baseline of weights does that itself.

        Returns:
            The entropy of each step ``[n]``, and its ascent direction and its eligibility at the
            outputs, ``[n, P]``.
        """
        with torch.set_grad_enabled(self.per_weight is None):
            outputs = self._network(observations)
        with torch.no_grad():
            entropy, entropy_gradient = self._policy.entropy(outputs)
            eligibility = self._policy.eligibility(outputs, actions)
            ascent = eligibility * advantages.unsqueeze(-1)
            ascent += self._config.entropy_coef * entropy_gradient
        if self.per_weight is None:
            # As outputs.backward(−ascent / number), which would first import a compiler.
            (outputs * ascent).sum().div(-number).backward()
        return entropy, ascent, eligibility

    def state_dict(self) -> dict[str, Tensor]:
        """What the baselines remember of earlier rollouts."""
        state = named("baseline", self.estimator.state_dict())
        if self.per_weight is not None:
            for average, tensors in self.per_weight.state_dict().items():
                state |= named(f"per_weight.{average}", tensors)
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`."""
        self.estimator.load_state_dict(part_of(state, "baseline"))
        if self.per_weight is not None:
            averages = part_of(state, "per_weight")
            self.per_weight.load_state_dict(
                {name: part_of(averages, name) for name in self.per_weight.state_dict()}
            )

    def _subtract_per_weight(
        self,
        baseline: PerWeight,
        rollout: Rollout,
        ascent: Tensor,
        eligibility: Tensor,
        number: int,
    ) -> None:
        """Fill ``.grad`` by episodes, because each weight's baseline looks at whole ones."""
        weights = self.estimator.step_weights(rollout).expand(rollout.alive.shape)[rollout.alive]
        weighed = weights.to(eligibility).unsqueeze(-1) * eligibility
        gradients, eligibilities = per_episode_gradients(self._network, rollout, (ascent, weighed))
        rest = baseline.subtract(gradients, eligibilities)
        for name, parameter in self._network.named_parameters():
            parameter.grad = rest[name].sum(0) / -number
