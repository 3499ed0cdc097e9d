"""The policy gradient of a rollout, in one pass through the network, or several if it is large.

A pass takes any steps; through a recurrent network it takes all steps of some episodes.

The gradient at the policy's outputs is known in closed form,

    −A e − c ∂H/∂outputs,  summed over the steps, divided by their number or that of the episodes,

with the advantage A, the eligibility e = ∂ log π(a)/∂outputs and the entropy H, so no loss is
computed: the closed form is what the network is differentiated with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from eligibility.errors import InvalidValueError
from eligibility.reinforce.per_weight import PerWeight
from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.baseline_names import options_of
from eligibility.train.checkpoint import named, part_of
from eligibility.train.config import Config
from eligibility.train.distributed import ALONE, Processes
from eligibility.train.network import is_recurrent, outputs_of
from eligibility.train.observations import Observations
from eligibility.train.policies import Policy
from eligibility.train.progress import Progress
from eligibility.train.rollout import Rollout

# An action with an eligibility below this at every output was all but certain.
_SATURATED = 0.01

# Rows, and numbers in the network's input, up to which one pass is made. The activations of that
# many rows stay in the processor's cache; smaller pieces pay the overhead of a pass more often.
_MOST_ROWS, _LARGEST_INPUT = 2**13, 2**24
# The same for a recurrent network, where a row costs less the more episodes there are in a pass.
_MOST_ROWS_REMEMBERED = 2**16


# From the places of some steps to what is seen there; see `PolicyGradient._pass`.
_Pass: TypeAlias = "Callable[[Tensor], _Seen]"


class PolicyGradient:
    """Fills the weights' ``.grad`` with the descent direction of a rollout."""

    def __init__(
        self,
        config: Config,
        network: nn.Module,
        policy: Policy,
        observations: Observations,
        processes: Processes = ALONE,
    ) -> None:
        self._config, self._network, self._policy = config, network, policy
        self._processes = processes
        most = _MOST_ROWS_REMEMBERED if config.is_recurrent else _MOST_ROWS
        self._rows = min(max(1, _LARGEST_INPUT // observations.features), most)
        self.estimator = AdvantageEstimator(config, observations)
        of_weights = any(baseline.of_weights for baseline in options_of(config.baseline))
        self.per_weight = PerWeight(config.baseline_rate) if of_weights else None
        if self.per_weight is not None and processes.size > 1:
            raise InvalidValueError(
                "`baseline`",
                config.baseline,
                "a baseline other than per-weight on several processes",
                "its averages need the gradients of every episode in one place: use one process",
            )

    def __call__(
        self,
        rollout: Rollout,
        whole: Rollout | None = None,
        remaining: float = 1.0,
        progress: Progress | None = None,
    ) -> Progress:
        """Differentiate; afterwards each parameter's ``.grad`` is that of the whole rollout.

        Actions are credited in ``whole``, the episodes of all processes. ``remaining`` is the share
        of the training that was still to come when the rollout began. Returns the progress with
        what is known of the gradient.
        """
        config = self._config
        falls = config.entropy_schedule == "linear"
        entropy_coef = config.entropy_coef * (remaining if falls else 1.0)
        whole = whole or rollout
        advantages, explained_variance = self.estimator(whole)
        steps, episodes = len(advantages), whole.alive.shape[1]
        number = steps if config.average == "steps" else episodes
        credits = torch.zeros(rollout.alive.shape)
        credits[rollout.alive] = self._processes.own(advantages, whole.alive)
        one_pass = partial(self._pass, rollout, credits, number, entropy_coef)
        if self.per_weight is None:
            seen, noise = self._by_halves(rollout.alive, one_pass)
        else:
            seen, noise = self._by_episodes(self.per_weight, rollout, one_pass, number)
        squared = sum(float(g.square().sum()) for g in self._gradients())
        size = seen.eligibility.abs().amax(-1)
        weight = size * seen.advantages.abs()
        saturated = (size < _SATURATED).float()
        sums = torch.stack([x.sum() for x in (seen.entropy, saturated, weight, weight.square())])
        self._processes.add_up([sums])
        entropies, saturations, weights, squares = sums.tolist()
        return replace(
            progress or Progress(),
            gradient_norm=math.sqrt(squared),
            gradient_noise=math.sqrt(noise),
            signal_to_noise=max(squared - noise, 0.0) / noise if noise > 0 else math.nan,
            entropy=entropies / steps,
            saturated=saturations / steps,
            effective_batch=weights**2 / max(squares, 1e-30),
            explained_variance=explained_variance,
        )

    def _by_halves(self, alive: Tensor, one_pass: _Pass) -> tuple[_Seen, float]:
        """Fill ``.grad`` by every other episode, then the rest, which differ by noise alone."""
        for parameter in self._network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        episodes = alive.shape[1]
        start = self._processes.rank * episodes % 2  # halves of the episodes of all processes
        passes, first = [], list[Tensor]()
        for remainder in (start, 1 - start):
            half = torch.zeros_like(alive)
            half[:, remainder::2] = alive[:, remainder::2]
            passes += [one_pass(places) for places in self._parts(half) if len(places)]
            first = first or [gradient.clone() for gradient in self._gradients()]
        self._processes.add_up([*first, *self._gradients()])
        if episodes * self._processes.size < 2:
            return _Seen.together(passes), math.nan
        # With halves h₁ and h₂ of the sum, |h₁ − h₂|² is what |h₁ + h₂ − its mean|² is on average.
        pairs = zip(first, self._gradients(), strict=True)
        noise = sum(float((2 * half - whole).square().sum()) for half, whole in pairs)
        return _Seen.together(passes), noise

    def _by_episodes(
        self, baseline: PerWeight, rollout: Rollout, one_pass: _Pass, number: int
    ) -> tuple[_Seen, float]:
        """Fill ``.grad`` by episodes, because each weight's baseline looks at whole ones."""
        alive, episodes = rollout.alive, rollout.alive.shape[1]
        with torch.no_grad():
            places = _places(alive)
            parts = [places] if is_recurrent(self._network) else torch.split(places, self._rows)
            seen = _Seen.together([one_pass(part) for part in parts])
        weights = self.estimator.step_weights(rollout).expand(alive.shape)[alive]
        weighed = weights.to(seen.eligibility).unsqueeze(-1) * seen.eligibility
        cotangents = (seen.ascent, weighed)
        rest = baseline.subtract(*per_episode_gradients(self._network, rollout, cotangents))
        noise = 0.0
        for name, parameter in self._network.named_parameters():
            parameter.grad = rest[name].sum(0) / -number
            centred = rest[name] - rest[name].mean(0)
            noise += float(centred.square().sum()) / number**2
        return seen, noise * episodes / (episodes - 1) if episodes > 1 else math.nan

    def _parts(self, alive: Tensor) -> Sequence[Tensor]:
        """The places of the steps, by those that pass through the network together."""
        places = _places(alive)
        if not is_recurrent(self._network):
            return torch.split(places, self._rows)
        episodes = alive.shape[1]
        group = places % episodes // max(1, self._rows // len(alive))
        return [places[group == one] for one in torch.unique(group)]

    def _pass(
        self, rollout: Rollout, credits: Tensor, number: int, entropy_coef: float, places: Tensor
    ) -> _Seen:
        """What is seen at `_places`; adds their share to ``.grad`` where gradients are enabled."""
        observations = rollout.observations.flatten(0, 1)[places]
        actions, advantages = rollout.actions.flatten(0, 1)[places], credits.flatten()[places]
        outputs = outputs_of(self._network, observations, places % credits.shape[1])
        with torch.no_grad():
            entropy, entropy_gradient = self._policy.entropy(outputs)
            eligibility = self._policy.eligibility(outputs, actions)
            ascent = eligibility * advantages.unsqueeze(-1)
            ascent += entropy_coef * entropy_gradient
        if outputs.requires_grad:
            # As outputs.backward(−ascent / number), which would first import a compiler.
            (outputs * ascent).sum().div(-number).backward()  # type: ignore[no-untyped-call]  # torch
        return _Seen(advantages, entropy, ascent, eligibility)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._network.parameters() if p.grad is not None]

    def state_dict(self) -> dict[str, Tensor]:
        """What the baselines remember of earlier rollouts."""
        state = named("baseline", self.estimator.state_dict())
        if self.per_weight is not None:
            for average, tensors in self.per_weight.state_dict().items():
                state |= named(f"per_weight.{average}", tensors)
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.estimator.load_state_dict(part_of(state, "baseline"))
        if self.per_weight is not None:
            averages = part_of(state, "per_weight")
            self.per_weight.load_state_dict(
                {name: part_of(averages, name) for name in self.per_weight.state_dict()}
            )

    def learned_state(self) -> dict[str, Tensor]:
        """Zeros in the shapes that `state_dict` has once a rollout was seen."""
        state = named("baseline", self.estimator.learned_state())
        if self.per_weight is not None:
            zeros = {name: torch.zeros_like(w) for name, w in self._network.named_parameters()}
            for average in self.per_weight.state_dict():
                state |= named(f"per_weight.{average}", zeros)
        return state


def _places(alive: Tensor) -> Tensor:
    """The numbers of the True ones among all, row by row: those of an episode in its order."""
    return alive.flatten().nonzero().squeeze(-1)


@dataclass(frozen=True, eq=False)
class _Seen:
    """n steps: advantage and entropy ``[n]``, and at the outputs ``[n, P]`` what follows."""

    advantages: Tensor
    entropy: Tensor
    ascent: Tensor
    eligibility: Tensor

    @staticmethod
    def together(parts: Sequence[_Seen]) -> _Seen:
        return _Seen(
            *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(_Seen))
        )


# The share of the largest possible entropy below which a policy hardly tries anything new.
_COLLAPSED = 0.01
# The share of saturated steps from which on almost none teaches anything.
_MOSTLY_SATURATED = 0.95
# An explained variance below this: the returns are far noisier with the baseline than without.
# Leave-one-out reaches -3 with two episodes, where it is still the best there is.
_HARMFUL = -4.0


def diagnose(found: Progress, largest_entropy: float | None) -> str | None:
    """One sentence for the user, or None; ``largest_entropy`` is the uniform policy's, in nats."""
    if found.solved:
        return None
    if found.gradient_norm == 0:
        return (
            "all returns of a rollout were equal, so it teaches nothing; with more environments a "
            "difference is more likely"
        )
    if largest_entropy is not None and found.entropy < _COLLAPSED * largest_entropy:
        return (
            "the policy hardly explores (entropy below 1 % of the maximum) and has not reached "
            "its goal; try a larger entropy coefficient or a smaller learning rate"
        )
    if found.saturated > _MOSTLY_SATURATED:
        return (
            "the policy is nearly deterministic at more than 95 % of the steps, which teach "
            "nothing, and has not reached its goal; try a larger entropy coefficient or a smaller "
            "learning rate"
        )
    if found.explained_variance < _HARMFUL:
        return (
            "the baseline makes the returns noisier than no baseline would; "
            "try --baseline time-dependent-leave-one-out"
        )
    return None


# Episodes go through together until their gradients take this much memory.
_CHUNK_BYTES = 2**26


def per_episode_gradients(
    network: nn.Module, rollout: Rollout, cotangents: Sequence[Tensor]
) -> list[dict[str, Tensor]]:
    """Pull cotangents ``[N, P]`` at the outputs back to the weights, apart for each of B episodes.

    For each cotangent: parameter name → ``[B, *shape]``. One batched backward pass over all
    episodes, or one after the other for a network that vmap cannot take.
    """
    alive = rollout.alive
    steps, episodes = alive.shape
    padded = []
    for cotangent in cotangents:
        whole = cotangent.new_zeros(steps, episodes, cotangent.shape[-1])
        whole[alive] = cotangent
        padded.append(whole)
    # What was seen after an episode's end may be anything, even NaN; times 0 it must be 0.
    dead = ~alive.reshape(steps, episodes, *[1] * (rollout.observations.ndim - 2))
    observations = torch.where(dead, rollout.observations[:1], rollout.observations)
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    held = dict(network.named_buffers())

    def one(seen: Tensor, *rows: Tensor) -> tuple[dict[str, Tensor], ...]:
        def outputs(weights: dict[str, Tensor]) -> Any:
            return torch.func.functional_call(network, {**held, **weights}, (seen,))

        pull = torch.func.vjp(outputs, parameters)[1]
        return tuple(pull(row)[0] for row in rows)

    numbers = sum(p.numel() * p.element_size() for p in parameters.values()) * len(cotangents)
    chunk = max(1, _CHUNK_BYTES // max(numbers, 1))
    batched = torch.func.vmap(one, in_dims=1, chunk_size=min(chunk, episodes))
    try:
        return list(batched(observations, *padded))
    except RuntimeError:  # an operation of the network that vmap does not know
        rows = zip(observations.unbind(1), *(c.unbind(1) for c in padded), strict=True)
        each = [one(*row) for row in rows]
    return [
        {name: torch.stack([gradients[name] for gradients in gathered]) for name in gathered[0]}
        for gathered in zip(*each, strict=True)
    ]
