"""Every policy's expected gradient is the gradient of the expected return, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from eligibility.spaces.counts import Counts
from eligibility.train.config import Config
from eligibility.train.gradient import PolicyGradient
from eligibility.train.network import Network
from eligibility.train.observations import observations_for
from eligibility.train.policies import Policy, policy_for
from eligibility.train.rollout import Rollout

# Spaces with four actions each, as they are kept.
FOUR = {
    "Discrete": (spaces.Discrete(4), [0, 1, 2, 3]),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 2]), [[0, 0], [0, 1], [1, 0], [1, 1]]),
    "MultiBinary": (spaces.MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
    "Counts": (Counts(3, 2), [[0, 3], [1, 2], [2, 1], [3, 0]]),
    "Tuple": (
        spaces.Tuple([spaces.Discrete(2), Counts(1, 2)]),
        [[0, 0, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]],
    ),
}


def log_probs(name: str, z: Tensor) -> Tensor:
    """ln π of the four actions, ``[N, 4]``, written out without the policy."""
    if name == "Discrete":
        return z.log_softmax(-1)
    if name in ("MultiDiscrete", "Tuple"):
        first, second = z[:, :2].log_softmax(-1), z[:, 2:].log_softmax(-1)
        if name == "Tuple":
            second = second.flip(-1)  # counts 0, 1 are the second bin
        return (first.unsqueeze(2) + second.unsqueeze(1)).reshape(len(z), 4)
    if name == "MultiBinary":
        one, zero = torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)
        both = torch.stack([zero, one], -1)  # [N, bit, value]
        return (both[:, 0].unsqueeze(2) + both[:, 1].unsqueeze(1)).reshape(len(z), 4)
    p = z.log_softmax(-1)
    choices = torch.tensor([1.0, 3, 3, 1]).log()
    units = torch.arange(4.0)
    return choices + units * p[:, :1] + (3 - units) * p[:, 1:]


def prepare(space: spaces.Space, squash: bool, **options: Any) -> tuple[Policy, PolicyGradient]:
    """The gradient of a linear policy over five features, in float64, with drawn weights."""
    policy = policy_for(space, squash)
    observations = observations_for(spaces.Box(-1, 1, (5,)))
    network = Network(observations, (), policy, torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    config = Config("any", normalize=False, discount=1.0, average="episodes", **options)
    return policy, PolicyGradient(config, network, policy, observations)


@pytest.mark.parametrize("name", FOUR)
def test_one_episode_of_two_steps(name: str) -> None:
    """All 16 outcomes, each with its probability; the second state is the first action."""
    space, kept = FOUR[name]
    policy, gradient = prepare(space, False, baseline="none")
    network = gradient._network
    actions = torch.tensor(kept, dtype=policy.action_dtype)
    rewards = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    first = torch.tensor([[0.0, 0, 0, 0, 1]], dtype=torch.float64)
    states = torch.eye(4, 5, dtype=torch.float64)
    at_start = log_probs(name, network(first))[0].exp()  # [4]
    later = log_probs(name, network(states)).exp()  # [4, 4]
    chances = at_start.unsqueeze(1) * later
    value = (chances * rewards).sum() + at_start @ rewards.sum(1)

    def outcomes() -> Iterator[tuple[Tensor, Rollout]]:
        alive, ends = torch.ones(2, 1, dtype=torch.bool), torch.tensor([[False], [True]])
        for one, two in itertools.product(range(4), repeat=2):
            seen = torch.stack([first, states[[one]]])
            paid = torch.stack([rewards.sum(1)[[one]], rewards[one, [two]]])
            taken = actions[[one, two]].unsqueeze(1)
            yield chances[one, two], Rollout(seen, first, taken, paid, ends, ~alive, alive)

    check(gradient, value, outcomes())


@pytest.mark.parametrize("name", FOUR)
def test_two_episodes_compared_with_each_other(name: str) -> None:
    """All 16 outcomes of one step each, with the baseline leave-one-out."""
    space, kept = FOUR[name]
    policy, gradient = prepare(space, False, baseline="leave-one-out")
    actions = torch.tensor(kept, dtype=policy.action_dtype)
    rewards = torch.tensor([1.0, -2, 0.5, 3], dtype=torch.float64)
    seen = torch.tensor([[[0.3, -1, 0.5, 2, 1]] * 2], dtype=torch.float64)
    chances = log_probs(name, gradient._network(seen[0, :1]))[0].exp()

    def outcomes() -> Iterator[tuple[Tensor, Rollout]]:
        alive = torch.ones(1, 2, dtype=torch.bool)
        for pair in itertools.product(range(4), repeat=2):
            taken, paid = actions[list(pair)].unsqueeze(0), rewards[list(pair)].unsqueeze(0)
            chance = chances[list(pair)].prod()
            yield chance, Rollout(seen, seen[0], taken, paid, alive, ~alive, alive)

    check(gradient, chances @ rewards, outcomes())


@pytest.mark.parametrize("squash", [False, True])
def test_numbers_by_quadrature(squash: bool) -> None:
    """The score's gradient of a smooth pay equals that through ``u = μ + σ z``."""
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (1,)))
    gradient = prepare(space, squash, baseline="none")[1]
    network = gradient._network
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    z = torch.from_numpy(nodes)
    weight = torch.from_numpy(weights / weights.sum())
    seen = torch.tensor([[0.3, -1, 0.5, 2, 1]], dtype=torch.float64)
    # A function of the number is one of tanh of it; smooth ones leave the quadrature no error.
    pay = torch.sin if squash else lambda u: u - u**2

    outputs = network(seen)[0]  # two logits, μ, ln σ
    probs, numbers = outputs[:2].softmax(-1), outputs[2] + outputs[3].exp() * z
    value = probs @ torch.stack([weight @ pay(numbers), 2 * weight @ pay(numbers) - 1])

    def outcomes() -> Iterator[tuple[Tensor, Rollout]]:
        alive = torch.ones(1, 1, dtype=torch.bool)
        for index, place in itertools.product(range(2), range(len(z))):
            number = numbers[place].detach()
            # Kept in float64 here: float32 would move the nodes.
            taken = torch.tensor([[[index, number]]], dtype=torch.float64)
            paid = (pay(number) if index == 0 else 2 * pay(number) - 1).reshape(1, 1)
            rollout = Rollout(seen.unsqueeze(0), seen, taken, paid, alive, ~alive, alive)
            yield probs[index] * weight[place], rollout

    check(gradient, value, outcomes())


def check(
    gradient: PolicyGradient, value: Tensor, outcomes: Iterator[tuple[Tensor, Rollout]]
) -> None:
    """The mean of the gradients over the outcomes is that of −value."""
    parameters = list(gradient._network.parameters())
    wanted = torch.autograd.grad(-value, parameters, retain_graph=True)
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    total_chance = 0.0
    for chance, rollout in outcomes:
        gradient(rollout)
        total_chance += float(chance.detach())
        for total, parameter in zip(expected, parameters, strict=True):
            total += chance.detach() * parameter.grad
    assert total_chance == pytest.approx(1)
    for got, exact in zip(expected, wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-5, atol=1e-6)
