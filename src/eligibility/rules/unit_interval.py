"""Numbers in [0, 1]: Beta, Kumaraswamy, ContinuousBernoulli."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Beta, ContinuousBernoulli, Kumaraswamy

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import bose_mean, digamma_gap, langevin_half, logit

_BETA = "exponential family: ln y − E[ln y]"
_BETA_SYMBOLS = {"y": "value", "α": "concentration1", "β": "concentration0"}
_KUMARASWAMY = {"y": "value", "a": "concentration1", "b": "concentration0"}
_CONTINUOUS = "Loaiza-Ganem & Cunningham 2019; exponential family: y − E[y]"


_beta = partial(register_eligibility, Beta, reference=_BETA, symbols=_BETA_SYMBOLS)
_kumaraswamy = partial(
    register_eligibility,
    Kumaraswamy,
    reference="derived from a b y^(a−1) (1 − yᵃ)^(b−1)",
    symbols=_KUMARASWAMY,
)
_continuous_bernoulli = partial(register_eligibility, ContinuousBernoulli, reference=_CONTINUOUS)


@_beta(
    "concentration1",
    name="beta, concentration of 1",
    equation="ln y − ψ(α) + ψ(α + β)",
    terms=lambda value, concentration1, concentration0: {
        "ln y": value.log(),
        "−ψ(α)": -torch.digamma(concentration1),
        "ψ(α + β)": torch.digamma(concentration1 + concentration0),
    },
)
def beta_concentration1(value: Tensor, concentration1: Tensor, concentration0: Tensor) -> Tensor:
    """``ln y − ψ(α) + ψ(α + β)``."""
    return log_less_mean(value, concentration1, concentration0)


@_beta(
    "concentration0",
    name="beta, concentration of 0",
    equation="ln(1 − y) − ψ(β) + ψ(α + β)",
    terms=lambda value, concentration1, concentration0: {
        "ln(1 − y)": torch.log1p(-value),
        "−ψ(β)": -torch.digamma(concentration0),
        "ψ(α + β)": torch.digamma(concentration1 + concentration0),
    },
)
def beta_concentration0(value: Tensor, concentration1: Tensor, concentration0: Tensor) -> Tensor:
    """``ln(1 − y) − ψ(β) + ψ(α + β)``; 1 − y is rounded only where its logarithm is large."""
    small = torch.log1p(-value) + torch.log1p(concentration1 / concentration0)
    small = small + digamma_gap(concentration0, concentration1)
    return torch.where(value < 0.5, small, log_less_mean(1 - value, concentration0, concentration1))


def log_less_mean(value: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """``ln y − ψ(a) + ψ(a + b)`` as ``ln(y (a + b)/a) + [gap of digammas]``."""
    near_one = value.log() + torch.log1p(others / own)
    logarithm = torch.where(value > 0.5, near_one, (value * (1 + others / own)).log())
    return logarithm + digamma_gap(own, others)


@_kumaraswamy(
    "concentration1",
    name="Kumaraswamy, concentration of 1",
    equation="1/a + ln y − (b − 1) yᵃ ln y/(1 − yᵃ)",
    terms=lambda value, concentration1, concentration0: {
        "1/a": 1 / concentration1,
        "ln y": value.log(),
        "−(b − 1) yᵃ ln y/(1 − yᵃ)": (1 - concentration0)
        * value.log()
        / torch.expm1(-concentration1 * value.log()),
    },
)
def kumaraswamy_concentration1(
    value: Tensor, concentration1: Tensor, concentration0: Tensor
) -> Tensor:
    """With v = −a ln y: ``(1/a)[b v/(e^v − 1) − (v/(1 − e^−v) − 1)]``."""
    v = -concentration1 * value.log()
    inside = torch.where((v == 0) | v.isinf(), 1.0, v)
    weight = torch.where(v == 0, 1.0, inside / torch.expm1(inside))
    weight = torch.where(v.isinf(), 0.0, weight)
    return (concentration0 * weight - bose_mean(v)) / concentration1


@_kumaraswamy(
    "concentration0",
    name="Kumaraswamy, concentration of 0",
    equation="1/b + ln(1 − yᵃ)",
    terms=lambda value, concentration1, concentration0: {
        "1/b": 1 / concentration0,
        "ln(1 − yᵃ)": _log1m_power(value, concentration1),
    },
)
def kumaraswamy_concentration0(
    value: Tensor, concentration1: Tensor, concentration0: Tensor
) -> Tensor:
    """``1/b + ln(1 − yᵃ)``."""
    return 1 / concentration0 + _log1m_power(value, concentration1)


def _log1m_power(value: Tensor, exponent: Tensor) -> Tensor:
    """``ln(1 − yᵃ)``; through ``1 − yᵃ`` where that is small, through yᵃ where that is."""
    v = exponent * value.log()
    return torch.where(v > -0.7, (-torch.expm1(v)).log(), torch.log1p(-torch.exp(v)))


@_continuous_bernoulli(
    "logits",
    name="continuous Bernoulli, log-odds",
    equation="y − (1/(1 − e^−l) − 1/l)",
    symbols={"y": "value", "l": "logits"},
    terms=lambda value, logits: {
        "y": value + torch.zeros_like(logits),
        "−E[y]": -0.5 - langevin_half(logits),
    },
)
def continuous_bernoulli_logits(value: Tensor, logits: Tensor) -> Tensor:
    """``y − E[y]``, measured from the end of [0, 1] that the mean is near, or from the middle."""
    middle = (value - 0.5) - langevin_half(logits)
    size = torch.where(logits.abs() < 3, 3.0, logits.abs())
    distance = 1 / size - 1 / torch.expm1(size)  # of the mean from its end
    ends = torch.where(logits > 0, distance - (1 - value), value - distance)
    return torch.where(logits.abs() < 3, middle, ends)


@_continuous_bernoulli(
    "logits",
    name="continuous Bernoulli, log-odds from the parameter p",
    equation="y − E[y], l = ln(p/(1 − p))",
    symbols={"y": "value", "p": "probs"},
)
def continuous_bernoulli_logits_from_probs(value: Tensor, probs: Tensor) -> Tensor:
    """The same at l = logit p."""
    return continuous_bernoulli_logits(value, logit(probs))


@_continuous_bernoulli(
    "probs",
    name="continuous Bernoulli, parameter p",
    equation="(y − E[y])/(p (1 − p))",
    symbols={"y": "value", "p": "probs"},
    terms=lambda value, probs: {
        "y/(p (1 − p))": value / (probs * (1 - probs)),
        "−E[y]/(p (1 − p))": (-0.5 - langevin_half(logit(probs))) / (probs * (1 - probs)),
    },
)
def continuous_bernoulli_probs(value: Tensor, probs: Tensor) -> Tensor:
    """The eligibility of the log-odds over p (1 − p)."""
    return continuous_bernoulli_logits_from_probs(value, probs) / probs / (1 - probs)


@_continuous_bernoulli(
    "probs",
    name="continuous Bernoulli, parameter p from the log-odds",
    equation="(y − E[y])/(p (1 − p)), p = σ(l)",
    symbols={"y": "value", "l": "logits"},
)
def continuous_bernoulli_probs_from_logits(value: Tensor, logits: Tensor) -> Tensor:
    """``(y − E[y])(1 + e^l)(1 + e^−l)``."""
    odds = (1 + torch.exp(logits)) * (1 + torch.exp(-logits))
    return continuous_bernoulli_logits(value, logits) * odds
