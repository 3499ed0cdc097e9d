"""The gradient of a rollout: by episodes, with a baseline of its own for every weight, exactly."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from benchmarks.estimators import DISCOUNT, LOGITS, Table, process, rollout_of
from eligibility.errors import InvalidValueError
from eligibility.reinforce.exact import moments
from eligibility.train.config import Config
from eligibility.train.distributed import Processes
from eligibility.train.gradient import PolicyGradient, per_episode_gradients
from eligibility.train.learner import Reinforce
from eligibility.train.observations import observations_for
from eligibility.train.policies import CategoricalPolicy
from eligibility.train.rollout import Rollout
from tests.train.test_advantages import exact_gradient


def made(**options: Any) -> PolicyGradient:
    """For the process of the estimators' tests; unbiased options unless told otherwise."""
    chosen = {"discount": DISCOUNT, "normalize": False, "average": "episodes", **options}
    observations = observations_for(spaces.Discrete(3))
    return PolicyGradient(
        Config("FrozenLake-v1", **chosen), Table(), CategoricalPolicy(2), observations
    )


def gradient_of(estimator: PolicyGradient, rollout: Rollout) -> Tensor:
    """The ascent direction of a rollout."""
    estimator(rollout)
    weight = estimator._network.weight
    assert weight.grad is not None
    return -weight.grad


def _with_memory(estimator: PolicyGradient) -> Any:
    """The estimator as a function of trajectories, each call with its present memory."""
    memory = {name: tensor.clone() for name, tensor in estimator.state_dict().items()}

    def estimate(episodes: Any) -> Tensor:
        estimator.load_state_dict(memory)
        return gradient_of(estimator, rollout_of(episodes))

    return estimate


def frozen(estimator: PolicyGradient) -> Any:
    """The estimator with a past, as a function of two trajectories."""
    law = process().law(LOGITS)
    gradient_of(estimator, rollout_of(law.values[torch.tensor([1, 5])]))
    return _with_memory(estimator)


PER_WEIGHT = [
    {"baseline": "per-weight", "credit": "whole-return"},
    {"baseline": "per-weight", "discount_updates": True},
    {"baseline": "time-dependent-leave-one-out+per-weight", "discount_updates": True},
]


@pytest.mark.parametrize("options", PER_WEIGHT, ids=str)
def test_a_baseline_for_every_weight_is_unbiased(options: dict[str, Any]) -> None:
    got = moments(process().law(LOGITS), frozen(made(**options)), samples=2)
    torch.testing.assert_close(got.mean, exact_gradient(), rtol=1e-5, atol=1e-6)


def test_a_baseline_for_every_weight_has_the_least_variance_of_all_constants() -> None:
    """The optimum by its own normal equation: no other constant for a weight does better."""
    law = process().law(LOGITS)
    estimator = made(baseline="per-weight", credit="whole-return", baseline_rate=1.0)
    assert estimator.per_weight is not None
    all_of_them = rollout_of(law.values)
    probs = law.probs.unsqueeze(-1).unsqueeze(-1)
    plain, scores = _by_hand(all_of_them)
    best = (probs * plain * scores).sum(0) / (probs * scores**2).sum(0).clamp(min=1e-30)
    estimator.per_weight.rewarded_squares = {"weight": (probs * plain * scores).sum(0)}
    estimator.per_weight.squares = {"weight": (probs * scores**2).sum(0)}
    rest = plain - best * scores
    variance = (probs * rest**2).sum(0) - (probs * rest).sum(0) ** 2
    got = moments(law, _with_memory(estimator), samples=1)
    torch.testing.assert_close(got.variance, variance, rtol=1e-5, atol=1e-6)
    for change in (-0.1, 0.1):
        other = plain - (best + change) * scores
        assert bool(((probs * other**2).sum(0) - (probs * other).sum(0) ** 2 >= variance).all())


def _by_hand(rollout: Rollout) -> tuple[Tensor, Tensor]:
    """``Σ_t R e_t`` and ``Σ_t e_t`` of each episode, one step after the other: ``[B, 3, 2]``."""
    probs = LOGITS.softmax(-1)
    episodes = rollout.alive.shape[1]
    plain, scores = torch.zeros(episodes, 3, 2).double(), torch.zeros(episodes, 3, 2).double()
    for episode, t in itertools.product(range(episodes), range(len(rollout.alive))):
        if rollout.alive[t, episode]:
            state, action = rollout.observations[t, episode, 0], rollout.actions[t, episode]
            scores[episode, state] += torch.eye(2).double()[action] - probs[state]
    for episode in range(episodes):
        column = rollout.rewards[:, episode]
        whole = sum(DISCOUNT**t * float(column[t]) for t in range(len(column)))
        plain[episode] = whole * scores[episode]
    return plain, scores


def test_averaging_over_steps_is_biased_and_over_episodes_is_not() -> None:
    law = process().law(LOGITS)
    options = {"baseline": "none", "discount_updates": True}
    wanted = exact_gradient()
    by_episodes = moments(law, frozen(made(**options)), samples=2).mean
    torch.testing.assert_close(by_episodes, wanted, rtol=1e-5, atol=1e-6)
    by_steps = moments(law, frozen(made(average="steps", **options)), samples=2).mean
    cosine = torch.cosine_similarity(by_steps.flatten(), wanted.flatten(), 0)
    assert 0.9 < cosine < 0.9999


class Reading(nn.Tanh):
    """A layer that looks at a number, which vmap does not allow."""

    def forward(self, x: Tensor) -> Tensor:
        assert math.isfinite(x.detach().sum().item())
        return super().forward(x)


@pytest.mark.parametrize("layer", [nn.Tanh, Reading])
def test_gradients_by_episodes_are_those_of_one_episode_at_a_time(layer: type[nn.Tanh]) -> None:
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), layer(), nn.Linear(5, 2)).double()
    alive = torch.tensor([[True, True, True], [True, False, True], [False, False, True]])
    observations = torch.randn(3, 3, 3, generator=generator, dtype=torch.float64)
    observations[~alive] = torch.nan  # what comes after an end may be anything
    none = torch.zeros_like(alive)
    rollout = Rollout(observations, observations[0], none.long(), none.double(), none, none, alive)
    cotangents = [torch.randn(6, 2, generator=generator).double() for _ in range(2)]
    got = per_episode_gradients(network, rollout, cotangents)
    for gradients, cotangent in zip(got, cotangents, strict=True):
        whole = torch.zeros(3, 3, 2).double()
        whole[alive] = cotangent
        for episode in range(3):
            lived = alive[:, episode]
            outputs = network(observations[lived, episode])
            wanted = torch.autograd.grad(outputs, list(network.parameters()), whole[lived, episode])
            for (name, _), one in zip(network.named_parameters(), wanted, strict=True):
                torch.testing.assert_close(gradients[name][episode], one)


@pytest.mark.parametrize("baseline", ["none", "moving-average", "per-weight"])
def test_the_noise_is_the_variance_of_the_gradient(baseline: str) -> None:
    """E[noise²] over all batches is the exact total variance, E[norm² − noise²] = |E g|²."""
    law = process().law(LOGITS)
    estimator = made(baseline=baseline, discount_updates=True)
    gradient_of(estimator, rollout_of(law.values[torch.tensor([1, 5])]))
    memory = {name: tensor.clone() for name, tensor in estimator.state_dict().items()}
    exact = moments(law, _with_memory(estimator), samples=2)
    facts = []

    def squares(pair: Any) -> Tensor:
        estimator.load_state_dict(memory)
        facts.append(estimator(rollout_of(pair)))
        return torch.tensor(
            [
                facts[-1].gradient_noise ** 2,
                facts[-1].gradient_norm ** 2 - facts[-1].gradient_noise ** 2,
            ]
        )

    got = moments(law, squares, samples=2).mean
    wanted = torch.stack([exact.covariance.trace(), exact.mean.square().sum()])
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-6)
    one = facts[7]
    assert one.signal_to_noise == pytest.approx(
        max(one.gradient_norm**2 - one.gradient_noise**2, 0) / one.gradient_noise**2
    )


def test_facts_of_the_gradient() -> None:
    estimator = made(baseline="none", average="steps")
    network = estimator._network
    with torch.no_grad():
        network.weight[0] = torch.tensor([9.0, 0.0])
    law = process().law(LOGITS)
    rollout = rollout_of(law.values[torch.tensor([0, 7])])
    facts = estimator(rollout)
    states, actions = (
        rollout.observations[rollout.alive].squeeze(-1),
        rollout.actions[rollout.alive],
    )
    probs = network.weight.detach().softmax(-1)[states]
    own = probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    assert facts.saturated == pytest.approx(float((1 - own < 0.01).double().mean()))
    credited = estimator.estimator(rollout)[0]
    weight = (1 - own) * credited.abs()
    wanted = float(weight.sum() ** 2 / (weight**2).sum())
    assert facts.effective_batch == pytest.approx(wanted, rel=1e-5)
    assert network.weight.grad is not None
    assert facts.gradient_norm == pytest.approx(float(network.weight.grad.norm()))
    assert facts.entropy == pytest.approx(float(-(probs * probs.log()).sum(-1).mean()))


def test_a_baseline_of_weights_is_refused_on_several_processes() -> None:
    model = Reinforce("CartPole-v1", environments=4)
    config = dataclasses.replace(model.config, baseline="per-weight")
    text = (
        "`baseline`: got per-weight, expected a baseline other than per-weight on several "
        "processes; "
        "its averages need the gradients of every episode in one place: use one process"
    )
    shards = model.shards
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        PolicyGradient(
            config, model.network, shards.policy, shards.observations, Processes(rank=0, size=2)
        )
