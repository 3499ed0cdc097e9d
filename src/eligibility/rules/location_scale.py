"""Location and scale: Normal, LogNormal, Laplace, Cauchy, StudentT, Gumbel, VonMises.

Notation: d = y − μ, u = d/s. ``d² − s²`` is always the product ``(|d| − s)(|d| + s)``, whose
factors are exact where they are small.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Cauchy, Gumbel, Laplace, LogNormal, Normal, StudentT, VonMises

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import (
    bessel_ratio,
    bessel_ratio_complement,
    digamma_half_step,
    log1p_gap,
)

_NORMAL = "Williams 1992, eq. (12) and the one after it"
_SYMBOLS = {"y": "value", "μ": "loc", "σ": "scale"}
_LOC_SCALE = {"y": "value", "μ": "loc", "s": "scale"}
_STUDENT = {"y": "value", "ν": "df", "μ": "loc", "s": "scale"}


_normal = partial(register_eligibility, Normal, reference=_NORMAL, symbols=_SYMBOLS)
_log_normal = partial(
    register_eligibility, LogNormal, reference=f"{_NORMAL}, in ln y", symbols=_SYMBOLS
)
_laplace = partial(
    register_eligibility, Laplace, reference="derived from e^(−|u|)/(2s)", symbols=_LOC_SCALE
)
_cauchy = partial(
    register_eligibility, Cauchy, reference="derived from 1/(π s (1 + u²))", symbols=_LOC_SCALE
)
_student_t = partial(register_eligibility, StudentT, symbols=_STUDENT)
_gumbel = partial(
    register_eligibility, Gumbel, reference="derived from e^(−u − e^(−u))/s", symbols=_LOC_SCALE
)


@_normal("loc", name="Gaussian unit, mean", equation="(y − μ)/σ²")
def normal_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(y − μ)/σ²``.

    Example:
        >>> normal_loc(torch.tensor(3.0), torch.tensor(1.0), torch.tensor(2.0))
        tensor(0.5000)
    """
    return (value - loc) / scale / scale


def _terms_normal_scale(value: Tensor, loc: Tensor, scale: Tensor) -> dict[str, Tensor]:
    return {"(y − μ)²/σ³": ((value - loc) / scale) ** 2 / scale, "−1/σ": -1 / scale}


@_normal(
    "scale",
    name="Gaussian unit, standard deviation",
    equation="((y − μ)² − σ²)/σ³",
    terms=_terms_normal_scale,
)
def normal_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``((y − μ)² − σ²)/σ³``.

    Example:
        >>> normal_scale(torch.tensor(3.0), torch.tensor(1.0), torch.tensor(1.0))
        tensor(3.)
    """
    return square_minus_one(value - loc, scale) / scale


@_log_normal("loc", name="log-normal, mean of the logarithm", equation="(ln y − μ)/σ²")
def log_normal_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(ln y − μ)/σ²``."""
    return normal_loc(value.log(), loc, scale)


@_log_normal(
    "scale",
    name="log-normal, standard deviation of the logarithm",
    equation="((ln y − μ)² − σ²)/σ³",
    terms=lambda value, loc, scale: {
        symbol.replace("y", "ln y"): term
        for symbol, term in _terms_normal_scale(value.log(), loc, scale).items()
    },
)
def log_normal_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``((ln y − μ)² − σ²)/σ³``."""
    return normal_scale(value.log(), loc, scale)


@_laplace("loc", name="Laplace, location", equation="sign(y − μ)/s")
def laplace_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``sign(y − μ)/s``; 0 at the kink y = μ, the middle of the subgradients."""
    return torch.sign(value - loc) / scale


@_laplace(
    "scale",
    name="Laplace, scale",
    equation="|y − μ|/s² − 1/s",
    terms=lambda value, loc, scale: {
        "|y − μ|/s²": (value - loc).abs() / scale / scale,
        "−1/s": -1 / scale,
    },
)
def laplace_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(|y − μ| − s)/s²``."""
    return ((value - loc).abs() - scale) / scale / scale


@_cauchy("loc", name="Cauchy, location", equation="2(y − μ)/(s² + (y − μ)²)")
def cauchy_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``2d/(s² + d²)``; in units of the larger of the two, so that no square overflows."""
    difference = value - loc
    largest = torch.maximum(difference.abs(), scale)
    d, s = difference / largest, scale / largest
    return 2 * d / (s * s + d * d) / largest


@_cauchy("scale", name="Cauchy, scale", equation="((y − μ)² − s²)/(s (s² + (y − μ)²))")
def cauchy_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(d² − s²)/(s (s² + d²))``; in units of the larger of the two."""
    size = (value - loc).abs()
    largest = torch.maximum(size, scale)
    d, s = size / largest, scale / largest
    return ((size - scale) / largest) * (d + s) / (s * s + d * d) / scale


@_student_t(
    "df",
    name="Student's t, degrees of freedom",
    equation="½[ψ((ν+1)/2) − ψ(ν/2) − 1/ν − ln(1 + u²/ν) + (ν+1)u²/(ν(ν + u²))], u = (y − μ)/s",
    reference="derived from Γ((ν+1)/2)/(Γ(ν/2) √(νπ) s) (1 + u²/ν)^(−(ν+1)/2)",
)
def student_t_df(value: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """With w = u²/ν: ``½[D(ν/2) − g(−w/(1+w)) + w/(ν(1+w))]``, three terms of order 1/ν².

    D(x) = ψ(x + ½) − ψ(x) − 1/(2x) and g(t) = t − ln(1 + t); nothing of order 1 is subtracted.
    """
    u = (value - loc) / scale
    share = u * u / (df + u * u)  # w/(1 + w)
    share = torch.where(u.abs() > 1e150, 1.0, share)
    own = torch.where(share < 0.5, log1p_gap(-share.clamp(max=0.5)), _far_gap(u, df, share))
    return 0.5 * (digamma_half_step(df / 2) - own + share / df)


def _far_gap(u: Tensor, df: Tensor, share: Tensor) -> Tensor:
    """``ln(1 + u²/ν) − w/(1 + w)``, also where u² overflows."""
    size = u.abs().clamp(min=1e-300)
    log = torch.where(size > 1e150, 2 * size.log() - df.log(), torch.log1p(u * u / df))
    return log - share


@_student_t(
    "loc",
    name="Student's t, location",
    equation="(ν + 1)u/((ν + u²)s), u = (y − μ)/s",
    reference="derived from (1 + u²/ν)^(−(ν+1)/2)/s",
)
def student_t_loc(value: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(ν + 1)u/((ν + u²)s)``; for |u| > 1 divided through by u."""
    u = (value - loc) / scale
    outer = torch.where(u.abs() > 1, u, 1.0)
    fraction = torch.where(
        u.abs() > 1, (df + 1) / (outer + df / outer), (df + 1) * u / (df + u * u)
    )
    return fraction / scale


@_student_t(
    "scale",
    name="Student's t, scale",
    equation="((ν + 1)u²/(ν + u²) − 1)/s, u = (y − μ)/s",
    reference="derived from (1 + u²/ν)^(−(ν+1)/2)/s",
    terms=lambda value, df, loc, scale: {
        "(ν + 1)u²/((ν + u²)s)": student_t_loc(value, df, loc, scale) * (value - loc) / scale,
        "−1/s": -1 / scale,
    },
)
def student_t_scale(value: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``ν(u² − 1)/((ν + u²)s)``; for |u| > 1 divided through by u²."""
    size = (value - loc).abs()
    u = size / scale
    outer = torch.where(u > 1, u, 1.0)
    far = ((size - scale) / size) * (1 + 1 / outer) / (1 / outer / outer + 1 / df)
    near = square_minus_one(size, scale) / (1 + u * u / df)
    return torch.where(u > 1, far, near) / scale


@_gumbel(
    "loc",
    name="Gumbel, location",
    equation="(1 − e^−u)/s, u = (y − μ)/s",
    terms=lambda value, loc, scale: {
        "1/s": 1 / scale,
        "−e^−u/s": -torch.exp((loc - value) / scale) / scale,
    },
)
def gumbel_loc(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``−expm1(−u)/s``."""
    return -torch.expm1((loc - value) / scale) / scale


@_gumbel(
    "scale",
    name="Gumbel, scale",
    equation="(u(1 − e^−u) − 1)/s, u = (y − μ)/s",
    terms=lambda value, loc, scale: {
        "u(1 − e^−u)/s": gumbel_loc(value, loc, scale) * (value - loc) / scale,
        "−1/s": -1 / scale,
    },
)
def gumbel_scale(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """``(u(1 − e^−u) − 1)/s``."""
    u = (value - loc) / scale
    return (-u * torch.expm1(-u) - 1) / scale


def square_minus_one(difference: Tensor, scale: Tensor) -> Tensor:
    """``(d/s)² − 1`` as ``((|d| − s)/s)((|d| + s)/s)``."""
    size = difference.abs()
    return ((size - scale) / scale) * ((size + scale) / scale)


_von_mises = partial(
    register_eligibility,
    VonMises,
    reference="exponential family: cos(y − μ) − E[cos(y − μ)]",
    symbols={"y": "value", "μ": "loc", "κ": "concentration"},
)


@_von_mises("loc", name="von Mises, mean angle", equation="κ sin(y − μ)")
def von_mises_loc(value: Tensor, loc: Tensor, concentration: Tensor) -> Tensor:
    """``κ sin(y − μ)``."""
    return concentration * torch.sin(value - loc)


@_von_mises(
    "concentration",
    name="von Mises, concentration",
    equation="cos(y − μ) − I₁(κ)/I₀(κ)",
    terms=lambda value, loc, concentration: {
        "cos(y − μ)": torch.cos(value - loc),
        "−I₁(κ)/I₀(κ)": -bessel_ratio(concentration),
    },
)
def von_mises_concentration(value: Tensor, loc: Tensor, concentration: Tensor) -> Tensor:
    """``cos(y − μ) − I₁/I₀``; for κ > 1 as ``(1 − I₁/I₀) − 2 sin²((y − μ)/2)``.

    Example:
        >>> von_mises_concentration(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(2.0))
        tensor(0.3022)
    """
    sine = torch.sin((value - loc) / 2)
    narrow = bessel_ratio_complement(concentration) - 2 * sine * sine
    wide = torch.cos(value - loc) - bessel_ratio(concentration)
    return torch.where(concentration > 1, narrow, wide)
