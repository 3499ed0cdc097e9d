"""The natural gradient against the dense Fisher information, and against its own promise."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, kl_divergence

from eligibility.train import learner
from eligibility.train.learner import Reinforce
from eligibility.train.natural import (
    FisherInformation,
    conjugate_gradient,
    natural_step,
    share_of_signal,
)
from eligibility.train.policies import Policy, policy_for

ONE = torch.zeros(5, dtype=torch.int64)  # the five observations are those of one episode


def tiny(outputs: int) -> tuple[nn.Module, Tensor]:
    """A network of 2 inputs and 3 hidden units, in float64, and 5 observations."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs)).double()
    return network, torch.randn(5, 2, dtype=torch.float64)


def dense(network: nn.Module, policy: Policy, observations: Tensor) -> Tensor:
    """F as a matrix: E over the states and all actions of e eᵀ, e by autograd of log π."""
    parameters = list(network.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    total = torch.zeros(size, size, dtype=torch.float64)
    for observation in observations:
        outputs = network(observation.unsqueeze(0))
        for action in range(outputs.shape[-1]):
            log_prob = Categorical(logits=outputs[0]).log_prob(torch.tensor(action))
            gradients = torch.autograd.grad(log_prob, parameters, retain_graph=True)
            e = torch.cat([gradient.flatten() for gradient in gradients])
            total += log_prob.exp().detach() * torch.outer(e, e) / len(observations)
    return total


def test_products_are_those_with_the_dense_matrix() -> None:
    network, observations = tiny(3)
    policy = policy_for(spaces.Discrete(3))
    matrix = dense(network, policy, observations)
    fisher = FisherInformation(network, policy, observations, ONE)
    got = torch.stack([fisher(row) for row in torch.eye(len(matrix), dtype=torch.float64)])
    torch.testing.assert_close(got, matrix, rtol=1e-10, atol=1e-12)


def test_products_share_what_the_policy_has_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    network, observations = tiny(3)
    softmax, calls = torch.softmax, list[Tensor]()
    monkeypatch.setattr(torch, "softmax", lambda z, axis: calls.append(z) or softmax(z, axis))
    fisher = FisherInformation(network, policy_for(spaces.Discrete(3)), observations, ONE)
    for row in torch.eye(21, dtype=torch.float64):
        fisher(row)
    assert len(calls) == 1


def test_conjugate_gradients_solve_the_damped_system() -> None:
    network, observations = tiny(3)
    policy = policy_for(spaces.Discrete(3))
    matrix = dense(network, policy, observations)
    matrix += 0.1 * torch.eye(len(matrix), dtype=torch.float64)
    target = torch.randn(len(matrix), dtype=torch.float64)
    got = conjugate_gradient(lambda v: matrix @ v, target, iterations=200, tolerance=1e-12)
    torch.testing.assert_close(got, torch.linalg.solve(matrix, target), rtol=1e-8, atol=1e-9)


def test_the_step_is_the_dense_solution_of_the_promised_length() -> None:
    network, observations = tiny(3)
    policy = policy_for(spaces.Discrete(3))
    matrix = dense(network, policy, observations)
    before = torch.cat([p.detach().flatten() for p in network.parameters()])
    gradient = torch.randn(len(matrix), dtype=torch.float64)
    parts = gradient.split([p.numel() for p in network.parameters()])
    for parameter, part in zip(network.parameters(), parts, strict=True):
        parameter.grad = part.view_as(parameter).clone()
    natural_step(
        network, policy, observations, ONE,
        divergence=1e-4, damping=1e-2, iterations=200, tolerance=1e-12,
    )  # fmt: skip
    moved = torch.cat([p.detach().flatten() for p in network.parameters()]) - before
    damped = matrix + 1e-2 * torch.eye(len(matrix), dtype=torch.float64)
    wanted = torch.linalg.solve(damped, gradient)
    torch.testing.assert_close(moved / moved.norm(), -wanted / wanted.norm(), rtol=1e-6, atol=1e-8)
    assert float(moved @ damped @ moved / 2) == pytest.approx(1e-4, rel=1e-6)


def test_a_gradient_whose_squares_are_zero_moves_the_weights_all_the_same() -> None:
    """Only the direction counts; a policy that is all but certain has a gradient this small."""
    policy, moved = policy_for(spaces.Discrete(3)), []
    for scale in (1.0, 2.0**-90):
        network, observations = (made.float() for made in tiny(3))
        for number, parameter in enumerate(network.parameters()):
            parameter.grad = torch.full_like(parameter, (number - 1.5) * scale)
        natural_step(network, policy, observations, ONE, divergence=1e-2, damping=1e-2)
        moved.append([parameter.detach() for parameter in network.parameters()])
    assert all(map(torch.equal, *moved))


@pytest.mark.parametrize("divergence", [1e-3, 1e-4])
def test_the_policy_moves_by_at_most_the_divergence(divergence: float) -> None:
    model = Reinforce("CartPole-v1", natural_gradient=divergence, environments=16)
    networks, seen = [copy.deepcopy(model.network)], []
    collect = model.shards.collect

    def remember(*arguments: object) -> object:
        rollout = collect(*arguments)
        seen.append(rollout.observations[rollout.alive].clone())
        return rollout

    model.shards.collect = remember
    model.learn(total_steps=2000, callback=lambda _: networks.append(copy.deepcopy(model.network)))
    for (old, new), states in zip(itertools.pairwise(networks), seen, strict=True):
        with torch.no_grad():
            policies = [Categorical(logits=network(states)) for network in (old, new)]
        moved = float(kl_divergence(*policies).mean())
        assert 0 < moved < 1.2 * divergence  # to second order, at a finite step


def test_the_line_search_keeps_a_policy_that_is_all_but_certain_within_reach() -> None:
    """At the Fisher information of saturated logits a step is far too long."""
    policy, moved = policy_for(spaces.Discrete(3)), []
    for line_search in (False, True):
        network, observations = tiny(3)
        with torch.no_grad():
            network[2].bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
        old = Categorical(logits=network(observations).detach())
        network[2].bias.grad = torch.tensor([1.0, -1.0, 0.0]).double()  # away from the first
        natural_step(
            network, policy, observations, ONE,
            divergence=0.03, damping=1e-4, line_search=line_search,
        )  # fmt: skip
        new = Categorical(logits=network(observations).detach())
        moved.append(float(kl_divergence(old, new).mean()))
    assert moved[0] > 20 * 0.03
    assert 0 < moved[1] <= 1.5 * 0.03


def test_a_gradient_of_zero_moves_nothing() -> None:
    network, observations = tiny(3)
    before = [parameter.clone() for parameter in network.parameters()]
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    policy = policy_for(spaces.Discrete(3))
    natural_step(network, policy, observations, ONE, divergence=1, damping=1)
    assert all(map(torch.equal, before, network.parameters()))


def test_the_share_of_signal_gives_the_multiple_nearest_to_the_gradient() -> None:
    """By enumeration: g ± each column of noise, equally likely; a grid of multiples beside it."""
    gradient = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    errors = torch.tensor([[1.5, 0.0, 1.0], [0.2, 2.0, 0.0]], dtype=torch.float64)
    outcomes = gradient + torch.cat([errors, -errors])
    norm = float(outcomes.square().sum(-1).mean()) ** 0.5
    noise = float((outcomes - gradient).square().sum(-1).mean()) ** 0.5

    def distance(multiple: float) -> float:
        return float((multiple * outcomes - gradient).square().sum(-1).mean())

    share = share_of_signal(norm, noise)
    assert 0 < share < 1
    assert all(distance(share) < distance(share + shift) for shift in (-1e-3, 1e-3))


@pytest.mark.parametrize(
    ("norm", "noise", "share"), [(2, 0, 1), (2, 1, 0.75), (1, 2, 0), (1, math.nan, 1), (0, 0, 1)]
)
def test_a_gradient_without_signal_moves_nothing(norm: float, noise: float, share: float) -> None:
    assert share_of_signal(norm, noise) == share


def test_a_step_is_as_much_shorter_as_the_gradient_is_noisy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, facts = [], []
    monkeypatch.setattr(
        learner, "natural_step", lambda *_, divergence, **__: taken.append(divergence)
    )
    model = Reinforce(
        "CartPole-v1", natural_gradient=0.01, shorten_noisy_steps=True, environments=4
    )
    model.learn(total_steps=500, callback=facts.append)
    ratios = [fact.signal_to_noise for fact in facts]
    wanted = [0.01 * (ratio / (1 + ratio)) ** 2 for ratio in ratios]
    assert 0 < max(wanted) < 0.01
    assert taken == pytest.approx(wanted, rel=1e-6)
    taken.clear()
    Reinforce("CartPole-v1", natural_gradient=0.01, environments=4).learn(total_steps=500)
    assert {*taken} == {0.01}


def test_it_learns() -> None:
    model = Reinforce("CartPole-v1", natural_gradient=0.01, seed=1).learn(total_steps=60_000)
    assert model.progress.mean_return > 100
