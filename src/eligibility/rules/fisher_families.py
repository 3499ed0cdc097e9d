"""Fisher information of the families beyond coins and categories, where it has a closed form."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Beta,
    Cauchy,
    Chi2,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    Geometric,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    LogisticNormal,
    LogNormal,
    LowRankMultivariateNormal,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Pareto,
    Poisson,
    StudentT,
    VonMises,
    Weibull,
    Wishart,
)

from eligibility.rules.cholesky import inverse_of_factor, scale_tril_of
from eligibility.rules.constructed import given_names
from eligibility.rules.fisher import coin, read, register_fisher
from eligibility.rules.special import bessel_ratio

_MATRICES = ("covariance_matrix", "precision_matrix", "scale_tril")
_GUMBEL = math.pi**2 / 6 + (1 - 0.5772156649015329) ** 2  # E[(U e^−U − U + 1)²], U Gumbel


def _trigamma(x: Tensor) -> Tensor:
    return torch.polygamma(1, x)


def _von_mises(concentration: Tensor) -> Tensor:
    """``1 − A/κ − A²``, the variance of cos(y − μ)."""
    ratio = bessel_ratio(concentration)
    return 1 - ratio / concentration - ratio**2


def _covariance(dist: Distribution) -> Tensor:
    factor = _factor(dist)
    return factor @ factor.mT


# What a formula may name in addition to attributes; P is the inverse of the covariance.
_DERIVED: dict[str, Callable[[Any], Tensor]] = {
    "p": lambda dist: coin(dist)[0],
    "q": lambda dist: coin(dist)[1],
    "covariance": _covariance,
    "precision": lambda dist: _precision(dist),
}
# A formula of the attributes that it names.
_NAMED: tuple[tuple[tuple[type[Distribution], ...], str, Callable[..., Tensor]], ...] = (
    ((Poisson,), "rate", lambda rate: 1 / rate),
    ((Exponential,), "rate", lambda rate: rate**-2),
    ((Normal, LogNormal), "loc", lambda scale: scale**-2),
    ((Normal, LogNormal, HalfNormal), "scale", lambda scale: 2 * scale**-2),
    ((Laplace,), "loc", lambda scale: scale**-2),
    ((Laplace,), "scale", lambda scale: scale**-2),
    ((Cauchy,), "loc", lambda scale: scale**-2 / 2),
    ((Cauchy, HalfCauchy), "scale", lambda scale: scale**-2 / 2),
    ((Gumbel,), "loc", lambda scale: scale**-2),
    ((Gumbel,), "scale", lambda scale: _GUMBEL * scale**-2),
    ((StudentT,), "loc", lambda df, scale: (df + 1) / (df + 3) * scale**-2),
    ((StudentT,), "scale", lambda df, scale: 2 * df / (df + 3) * scale**-2),
    ((Gamma, InverseGamma), "concentration", lambda concentration: _trigamma(concentration)),
    ((Gamma, InverseGamma), "rate", lambda concentration, rate: concentration * rate**-2),
    ((Chi2,), "df", lambda df: _trigamma(df / 2) / 4),
    (
        (Beta,),
        "concentration1",
        lambda concentration1, concentration0: (
            _trigamma(concentration1) - _trigamma(concentration1 + concentration0)
        ),
    ),
    (
        (Beta,),
        "concentration0",
        lambda concentration1, concentration0: (
            _trigamma(concentration0) - _trigamma(concentration1 + concentration0)
        ),
    ),
    ((Kumaraswamy,), "concentration0", lambda concentration0: concentration0**-2),
    ((Weibull,), "scale", lambda scale, concentration: (concentration / scale) ** 2),
    ((Weibull,), "concentration", lambda concentration: _GUMBEL * concentration**-2),
    ((Pareto,), "alpha", lambda alpha: alpha**-2),
    ((VonMises,), "loc", lambda concentration: concentration * bessel_ratio(concentration)),
    ((VonMises,), "concentration", _von_mises),
    ((Geometric,), "probs", lambda p, q: 1 / (p * p * q)),
    ((Geometric,), "logits", lambda q: q),
    ((NegativeBinomial,), "probs", lambda total_count, p, q: total_count / (p * q * q)),
    ((NegativeBinomial,), "logits", lambda total_count, p: total_count * p),
    ((LogisticNormal,), "loc", lambda scale: torch.diag_embed(scale**-2)),
    ((LogisticNormal,), "scale", lambda scale: torch.diag_embed(2 * scale**-2)),
    ((MultivariateNormal,), "loc", lambda precision: precision),
    ((MultivariateNormal,), "covariance_matrix", lambda precision: _pairs(precision) / 4),
    ((MultivariateNormal,), "precision_matrix", lambda covariance: _pairs(covariance) / 4),
    ((Wishart,), "covariance_matrix", lambda df, precision: _pairs(precision, df) / 4),
    ((Wishart,), "precision_matrix", lambda df, covariance: _pairs(covariance, df) / 4),
)


def _reading(formula: Callable[..., Tensor], names: tuple[str, ...]) -> Callable[[Any], Tensor]:
    """``formula`` as a function of the distribution."""
    return lambda dist: formula(
        *(_DERIVED[name](dist) if name in _DERIVED else read(dist, name) for name in names)
    )


for _classes, _parameter, _formula in _NAMED:
    _names = tuple(inspect.signature(_formula).parameters)
    register_fisher(_classes, _parameter)(_reading(_formula, _names))


@register_fisher(StudentT, "df")
def student_t_df(dist: Distribution) -> Tensor:
    """``¼[ψ′(ν/2) − ψ′((ν+1)/2)] − (ν + 5)/(2ν(ν + 1)(ν + 3))``."""
    df = read(dist, "df")
    step = (_trigamma(df / 2) - _trigamma((df + 1) / 2)) / 4
    return step - (df + 5) / (2 * df * (df + 1) * (df + 3))


@register_fisher(Dirichlet, "concentration")
def dirichlet_concentration(dist: Distribution) -> Tensor:
    """``diag(ψ′(α)) − ψ′(Σα)``."""
    alpha = read(dist, "concentration")
    common = _trigamma(alpha.sum(-1))[..., None, None]
    return torch.diag_embed(_trigamma(alpha)) - common


@register_fisher(LKJCholesky, "concentration")
def lkj_concentration(dist: Any) -> Tensor:
    """``Σ_i [ψ′(η + (d − 1 − i)/2) − ψ′(η + (d − 1)/2)]``."""
    top = read(dist, "concentration").unsqueeze(-1) + (dist.dim - 1) / 2
    own = top - torch.arange(1, dist.dim, device=top.device) / 2
    return (_trigamma(own) - _trigamma(top)).sum(-1)


@register_fisher(LowRankMultivariateNormal, "loc")
def low_rank_loc(dist: Distribution) -> Tensor:
    """``Σ⁻¹``, Σ = FFᵀ + diag D."""
    cov_factor, cov_diag = read(dist, "cov_factor"), read(dist, "cov_diag")
    covariance = cov_factor @ cov_factor.mT + torch.diag_embed(cov_diag)
    inverse = inverse_of_factor(scale_tril_of("covariance_matrix", covariance))
    return inverse.mT @ inverse


@register_fisher(Wishart, "df")
def wishart_df(dist: Distribution) -> Tensor:
    """``¼ Σ_i ψ′((ν − i)/2)``, i = 0 … p − 1."""
    df = read(dist, "df").unsqueeze(-1)
    return _trigamma((df - torch.arange(dist.event_shape[-1], device=df.device)) / 2).sum(-1) / 4


def _factor(dist: Distribution) -> Tensor:
    (given,) = given_names(dist, _MATRICES)[:1]
    return scale_tril_of(given, read(dist, given))


def _precision(dist: Distribution) -> Tensor:
    inverse = inverse_of_factor(_factor(dist))
    return inverse.mT @ inverse


def _pairs(matrix: Tensor, factor: Tensor | None = None) -> Tensor:
    """``M_ik M_jl + M_il M_jk``, ``[*batch, D, D, D, D]``, times a factor a batch."""
    product = torch.einsum("...ik,...jl->...ijkl", matrix, matrix)
    pairs = product + product.mT
    return pairs if factor is None else factor[..., None, None, None, None] * pairs
