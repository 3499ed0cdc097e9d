"""Where stock torch.distributions is wrong or silent: stock's answer, and the exact one.

A stock answer that changes is a reason to update the table in the documentation.
"""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    GeneralizedPareto,
    Multinomial,
    OneHotCategorical,
    Poisson,
    VonMises,
    Wishart,
)

import eligibility as el
from eligibility.errors import InvalidValueError, ShapeError

INF = math.inf
DOUBLE = torch.float64


def stock_gradient(build: type[Distribution], name: str, given: Tensor, value: Tensor) -> Tensor:
    leaf = given.clone().requires_grad_()
    log_prob = build(**{name: leaf}, validate_args=False).log_prob(value)
    return torch.autograd.grad(log_prob.sum(), leaf)[0]


@pytest.mark.parametrize(
    ("given", "dtype", "stock", "exact"),
    [
        ([0.0, 0.3, 0.7], torch.float32, [0, 0, 0], [INF, -1, -1]),
        ([1.0, 0.0, 0.0], torch.float32, [0, 0, 0], [0, -1, -1]),
        ([0.001, 0.999], torch.bfloat16, [0, 0], [1000, -1]),  # 1/p − 1 at the stored p
    ],
)
def test_categorical_probs_at_the_clamp(
    given: list[float], dtype: torch.dtype, stock: list[float], exact: list[float]
) -> None:
    probs, action = torch.tensor(given, dtype=dtype), torch.tensor(0)
    assert stock_gradient(Categorical, "probs", probs, action).tolist() == stock
    assert el.eligibility(Categorical(probs), action)["probs"].tolist() == exact


def test_bernoulli_of_a_tiny_probability() -> None:
    probs, value = torch.tensor(1e-9), torch.tensor(1.0)
    assert stock_gradient(Bernoulli, "probs", probs, value) == 0
    assert el.eligibility(Bernoulli(probs), value)["probs"] == torch.tensor(1e9)


def test_binomial_that_never_succeeds() -> None:
    probs = torch.tensor(0.0, requires_grad=True)
    stock = torch.autograd.grad(Binomial(5, probs=probs).log_prob(torch.tensor(0.0)), probs)[0]
    assert stock == 0
    assert el.eligibility(Binomial(5, probs=torch.tensor(0.0)), torch.tensor(0.0))["probs"] == -5


def test_poisson_of_rate_zero() -> None:
    rate, value = torch.tensor(0.0), torch.tensor(0.0)
    assert stock_gradient(Poisson, "rate", rate, value).isnan()
    assert el.eligibility(Poisson(rate), value)["rate"] == -1


@pytest.mark.parametrize(
    ("logit", "dtype"), [(20.0, torch.float32), (9.0, torch.float16), (9.0, torch.bfloat16)]
)
def test_saturated_bernoulli_logit(logit: float, dtype: torch.dtype) -> None:
    logits, value = torch.tensor(logit, dtype=dtype), torch.tensor(1.0, dtype=dtype)
    assert stock_gradient(Bernoulli, "logits", logits, value) == 0
    exact = 1 / (1 + math.exp(logit))
    ours = el.eligibility(Bernoulli(logits=logits), value)["logits"]
    assert float(ours) == pytest.approx(exact, rel=torch.finfo(dtype).eps)


def test_von_mises_normaliser() -> None:
    kappa, value = torch.tensor(3.76, dtype=DOUBLE), torch.tensor(0.0, dtype=DOUBLE)
    leaf = kappa.clone().requires_grad_()
    dist = VonMises(torch.zeros((), dtype=DOUBLE), leaf)
    stock = float(torch.autograd.grad(dist.log_prob(value), leaf)[0])
    k = mp.mpf(float(kappa))
    exact = 1 - float(mp.besseli(1, k) / mp.besseli(0, k))
    ours = el.eligibility(VonMises(torch.zeros((), dtype=DOUBLE), kappa), value)["concentration"]
    assert abs(stock - exact) > 1e-7
    assert float(ours) == pytest.approx(exact, rel=4e-16)


@pytest.mark.parametrize(
    ("dtype", "gap"),
    [(torch.float16, 12.0), (torch.bfloat16, 8.0), (torch.float32, 20.0), (torch.float64, 40.0)],
)
def test_saturated_softmax_given_as_probs(dtype: torch.dtype, gap: float) -> None:
    """The clamp cuts the gradient to exactly 0; the rule still knows what the probs know."""
    probs = torch.softmax(torch.tensor([gap, 0.0], dtype=dtype), -1)
    action = torch.tensor(1)
    stock = stock_gradient(Categorical, "probs", probs, action)
    assert stock.tolist() == [0, 0]
    ours = el.eligibility(Categorical(probs), action, wrt="logits")["logits"]
    stored = Categorical(probs).probs.double()
    share = float(stored[0] / stored.sum())
    assert ours.tolist() == pytest.approx([-share, share], rel=2 * torch.finfo(dtype).eps)


def test_action_that_would_be_broadcast() -> None:
    dist = Categorical(torch.ones(4, 1, 3))  # a policy whose head kept an axis
    action = torch.zeros(4, dtype=torch.long)
    assert dist.log_prob(action).shape == (4, 4)
    with pytest.raises(ShapeError):
        el.eligibility(dist, action)


def test_one_hot_distribution_given_indices() -> None:
    dist = OneHotCategorical(torch.ones(3, 3), validate_args=False)
    indices = torch.tensor([0, 1, 2])
    assert dist.log_prob(indices).shape == (3,)
    with pytest.raises(InvalidValueError, match="sum to total_count = 1"):
        el.eligibility(dist, indices)


def test_counts_of_another_total() -> None:
    dist = Multinomial(5, torch.ones(3))
    counts = torch.tensor([1.0, 1.0, 1.0])
    assert dist.log_prob(counts).isfinite()
    with pytest.raises(InvalidValueError, match="sum to total_count = 5"):
        el.eligibility(dist, counts)


def test_wishart_factor_above_its_diagonal() -> None:
    """Stock gives a slope to an entry that the density does not read."""
    factor = torch.tensor([[1.0, 0.0], [0.3, 1.2]], dtype=DOUBLE, requires_grad=True)
    value = torch.tensor([[2.0, 0.3], [0.3, 1.2]], dtype=DOUBLE)
    df = torch.tensor(4.0, dtype=DOUBLE)
    log_prob = Wishart(df, scale_tril=factor).log_prob(value)
    assert torch.autograd.grad(log_prob, factor)[0][0, 1].abs() > 0.4
    ours = el.eligibility(Wishart(df, scale_tril=factor.detach()), value)["scale_tril"]
    assert ours[0, 1] == 0


def test_generalized_pareto_in_double_precision() -> None:
    one, value = torch.ones((), dtype=DOUBLE), torch.tensor(1.5, dtype=DOUBLE)
    dist = GeneralizedPareto(torch.zeros((), dtype=DOUBLE), one, torch.zeros((), dtype=DOUBLE))
    with pytest.raises(RuntimeError, match="Double did not match Float"):
        dist.log_prob(value)
    ours = el.eligibility(dist, value, wrt="concentration")["concentration"]
    assert ours == 1.5**2 / 2 - 1.5  # the exponential limit, not torch's 0
