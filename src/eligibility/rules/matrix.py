"""Matrix parameters: MultivariateNormal, LowRankMultivariateNormal, Wishart, LKJCholesky.

A symmetric matrix is differentiated as torch does it: every entry is free, and the result is the
symmetric one. A covariance Σ is factorised, in double precision, from whatever was given.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.distributions import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart

from eligibility.rules.cholesky import inverse_of_factor, scale_tril_of
from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import digamma_gap, log_ratio
from eligibility.rules.unit_interval import log_less_mean

_GAUSSIAN = "Gaussian, vector form of Williams 1992, eq. (12)"
_WISHART = "derived from |X|^((ν−p−1)/2) e^(−tr(V⁻¹X)/2)/(2^(νp/2) |V|^(ν/2) Γ_p(ν/2))"
_LOW_RANK = {"x": "value", "μ": "loc", "F": "cov_factor", "D": "cov_diag"}
# A covariance and what it is called in the equations of a Gaussian and of a Wishart.
_GIVEN = {"covariance_matrix": ("Σ", "V"), "precision_matrix": ("P", "P"), "scale_tril": ("L", "L")}
_low_rank_multivariate_normal = partial(
    register_eligibility, LowRankMultivariateNormal, reference=_GAUSSIAN, symbols=_LOW_RANK
)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    return left.unsqueeze(-1) * right.unsqueeze(-2)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _whiten(given: str, matrix: Tensor, difference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L, ``w = L⁻¹ d`` and ``v = Σ⁻¹ d``."""
    factor = scale_tril_of(given, matrix)
    w = torch.linalg.solve_triangular(factor, difference.unsqueeze(-1), upper=False)
    v = torch.linalg.solve_triangular(factor.mT, w, upper=True).squeeze(-1)
    if given == "precision_matrix":
        v = _apply(matrix, difference)
    return factor, w.squeeze(-1), v


def _register_multivariate_normal(given: str) -> None:
    """The four rules of a MultivariateNormal that was given this matrix."""
    symbol = _GIVEN[given][0]
    register = partial(
        register_eligibility,
        MultivariateNormal,
        reference=_GAUSSIAN,
        symbols={"x": "value", "μ": "loc", symbol: given},
        reads=("loc", given),
    )

    @register("loc", name="multivariate normal, mean", equation="v = Σ⁻¹(x − μ)")
    def _(value: Tensor, loc: Tensor, matrix: Tensor) -> Tensor:
        return _whiten(given, matrix, value - loc)[2]

    @register(
        "covariance_matrix",
        name="multivariate normal, covariance",
        equation="½(v vᵀ − Σ⁻¹), v = Σ⁻¹(x − μ)",
    )
    def _(value: Tensor, loc: Tensor, matrix: Tensor) -> Tensor:
        factor, _, v = _whiten(given, matrix, value - loc)
        inverse = inverse_of_factor(factor)
        precision = matrix if given == "precision_matrix" else inverse.mT @ inverse
        return (_outer(v, v) - precision) / 2

    @register(
        "precision_matrix",
        name="multivariate normal, precision",
        equation="½(P⁻¹ − (x − μ)(x − μ)ᵀ)",
    )
    def _(value: Tensor, loc: Tensor, matrix: Tensor) -> Tensor:
        factor = scale_tril_of(given, matrix)
        covariance = matrix if given == "covariance_matrix" else factor @ factor.mT
        return (covariance - _outer(value - loc, value - loc)) / 2

    @register(
        "scale_tril",
        name="multivariate normal, Cholesky factor",
        equation="tril(v wᵀ) − diag(1/L), w = L⁻¹(x − μ), v = L⁻ᵀw",
    )
    def _(value: Tensor, loc: Tensor, matrix: Tensor) -> Tensor:
        factor, w, v = _whiten(given, matrix, value - loc)
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        return _outer(v, w).tril(-1) + torch.diag_embed(v * w - 1 / diagonal)


def _register_wishart(given: str) -> None:
    """The four rules of a Wishart that was given this matrix."""
    symbol = _GIVEN[given][1]
    register = partial(
        register_eligibility,
        Wishart,
        reference=_WISHART,
        symbols={"X": "value", "ν": "df", symbol: given},
        reads=("df", given),
    )

    @register(
        "df",
        name="Wishart, degrees of freedom",
        equation="½(ln |V⁻¹X/2| − Σ_i ψ((ν − i)/2)), i = 0 … p − 1",
    )
    def _(value: Tensor, df: Tensor, matrix: Tensor) -> Tensor:
        return _wishart_df(value, df, scale_tril_of(given, matrix))

    @register("covariance_matrix", name="Wishart, scale matrix", equation="½(V⁻¹XV⁻¹ − νV⁻¹)")
    def _(value: Tensor, df: Tensor, matrix: Tensor) -> Tensor:
        inverse = inverse_of_factor(scale_tril_of(given, matrix))
        precision = matrix if given == "precision_matrix" else inverse.mT @ inverse
        whitened = inverse @ value @ inverse.mT
        return (inverse.mT @ whitened @ inverse - df[..., None, None] * precision) / 2

    @register("precision_matrix", name="Wishart, inverse scale matrix", equation="½(νP⁻¹ − X)")
    def _(value: Tensor, df: Tensor, matrix: Tensor) -> Tensor:
        factor = scale_tril_of(given, matrix)
        covariance = matrix if given == "covariance_matrix" else factor @ factor.mT
        return (df[..., None, None] * covariance - value) / 2

    @register(
        "scale_tril",
        name="Wishart, Cholesky factor of the scale matrix",
        equation="tril(V⁻¹XL⁻ᵀ) − ν diag(1/L), V = LLᵀ",
    )
    def _(value: Tensor, df: Tensor, matrix: Tensor) -> Tensor:
        factor = scale_tril_of(given, matrix)
        inverse = inverse_of_factor(factor)
        slope = inverse.mT @ (inverse @ value @ inverse.mT)
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        return slope.tril() - torch.diag_embed(df.unsqueeze(-1) / diagonal)


def _wishart_df(value: Tensor, df: Tensor, factor: Tensor) -> Tensor:
    """In Bartlett's coordinates: the diagonal of ``L⁻¹ chol(X)`` squared is chi-square, ν − i."""
    own = torch.linalg.cholesky(value).diagonal(dim1=-2, dim2=-1)
    order = torch.arange(own.shape[-1], dtype=own.dtype, device=own.device)
    freedom = df.unsqueeze(-1) - order
    expected = factor.diagonal(dim1=-2, dim2=-1) * freedom.sqrt()
    return (log_ratio(own, expected) + digamma_gap(freedom / 2) / 2).sum(-1)


for _name in _GIVEN:
    _register_multivariate_normal(_name)
    _register_wishart(_name)


@_low_rank_multivariate_normal(
    "loc", name="low-rank normal, mean", equation="v = Σ⁻¹(x − μ), Σ = FFᵀ + diag D"
)
def low_rank_loc(value: Tensor, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> Tensor:
    """``Σ⁻¹d = (d − F (I + FᵀD⁻¹F)⁻¹ FᵀD⁻¹d)/D`` (Woodbury), and one step of refinement."""
    difference = value - loc
    solved = _solve_factor(cov_factor, cov_diag)  # Σ⁻¹F

    def solve(vector: Tensor) -> Tensor:
        scaled = vector / cov_diag
        return scaled - _apply(solved, _apply(cov_factor.mT, scaled))

    v = solve(difference)
    covered = _apply(cov_factor, _apply(cov_factor.mT, v)) + cov_diag * v
    return v + solve(difference - covered)


@_low_rank_multivariate_normal(
    "cov_factor",
    name="low-rank normal, factor",
    equation="v vᵀF − Σ⁻¹F, v = Σ⁻¹(x − μ), Σ = FFᵀ + diag D",
)
def low_rank_factor(value: Tensor, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> Tensor:
    """``2 G F`` with ``G = ½(v vᵀ − Σ⁻¹)``."""
    v = low_rank_loc(value, loc, cov_factor, cov_diag)
    solved = _solve_factor(cov_factor, cov_diag)  # Σ⁻¹F, and with it Fᵀv = (Σ⁻¹F)ᵀ d
    return _outer(v, _apply(solved.mT, value - loc)) - solved


@_low_rank_multivariate_normal(
    "cov_diag",
    name="low-rank normal, diagonal",
    equation="½(v² − diag Σ⁻¹), v = Σ⁻¹(x − μ), Σ = FFᵀ + diag D",
)
def low_rank_diag(value: Tensor, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> Tensor:
    """``diag G`` with ``G = ½(v vᵀ − Σ⁻¹)``."""
    v = low_rank_loc(value, loc, cov_factor, cov_diag)
    return (v * v - _precision_diagonal(cov_factor, cov_diag)) / 2


def _precision_diagonal(cov_factor: Tensor, cov_diag: Tensor) -> Tensor:
    """``diag Σ⁻¹``: one over the variance of each entry given the others, ``D + fᵀC₋⁻¹f``.

    Unlike ``(1 − leverage)/D`` it does not cancel; C₋ is the capacitance without the entry's row.
    """
    rows = cov_factor / cov_diag.sqrt().unsqueeze(-1)
    products = _outer(rows, rows)
    none = torch.zeros_like(products[..., :1, :, :])
    before = torch.cat([none, products[..., :-1, :, :].cumsum(-3)], -3)
    after = torch.cat([products[..., 1:, :, :].flip(-3).cumsum(-3).flip(-3), none], -3)
    identity = torch.eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
    factor = torch.linalg.cholesky(identity + before + after)
    half: Tensor = torch.linalg.solve_triangular(factor, rows.unsqueeze(-1), upper=False)
    return 1 / (cov_diag * (1 + (half * half).sum((-1, -2))))


def _solve_factor(cov_factor: Tensor, cov_diag: Tensor) -> Tensor:
    """``Σ⁻¹F = D⁻¹F (I + FᵀD⁻¹F)⁻¹``, which costs a matrix of the rank only."""
    scaled = cov_factor / cov_diag.unsqueeze(-1)
    rank = cov_factor.shape[-1]
    identity = torch.eye(rank, dtype=cov_factor.dtype, device=cov_factor.device)
    capacitance = torch.linalg.cholesky(identity + cov_factor.mT @ scaled)
    solved: Tensor = torch.cholesky_solve(scaled.mT, capacitance).mT
    return solved


@register_eligibility(
    LKJCholesky,
    "concentration",
    name="LKJ, concentration",
    equation="Σ_i [2 ln L_ii − ψ(η + (d − 1 − i)/2) + ψ(η + (d − 1)/2)], i = 1 … d − 1",
    reference="exponential family; Lewandowski, Kurowicka & Joe 2009",
    symbols={"L": "value", "η": "concentration", "d": "dim"},
)
def lkj_concentration(value: Tensor, concentration: Tensor, dim: int) -> Tensor:
    """Each ``L_ii²`` is a beta, ``Beta(η + (d − 1 − i)/2, i/2)``: the sum of their scores."""
    square = value.diagonal(dim1=-2, dim2=-1)[..., 1:] ** 2
    others = torch.arange(1, dim, dtype=value.dtype, device=value.device) / 2
    own = concentration.unsqueeze(-1) + ((dim - 1) / 2 - others)
    return log_less_mean(square, own, others.expand_as(own)).sum(-1)
