"""Counts without an upper limit: Poisson, Geometric, NegativeBinomial."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Geometric, NegativeBinomial, Poisson

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import digamma_difference, weigh_inverse_odds, weigh_odds

_PROPOSITION_1 = "Williams 1992, Proposition 1"
_GEOMETRIC = "derived from p (1 − p)^y"
_NEGATIVE_BINOMIAL = "derived from Γ(y + r)/(Γ(r) y!) p^y (1 − p)^r"
_PROBS = {"y": "value", "p": "probs"}
_LOGITS = {"y": "value", "l": "logits"}
_geometric = partial(register_eligibility, Geometric, reference=_GEOMETRIC)
_register_total_count = partial(
    register_eligibility,
    NegativeBinomial,
    "total_count",
    name="negative binomial, number of failures",
    reference=_NEGATIVE_BINOMIAL,
)
_negative_binomial = partial(register_eligibility, NegativeBinomial, reference=_NEGATIVE_BINOMIAL)


@register_eligibility(
    Poisson,
    "rate",
    name="Poisson, rate",
    equation="y/λ − 1",
    reference=_PROPOSITION_1,
    symbols={"y": "value", "λ": "rate"},
    terms=lambda value, rate: {"y/λ": _ratio(value, rate), "−1": -torch.ones_like(rate)},
)
def poisson_rate(value: Tensor, rate: Tensor) -> Tensor:
    """``y/λ − 1 = (y − λ)/λ``; −1 for y = 0, also at λ = 0.

    Example:
        >>> poisson_rate(torch.tensor([3.0, 0.0]), torch.tensor([2.0, 0.0]))
        tensor([ 0.5000, -1.0000])
    """
    return torch.where(value == 0, -torch.ones_like(rate), (value - rate) / rate)


@_geometric(
    "probs",
    name="geometric, probability",
    equation="1/p − y/(1 − p)",
    symbols=_PROBS,
    terms=lambda value, probs: {"1/p": 1 / probs, "−y/(1 − p)": -_ratio(value, 1 - probs)},
)
def geometric_probs(value: Tensor, probs: Tensor) -> Tensor:
    """``1/p − y/(1 − p)`` for y failures before the first success."""
    return 1 / probs - _ratio(value, 1 - probs)


@_geometric(
    "probs",
    name="geometric, probability from the log-odds",
    equation="1/p − y/(1 − p), p = σ(l)",
    symbols=_LOGITS,
)
def geometric_probs_from_logits(value: Tensor, logits: Tensor) -> Tensor:
    """``1 + e^−l − y (1 + e^l)``."""
    return weigh_inverse_odds(torch.ones_like(logits), value, logits)


@_geometric(
    "logits",
    name="geometric, log-odds",
    equation="1 − (1 + y) σ(l)",
    symbols=_LOGITS,
    terms=lambda value, logits: {
        "1": torch.ones_like(logits),
        "−(1 + y) σ(l)": -(1 + value) * torch.sigmoid(logits),
    },
)
def geometric_logits(value: Tensor, logits: Tensor) -> Tensor:
    """``1 − (1 + y) σ(l) = σ(−l) − y σ(l)``."""
    return weigh_odds(torch.ones_like(logits), value, logits)


@_geometric(
    "logits",
    name="geometric, log-odds from the probability",
    equation="1 − (1 + y) p",
    symbols=_PROBS,
)
def geometric_logits_from_probs(value: Tensor, probs: Tensor) -> Tensor:
    """``1 − (1 + y) p = (1 − p) − y p``."""
    return (1 - probs) - value * probs


def _terms_count(value: Tensor, total_count: Tensor, logits: Tensor) -> dict[str, Tensor]:
    return {
        "ψ(y + r) − ψ(r)": digamma_difference(total_count, value),
        "ln(1 − p)": torch.nn.functional.logsigmoid(-logits),
    }


@_register_total_count(
    equation="ψ(y + r) − ψ(r) + ln(1 − p)",
    symbols={**_PROBS, "r": "total_count"},
    terms=lambda value, total_count, probs: _terms_count(value, total_count, torch.logit(probs)),
)
def negative_binomial_total_count(value: Tensor, total_count: Tensor, probs: Tensor) -> Tensor:
    """``ψ(y + r) − ψ(r) + ln(1 − p)``; the difference of digammas as a sum of positive terms."""
    return digamma_difference(total_count, value) + torch.log1p(-probs)


@_register_total_count(
    equation="ψ(y + r) − ψ(r) + ln(1 − p), p = σ(l)",
    symbols={**_LOGITS, "r": "total_count"},
    terms=_terms_count,
)
def negative_binomial_total_count_from_logits(
    value: Tensor, total_count: Tensor, logits: Tensor
) -> Tensor:
    """The same with ``ln(1 − p) = ln σ(−l)``."""
    return digamma_difference(total_count, value) + torch.nn.functional.logsigmoid(-logits)


def _terms_negative_binomial_probs(
    value: Tensor, total_count: Tensor, probs: Tensor
) -> dict[str, Tensor]:
    return {"y/p": _ratio(value, probs), "−r/(1 − p)": -total_count / (1 - probs)}


@_negative_binomial(
    "probs",
    name="negative binomial, probability",
    equation="y/p − r/(1 − p)",
    symbols={**_PROBS, "r": "total_count"},
    terms=_terms_negative_binomial_probs,
)
def negative_binomial_probs(value: Tensor, total_count: Tensor, probs: Tensor) -> Tensor:
    """``y/p − r/(1 − p)`` for y successes before the r-th failure."""
    return _ratio(value, probs) - total_count / (1 - probs)


@_negative_binomial(
    "probs",
    name="negative binomial, probability from the log-odds",
    equation="y/p − r/(1 − p), p = σ(l)",
    symbols={**_LOGITS, "r": "total_count"},
)
def negative_binomial_probs_from_logits(
    value: Tensor, total_count: Tensor, logits: Tensor
) -> Tensor:
    """``y (1 + e^−l) − r (1 + e^l)``."""
    return weigh_inverse_odds(value, total_count, logits)


def _terms_negative_binomial_logits(
    value: Tensor, total_count: Tensor, logits: Tensor
) -> dict[str, Tensor]:
    ones = torch.ones_like(logits)
    return {"y": value * ones, "−(y + r) σ(l)": -(value + total_count) * torch.sigmoid(logits)}


@_negative_binomial(
    "logits",
    name="negative binomial, log-odds",
    equation="y − (y + r) σ(l)",
    symbols={**_LOGITS, "r": "total_count"},
    terms=_terms_negative_binomial_logits,
)
def negative_binomial_logits(value: Tensor, total_count: Tensor, logits: Tensor) -> Tensor:
    """``y σ(−l) − r σ(l)``."""
    return weigh_odds(value, total_count, logits)


@_negative_binomial(
    "logits",
    name="negative binomial, log-odds from the probability",
    equation="y − (y + r) p",
    symbols={**_PROBS, "r": "total_count"},
)
def negative_binomial_logits_from_probs(
    value: Tensor, total_count: Tensor, probs: Tensor
) -> Tensor:
    """``y (1 − p) − r p``."""
    return value * (1 - probs) - total_count * probs


def _ratio(count: Tensor, probability: Tensor) -> Tensor:
    """``count/probability``, exactly 0 for a count of 0."""
    return torch.where(count == 0, torch.zeros_like(probability), count / probability)
