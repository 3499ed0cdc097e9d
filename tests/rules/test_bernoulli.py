"""Bernoulli and Binomial: Williams' own unit, at the edges where stock code gives 0 or NaN."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Bernoulli, Binomial

import eligibility as el

HALF_PRECISION = [torch.float16, torch.bfloat16]


def test_probability_far_below_the_clamp_of_torch() -> None:
    dist = Bernoulli(probs=torch.tensor(1e-9))
    assert el.eligibility(dist, torch.tensor(1.0))["probs"] == torch.tensor(1e9)


@pytest.mark.parametrize(("p", "y", "expected"), [(0, 0, -1), (1, 1, 1), (0, 1, math.inf)])
def test_certain_coins(p: float, y: float, expected: float) -> None:
    dist = Bernoulli(probs=torch.tensor(float(p)))
    assert el.eligibility(dist, torch.tensor(float(y)))["probs"] == expected


def test_saturated_logit_keeps_its_eligibility() -> None:
    eligibility = el.eligibility(Bernoulli(logits=torch.tensor(20.0)), torch.tensor(1.0))["logits"]
    assert float(eligibility) == pytest.approx(1 / (1 + math.exp(20)), rel=1e-6)


@pytest.mark.parametrize("dtype", HALF_PRECISION, ids=str)
def test_saturated_logit_in_half_precision(dtype: torch.dtype) -> None:
    dist = Bernoulli(logits=torch.tensor(9.0, dtype=dtype))
    eligibility = el.eligibility(dist, torch.tensor(1.0, dtype=dtype))["logits"]
    assert eligibility.dtype == dtype
    assert eligibility == torch.tensor(1 / (1 + math.exp(9)), dtype=dtype)


@given(p=st.floats(1e-6, 1 - 1e-6), y=st.sampled_from([0.0, 1.0]))
def test_logits_are_probs_chained_through_the_logistic(p: float, y: float) -> None:
    """∂p/∂l = p(1 − p), Williams 1992, eq. (7)."""
    dist = Bernoulli(probs=torch.tensor(p, dtype=torch.float64))
    eligibility = el.eligibility(dist, torch.tensor(y), wrt=("probs", "logits"))
    assert float(eligibility["logits"]) == pytest.approx(
        float(eligibility["probs"]) * p * (1 - p), rel=1e-12
    )


@pytest.mark.parametrize(("p", "y", "expected"), [(0, 0, -5), (1, 5, 5), (1, 4, -math.inf)])
def test_certain_binomial(p: float, y: float, expected: float) -> None:
    dist = Binomial(5, probs=torch.tensor(float(p)))
    assert el.eligibility(dist, torch.tensor(float(y)))["probs"] == expected


def test_binomial_of_one_coin_is_bernoulli() -> None:
    p, y = torch.rand(20, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    one = el.eligibility(Binomial(1, probs=p), y.float(), wrt=("probs", "logits"))
    coin = el.eligibility(Bernoulli(probs=p), y.float(), wrt=("probs", "logits"))
    torch.testing.assert_close(one, coin)


def test_infinite_log_odds() -> None:
    logits = torch.tensor([-math.inf, math.inf])
    value = torch.tensor([0.0, 5.0])
    eligibility = el.eligibility(
        Binomial(5, logits=logits, validate_args=False), value, wrt=("probs", "logits")
    )
    assert eligibility["logits"].tolist() == [0.0, 0.0]
    assert eligibility["probs"].tolist() == [-5.0, 5.0]
