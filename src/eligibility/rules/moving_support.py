"""Laws whose support moves with a parameter: Uniform, Pareto, GeneralizedPareto.

Differentiating ``∫ p(y; θ) dy = 1`` moves the ends of the integral as well where they depend on θ
and the density does not vanish there. Then E[eligibility] is not 0, no baseline is harmless, and
REINFORCE is biased; `eligibility.eligibility` refuses unless it is told otherwise.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution, GeneralizedPareto, Pareto, Uniform

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import log1p_remainder, log_ratio

_UNIFORM = {"y": "value", "a": "low", "b": "high"}
_PARETO = {"y": "value", "s": "scale", "α": "alpha"}
_GENERALIZED = {"y": "value", "μ": "loc", "σ": "scale", "ξ": "concentration"}
_GENERALIZED_DENSITY = "derived from (1 + ξz)^(−1/ξ − 1)/σ"
_pareto = partial(
    register_eligibility, Pareto, reference="derived from α s^α y^(−α−1)", symbols=_PARETO
)
_generalized_pareto = partial(
    register_eligibility, GeneralizedPareto, reference=_GENERALIZED_DENSITY, symbols=_GENERALIZED
)


def _upper_end_moves(dist: Distribution) -> str | None:
    """For ξ < 0 the support ends at μ − σ/ξ; the density vanishes there if ξ > −1."""
    concentration: Tensor = dist.concentration  # type: ignore[attr-defined]  # of its class
    if bool((concentration <= -1).any()):
        return "for a concentration <= -1 the density is not 0 where the support ends"
    return None


_uniform = partial(
    register_eligibility,
    Uniform,
    reference="derived from 1/(b − a)",
    symbols=_UNIFORM,
    why_biased=lambda dist: "the support [low, high) moves with it",
)


@_uniform("low", name="uniform, lower bound", equation="1/(b − a)")
def uniform_low(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``1/(b − a)``, whatever the outcome."""
    return 1 / (high - low) + torch.zeros_like(value)


@_uniform("high", name="uniform, upper bound", equation="−1/(b − a)")
def uniform_high(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``−1/(b − a)``, whatever the outcome."""
    return -uniform_low(value, low, high)


@_pareto(
    "scale",
    name="Pareto, scale",
    equation="α/s",
    why_biased=lambda dist: "the support starts at scale, where the density is not 0",
)
def pareto_scale(value: Tensor, scale: Tensor, alpha: Tensor) -> Tensor:
    """``α/s``, whatever the outcome."""
    return alpha / scale + torch.zeros_like(value)


@_pareto(
    "alpha",
    name="Pareto, exponent",
    equation="1/α + ln(s/y)",
    terms=lambda value, scale, alpha: {"1/α": 1 / alpha, "ln(s/y)": log_ratio(scale, value)},
)
def pareto_alpha(value: Tensor, scale: Tensor, alpha: Tensor) -> Tensor:
    """``1/α + ln(s/y)``."""
    return 1 / alpha + log_ratio(scale, value)


@_generalized_pareto(
    "loc",
    name="generalised Pareto, location",
    equation="(1 + ξ)/(σ (1 + ξz)), z = (y − μ)/σ",
    why_biased=lambda dist: "the support starts at loc, where the density is not 0",
)
def generalized_pareto_loc(
    value: Tensor, loc: Tensor, scale: Tensor, concentration: Tensor
) -> Tensor:
    """``(1 + ξ)/(σ + ξ(y − μ))``."""
    return (1 + concentration) / (scale + concentration * (value - loc))


@_generalized_pareto(
    "scale",
    name="generalised Pareto, scale",
    equation="(z − 1)/(σ (1 + ξz)), z = (y − μ)/σ",
    why_biased=_upper_end_moves,
)
def generalized_pareto_scale(
    value: Tensor, loc: Tensor, scale: Tensor, concentration: Tensor
) -> Tensor:
    """``(y − μ − σ)/(σ (σ + ξ(y − μ)))``."""
    difference = value - loc
    return (difference - scale) / (scale + concentration * difference) / scale


@_generalized_pareto(
    "concentration",
    name="generalised Pareto, concentration",
    equation="ln(1 + ξz)/ξ² − (1 + 1/ξ) z/(1 + ξz), z = (y − μ)/σ; z²/2 − z at ξ = 0",
    why_biased=_upper_end_moves,
)
def generalized_pareto_concentration(
    value: Tensor, loc: Tensor, scale: Tensor, concentration: Tensor
) -> Tensor:
    """``q² R(−ξq) − q`` with q = z/(1 + ξz) and R(t) = (t − ln(1 + t))/t²; no limit at ξ = 0.

    Where ξz >= 2 the logarithm is that of 1 + ξz itself.
    """
    difference = value - loc
    q = difference / (scale + concentration * difference)
    growth = concentration * (difference / scale)
    far = growth >= 2
    near = q * q * log1p_remainder(torch.where(far, 0.0, -concentration * q))
    divisor = torch.where(far, concentration, 1.0)
    logarithm = (torch.log1p(growth) - concentration * q) / divisor / divisor
    return torch.where(far, logarithm, near) - q
