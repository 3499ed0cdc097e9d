"""Positive numbers: Exponential, Gamma and its relatives, Weibull, half laws."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import (
    Chi2,
    Exponential,
    FisherSnedecor,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Weibull,
)

from eligibility.rules.location_scale import square_minus_one
from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import digamma_gap, log1p_gap, log_ratio

_GAMMA = "exponential family: ln y − E[ln y] and α/β − y"
_SHAPE_RATE = {"y": "value", "α": "concentration", "β": "rate"}
_WEIBULL = {"y": "value", "λ": "scale", "k": "concentration"}
_FISHER = {"x": "value", "d₁": "df1", "d₂": "df2"}
_gamma = partial(register_eligibility, Gamma, reference=_GAMMA, symbols=_SHAPE_RATE)
_inverse_gamma = partial(
    register_eligibility, InverseGamma, reference="a gamma in 1/y", symbols=_SHAPE_RATE
)
_fisher_snedecor = partial(
    register_eligibility,
    FisherSnedecor,
    reference="derived from x^(d₁/2−1) (d₁/d₂)^(d₁/2) (1 + d₁x/d₂)^(−(d₁+d₂)/2)/B(d₁/2, d₂/2)",
    symbols=_FISHER,
)
_weibull = partial(
    register_eligibility,
    Weibull,
    reference="derived from (k/λ)(y/λ)^(k−1) e^(−t)",
    symbols=_WEIBULL,
)


@register_eligibility(
    Exponential,
    "rate",
    name="exponential, rate",
    equation="1/λ − y",
    reference="Williams 1992, Proposition 1, in the rate",
    symbols={"y": "value", "λ": "rate"},
    terms=lambda value, rate: {"1/λ": 1 / rate, "−y": -value},
)
def exponential_rate(value: Tensor, rate: Tensor) -> Tensor:
    """``1/λ − y``: the mean less the outcome.

    Example:
        >>> exponential_rate(torch.tensor(1.0), torch.tensor(0.5))
        tensor(1.)
    """
    return 1 / rate - value


@_gamma(
    "concentration",
    name="gamma, concentration",
    equation="ln β − ψ(α) + ln y",
    terms=lambda value, concentration, rate: {
        "ln β": rate.log(),
        "−ψ(α)": -torch.digamma(concentration),
        "ln y": value.log(),
    },
)
def gamma_concentration(value: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    """``ln(βy/α) + [ln α − ψ(α)]``, both small where y is typical."""
    return _log_to_one(value, rate, concentration) + digamma_gap(concentration)


@_gamma(
    "rate",
    name="gamma, rate",
    equation="α/β − y",
    terms=lambda value, concentration, rate: {"α/β": concentration / rate, "−y": -value},
)
def gamma_rate(value: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    """``α/β − y``: the mean less the outcome."""
    return concentration / rate - value


@register_eligibility(
    Chi2,
    "df",
    name="chi-square, degrees of freedom",
    equation="½(ln(y/2) − ψ(ν/2))",
    reference="a gamma with α = ν/2, β = ½",
    symbols={"y": "value", "ν": "df"},
    terms=lambda value, df: {
        "½ ln(y/2)": 0.5 * (value / 2).log(),
        "−½ ψ(ν/2)": -0.5 * torch.digamma(df / 2),
    },
)
def chi2_df(value: Tensor, df: Tensor) -> Tensor:
    """``½(ln(y/ν) + [ln(ν/2) − ψ(ν/2)])``."""
    return 0.5 * (log_ratio(value, df) + digamma_gap(df / 2))


@_inverse_gamma(
    "concentration",
    name="inverse gamma, concentration",
    equation="ln β − ψ(α) − ln y",
    terms=lambda value, concentration, rate: {
        "ln β": rate.log(),
        "−ψ(α)": -torch.digamma(concentration),
        "−ln y": -value.log(),
    },
)
def inverse_gamma_concentration(value: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    """``ln(β/(αy)) + [ln α − ψ(α)]``."""
    return digamma_gap(concentration) - _log_to_one(value, concentration, rate)


@_inverse_gamma(
    "rate",
    name="inverse gamma, rate",
    equation="α/β − 1/y",
    terms=lambda value, concentration, rate: {"α/β": concentration / rate, "−1/y": -1 / value},
)
def inverse_gamma_rate(value: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    """``α/β − 1/y``."""
    return concentration / rate - 1 / value


@_fisher_snedecor(
    "df1",
    name="F, first degrees of freedom",
    equation="½[ln r + 1 − r + ψ̃(d₁/2) − ψ̃((d₁+d₂)/2)], r = x(d₁+d₂)/(d₁x+d₂), ψ̃ = ln − ψ",
)
def fisher_snedecor_df1(value: Tensor, df1: Tensor, df2: Tensor) -> Tensor:
    """``½[gap of digammas − g(r − 1)]``, g(t) = t − ln(1 + t), r − 1 = d₂(x − 1)/(d₁x + d₂)."""
    ratio = df1 / df2
    below = ((1 + ratio) / (1 / value + ratio)).log()
    return 0.5 * (digamma_gap(df1 / 2, df2 / 2) - _gap((value - 1) / (ratio * value + 1), below))


@_fisher_snedecor(
    "df2",
    name="F, second degrees of freedom",
    equation="½[ln r + 1 − r + ψ̃(d₂/2) − ψ̃((d₁+d₂)/2)], r = (d₁+d₂)/(d₁x+d₂), ψ̃ = ln − ψ",
)
def fisher_snedecor_df2(value: Tensor, df1: Tensor, df2: Tensor) -> Tensor:
    """The first one of 1/x with the degrees of freedom exchanged."""
    ratio = df2 / df1
    below = ((1 + ratio) / (value + ratio)).log()
    return 0.5 * (digamma_gap(df2 / 2, df1 / 2) - _gap((1 - value) / (value + ratio), below))


def _gap(excess: Tensor, logarithm: Tensor) -> Tensor:
    """``t − ln(1 + t)``, given the logarithm too, for where 1 + t is nearly 0."""
    near = log1p_gap(excess.clamp(min=-0.6))
    return torch.where(excess > -0.6, near, excess - logarithm)


@_weibull(
    "scale",
    name="Weibull, scale",
    equation="(k/λ)(t − 1), t = (y/λ)^k",
    terms=lambda value, scale, concentration: {
        "k t/λ": concentration / scale * (value / scale) ** concentration,
        "−k/λ": -concentration / scale,
    },
)
def weibull_scale(value: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    """``(k/λ) expm1(k ln(y/λ))``."""
    return torch.expm1(concentration * log_ratio(value, scale)) * (concentration / scale)


@_weibull(
    "concentration",
    name="Weibull, concentration",
    equation="1/k + ln(y/λ)(1 − t), t = (y/λ)^k",
    terms=lambda value, scale, concentration: {
        "1/k": 1 / concentration,
        "ln(y/λ)(1 − t)": (value / scale).log() * (1 - (value / scale) ** concentration),
    },
)
def weibull_concentration(value: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    """``1/k − L expm1(kL)`` with L = ln(y/λ)."""
    logarithm = log_ratio(value, scale)
    return 1 / concentration - logarithm * torch.expm1(concentration * logarithm)


@register_eligibility(
    HalfNormal,
    "scale",
    name="half-normal, scale",
    equation="y²/s³ − 1/s",
    reference="a Gaussian unit of Williams 1992 with μ = 0, folded",
    symbols={"y": "value", "s": "scale"},
    terms=lambda value, scale: {"y²/s³": (value / scale) ** 2 / scale, "−1/s": -1 / scale},
)
def half_normal_scale(value: Tensor, scale: Tensor) -> Tensor:
    """``(y² − s²)/s³``."""
    return square_minus_one(value, scale) / scale


@register_eligibility(
    HalfCauchy,
    "scale",
    name="half-Cauchy, scale",
    equation="(y² − s²)/(s (y² + s²))",
    reference="a Cauchy with μ = 0, folded",
    symbols={"y": "value", "s": "scale"},
)
def half_cauchy_scale(value: Tensor, scale: Tensor) -> Tensor:
    """``(y² − s²)/(s (y² + s²))``, in units of the larger of the two."""
    largest = torch.maximum(value, scale)
    y, s = value / largest, scale / largest
    return ((value - scale) / largest) * (y + s) / (y * y + s * s) / scale


def _log_to_one(value: Tensor, factor: Tensor, divisor: Tensor) -> Tensor:
    """``ln(y f/d)``, also where a product overflows."""
    product = value * factor
    whole = (product > 1e-290) & (product < 1e290)
    inside = log_ratio(torch.where(whole, product, 1.0), divisor)
    return torch.where(whole, inside, log_ratio(value, divisor) + factor.log())
