"""The units of Williams 1992, and policies that return a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, Normal

import eligibility as el
from eligibility import per_sample_eligibilities

N = 5


def test_bernoulli_logistic_unit_is_equation_7() -> None:
    """e_ij = (y_i − p_i) x_j, for a layer of three units."""
    units = nn.Linear(4, 3).double()
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.randint(2, (N, 3), generator=torch.Generator().manual_seed(2)).double()
    got = per_sample_eligibilities(units, x, y, distribution=lambda z: Bernoulli(logits=z))
    error = y - torch.sigmoid(units(x)).detach()
    torch.testing.assert_close(got["weight"], error[:, :, None] * x[:, None, :])
    torch.testing.assert_close(got["bias"], error)


class GaussianUnit(nn.Module):
    """Williams' Gaussian unit: μ and σ are its adaptable parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
        self.spread = nn.Parameter(torch.tensor(0.8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Distribution:
        return Normal(self.mean.expand(len(x)), self.spread.expand(len(x)))


def test_gaussian_unit_is_equation_12() -> None:
    """e_μ = (y − μ)/σ², e_σ = ((y − μ)² − σ²)/σ³; a module that returns a distribution."""
    y = torch.linspace(-2, 3, N, dtype=torch.float64)
    got = per_sample_eligibilities(GaussianUnit(), torch.zeros(N, 1), y)
    assert set(got.routes.values()) == {"torch.func"}
    torch.testing.assert_close(got["mean"], (y - 0.3) / 0.64)
    torch.testing.assert_close(got["spread"], ((y - 0.3) ** 2 - 0.64) / 0.512)


class GaussianPolicy(nn.Module):
    """The usual continuous policy: a network for the mean, free log standard deviations."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
        self.log_spread = nn.Parameter(torch.tensor([0.1, -0.4]))

    def forward(self, x: Tensor) -> Distribution:
        return Independent(Normal(self.body(x), self.log_spread.exp()), 1)


def test_gaussian_policy_equals_the_loop_and_default_validation_comes_back(
    by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy().double()
    x, y = torch.randn(N, 6).double(), torch.randn(N, 2).double()
    got = per_sample_eligibilities(policy, x, y)
    assert got.routes["log_spread"] == "torch.func"
    assert got.routes["body.0.weight"] == "closed form"
    assert_same(got.materialize(), by_backward(policy, x, y, lambda policy: policy))
    assert Distribution._validate_args is True


class MaskedPolicy(nn.Module):
    """Returns a drop-in distribution with a mask, and owns a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.temperature = nn.Linear(6, 4), nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Distribution:
        legal = torch.tensor([True, True, False, True])
        return el.Categorical(logits=self.body(x) / self.temperature, mask=legal)


def test_masked_policy_equals_the_loop(
    by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    policy, x = MaskedPolicy().double(), torch.randn(N, 6).double()
    action = policy(x).sample()
    got = per_sample_eligibilities(policy, x, action)
    assert got.routes["temperature"] == "torch.func"
    assert_same(got.materialize(), by_backward(policy, x, action, lambda policy: policy))
