"""Distributions of vectors and matrices, and a mixture; parameters are lists of mpmath numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import torch
from mpmath import mpf
from torch import Tensor, distributions

from benchmarks.exactness.family import Columns, Draws, Family

INF = float("inf")
K = 4  # categories
Vector = list[mpf]
Matrix = list[Vector]


def _weights_of(logits: Vector, **_: Any) -> Vector:
    largest = max(logits)
    weights = [mp.exp(z - largest) for z in logits]
    total = mp.fsum(weights)
    return [weight / total for weight in weights]


def _logits_of(probs: Vector, **_: Any) -> Vector:
    return [mp.log(p) if p else -mp.inf for p in probs]


def _counts(value: Vector, probs: Vector) -> mpf:
    """``Σ y_k ln(w_k/Σw)``."""
    total = mp.fsum(probs)
    return mp.fsum(y * mp.log(w / total) for y, w in zip(value, probs, strict=True) if y)


def _counts_by_logits(value: Vector, logits: Vector) -> mpf:
    largest = max(logits)
    normaliser = largest + mp.log(mp.fsum(mp.exp(z - largest) for z in logits))
    return mp.fsum(y * (z - normaliser) for y, z in zip(value, logits, strict=True) if y)


def _one_hot(value: mpf) -> Vector:
    return [mpf(k == int(value)) for k in range(K)]


def _categories(
    label: str,
    build: Callable[..., Any],
    outcome: Callable[[Draws], Tensor],
    indexed: bool = False,
) -> list[Family]:
    """By probs and by logits, each with the rule for the other."""
    read = _one_hot if indexed else (lambda value: value)

    def by_probs(value: Any, probs: Vector) -> mpf:
        return _counts(read(value), probs)

    def by_logits(value: Any, logits: Vector) -> mpf:
        return _counts_by_logits(read(value), logits)

    def probs_draw(d: Draws) -> Columns:
        weights = d.log(-12, 0, K)
        return {"probs": weights / weights.sum(-1, keepdim=True), "value": outcome(d)}

    def logits_draw(d: Draws) -> Columns:
        return {"logits": d.signed(-3, 1.8, K), "value": outcome(d)}

    first = 0.0 if indexed else [1.0, *[0.0] * (K - 1)]
    if label == "Multinomial":
        first = [7.0, 0.0, 0.0, 0.0]
    return [
        Family(label, build, by_probs, probs_draw,
               ({"probs": [1.0, 0.0, 0.0, 0.0], "value": first},
                {"probs": [1e-30, 0.5, 0.5, 0.0], "value": first}),
               whole=("value",), converted={"logits": (_logits_of, by_logits)}),
        Family(label, build, by_logits, logits_draw,
               tuple({"logits": logits, "value": first} for logits in
                     ([1e4, 0.0, -1e4, -INF], [0.0, -INF, -INF, 1.0], [40.0, 0.0, 1.0, 2.0],
                      [9.0, 0.0, -1.0, -2.0])),
               whole=("value",), converted={"probs": (_weights_of, by_probs)}),
    ]  # fmt: skip


def _discrete() -> list[Family]:
    def index(d: Draws) -> Tensor:
        return d.uniform(0, K).floor()

    def one_hot(d: Draws) -> Tensor:
        return torch.nn.functional.one_hot(index(d).long(), K).double()

    def counts(d: Draws) -> Tensor:
        draws = torch.stack([one_hot(d) for _ in range(7)])
        return draws.sum(0)

    def multinomial(**arguments: Any) -> distributions.Multinomial:
        return distributions.Multinomial(7, **arguments)

    return [
        *_categories("Categorical", distributions.Categorical, index, indexed=True),
        *_categories("OneHotCategorical", distributions.OneHotCategorical, one_hot),
        *_categories("Multinomial", multinomial, counts),
    ]


def _simplex() -> list[Family]:
    def dirichlet(value: Vector, concentration: Vector) -> mpf:
        gammas = mp.fsum(mp.loggamma(a) for a in concentration)
        powers = mp.fsum((a - 1) * mp.log(y) for a, y in zip(concentration, value, strict=True))
        return powers + mp.loggamma(mp.fsum(concentration)) - gammas

    def dirichlet_draw(d: Draws) -> Columns:
        alpha = d.log(-3, 4, 3)
        value = alpha * torch.exp(d.uniform(-1, 1, 3))
        return {"concentration": alpha, "value": value / value.sum(-1, keepdim=True)}

    def logistic_normal(value: Vector, loc: Vector, scale: Vector) -> mpf:
        """What remains of the stick is the sum of the later pieces."""
        result = mpf(0)
        for k, (mean, deviation) in enumerate(zip(loc, scale, strict=True)):
            pieces = len(value) - 1 - k
            x = mp.log(pieces * value[k] / mp.fsum(value[k + 1 :]))
            result += -(((x - mean) / deviation) ** 2) / 2 - mp.log(deviation)
        return result

    def logistic_draw(d: Draws) -> Columns:
        weights = d.log(-4, 0, 3)
        return {
            "loc": d.signed(-2, 1, 2),
            "scale": d.log(-2, 2, 2),
            "value": weights / weights.sum(-1, keepdim=True),
        }

    def relaxed(value: Vector, temperature: mpf, logits: Vector) -> mpf:
        scores = [z - temperature * mp.log(y) for z, y in zip(logits, value, strict=True)]
        largest = max(scores)
        normaliser = largest + mp.log(mp.fsum(mp.exp(score - largest) for score in scores))
        return mp.fsum(score - normaliser for score in scores)

    def relaxed_by_probs(value: Vector, temperature: mpf, probs: Vector) -> mpf:
        return relaxed(value, temperature, _logits_of(probs))

    def relaxed_draw(name: str) -> Callable[[Draws], Columns]:
        def draw(d: Draws) -> Columns:
            weights, point = d.log(-4, 0, 3), d.log(-6, 0, 3)
            probs = weights / weights.sum(-1, keepdim=True)
            return {
                name: probs if name == "probs" else d.signed(-3, 1, 3),
                "value": point / point.sum(-1, keepdim=True),
                "temperature": torch.full((d.points,), 0.5, dtype=torch.float64),
            }

        return draw

    def relaxed_build(temperature: Tensor, **given: Any) -> Any:
        return distributions.RelaxedOneHotCategorical(temperature[0], **given)

    return [
        Family("Dirichlet", distributions.Dirichlet, dirichlet, dirichlet_draw),
        Family("LogisticNormal", distributions.LogisticNormal, logistic_normal, logistic_draw),
        Family("RelaxedOneHotCategorical", relaxed_build, relaxed_by_probs, relaxed_draw("probs"),
               converted={"logits": (_logits_of, relaxed)}, fixed=("temperature",)),
        Family("RelaxedOneHotCategorical", relaxed_build, relaxed, relaxed_draw("logits"),
               converted={"probs": (_weights_of, relaxed_by_probs)}, fixed=("temperature",)),
    ]  # fmt: skip


def _determinant(matrix: Matrix) -> mpf:
    (a, b), (c, d) = matrix
    return a * d - b * c


def _inverse(matrix: Matrix) -> Matrix:
    (a, b), (c, d) = matrix
    det = _determinant(matrix)
    return [[d / det, -b / det], [-c / det, a / det]]


def _square(factor: Matrix) -> Matrix:
    """``L Lᵀ``; what is above the diagonal of L is not read."""
    (a, _), (b, c) = factor
    return [[a * a, a * b], [a * b, b * b + c * c]]


_COVARIANCE: dict[str, Callable[[Matrix], Matrix]] = {
    "covariance_matrix": lambda matrix: matrix,
    "precision_matrix": _inverse,
    "scale_tril": _square,
}


def _matrix(d: Draws, given: str) -> Tensor:
    """2 × 2, of condition number up to about 1e3."""
    factor = torch.zeros(d.points, 2, 2, dtype=torch.float64)
    factor[:, 0, 0], factor[:, 1, 1] = d.log(-1, 0.5), d.log(-1, 0.5)
    factor[:, 1, 0] = d.signed(-1, 0)
    return factor if given == "scale_tril" else factor @ factor.mT


def _gaussian(given: str) -> Family:
    def density(value: Vector, loc: Vector, **matrix: Matrix) -> mpf:
        covariance = _COVARIANCE[given](matrix[given])
        precision = _inverse(covariance)
        d = [x - m for x, m in zip(value, loc, strict=True)]
        form = mp.fsum(d[i] * precision[i][j] * d[j] for i in range(2) for j in range(2))
        return -(form + mp.log(_determinant(covariance))) / 2

    def draw(d: Draws) -> Columns:
        loc = d.signed(-1, 1, 2)
        return {"loc": loc, given: _matrix(d, given), "value": loc + d.signed(-1, 1, 2)}

    symmetric = () if given == "scale_tril" else (given,)
    return Family(
        "MultivariateNormal", distributions.MultivariateNormal, density, draw, symmetric=symmetric
    )


def _wishart(given: str) -> Family:
    def density(value: Matrix, df: mpf, **matrix: Matrix) -> mpf:
        scale = _COVARIANCE[given](matrix[given])
        inverse = _inverse(scale)
        trace = mp.fsum(inverse[i][j] * value[j][i] for i in range(2) for j in range(2))
        gammas = mp.loggamma(df / 2) + mp.loggamma((df - 1) / 2)
        power = (df - 3) / 2 * mp.log(_determinant(value)) - trace / 2
        return power - df * mp.log(2) - df / 2 * mp.log(_determinant(scale)) - gammas

    def draw(d: Draws) -> Columns:
        return {"df": 2 + d.log(-1, 2), given: _matrix(d, given), "value": _matrix(d, "covariance")}

    symmetric = () if given == "scale_tril" else (given,)
    return Family("Wishart", distributions.Wishart, density, draw, symmetric=symmetric)


def _other_matrices() -> list[Family]:
    def low_rank(value: Vector, loc: Vector, cov_factor: Matrix, cov_diag: Vector) -> mpf:
        (f,), (g,) = cov_factor
        covariance = [[f * f + cov_diag[0], f * g], [f * g, g * g + cov_diag[1]]]
        d = [x - m for x, m in zip(value, loc, strict=True)]
        inverse = _inverse(covariance)
        form = mp.fsum(d[i] * inverse[i][j] * d[j] for i in range(2) for j in range(2))
        return -(form + mp.log(_determinant(covariance))) / 2

    def low_rank_draw(d: Draws) -> Columns:
        loc = d.signed(-1, 1, 2)
        return {
            "loc": loc,
            "cov_factor": d.signed(-1, 0.5, 2, 1),
            "cov_diag": d.log(-1, 1, 2),
            "value": loc + d.signed(-1, 1, 2),
        }

    def lkj(value: Matrix, concentration: mpf) -> mpf:
        """Lewandowski, Kurowicka & Joe 2009, in the Cholesky factor of a 3 × 3 correlation."""
        alpha = concentration + 1
        powers = (2 * concentration - 1) * mp.log(value[1][1])
        powers += (2 * concentration - 2) * mp.log(value[2][2])
        gammas = mp.loggamma(alpha - mpf(1) / 2) + mp.loggamma(alpha - 1)
        return powers - gammas + 2 * mp.loggamma(alpha)

    def lkj_draw(d: Draws) -> Columns:
        rows = torch.tril(d.signed(-2, 0, 3, 3))
        rows = rows / rows.norm(dim=-1, keepdim=True)
        diagonal = rows.diagonal(dim1=-2, dim2=-1).abs()
        value = torch.diagonal_scatter(rows, diagonal, dim1=-2, dim2=-1)
        return {"concentration": d.log(-2, 3), "value": value}

    def lkj_build(concentration: Tensor, validate_args: bool) -> Any:
        return distributions.LKJCholesky(3, concentration, validate_args=validate_args)

    return [
        Family("LowRankMultivariateNormal", distributions.LowRankMultivariateNormal, low_rank,
               low_rank_draw),
        Family("LKJCholesky", lkj_build, lkj, lkj_draw),
    ]  # fmt: skip


def _mixture() -> Family:
    paths = {
        "mixture_distribution.logits": "logits",
        "component_distribution.loc": "loc",
        "component_distribution.scale": "scale",
    }

    def density(value: mpf, **given: Vector) -> mpf:
        logits, loc, scale = (given[path] for path in paths)
        heights = [
            mp.exp(z - ((value - m) / s) ** 2 / 2) / s
            for z, m, s in zip(logits, loc, scale, strict=True)
        ]
        return mp.log(mp.fsum(heights)) - mp.log(mp.fsum(mp.exp(z) for z in logits))

    def draw(d: Draws) -> Columns:
        columns = [d.signed(-1, 0.5, 2), d.signed(-1, 0.5, 2), d.log(-0.3, 0.5, 2)]
        return {**dict(zip(paths, columns, strict=True)), "value": d.signed(-1, 0.5)}

    def build(validate_args: bool, **given: Tensor) -> Any:
        logits, loc, scale = (given[path] for path in paths)
        return distributions.MixtureSameFamily(
            distributions.Categorical(logits=logits, validate_args=validate_args),
            distributions.Normal(loc, scale, validate_args=validate_args),
            validate_args=validate_args,
        )

    return Family("MixtureSameFamily of Normal", build, density, draw)


def _transformed() -> Family:
    def density(value: mpf, loc: mpf, scale: mpf) -> mpf:
        return -(((mp.log((value - 1) / 2) - loc) / scale) ** 2) / 2 - mp.log(scale)

    def draw(d: Draws) -> Columns:
        loc, scale = d.signed(-2, 0.5), d.log(-1, 0.5)
        return {
            "loc": loc,
            "scale": scale,
            "value": 1 + 2 * torch.exp(loc + scale * d.signed(-1, 0.3)),
        }

    def build(loc: Tensor, scale: Tensor, validate_args: bool) -> Any:
        transforms = [
            distributions.ExpTransform(),
            distributions.AffineTransform(1.0, 2.0),
        ]
        return distributions.TransformedDistribution(
            distributions.Normal(loc, scale, validate_args=validate_args),
            transforms,
            validate_args=validate_args,
        )

    return Family("TransformedDistribution of Normal", build, density, draw)


VECTOR: list[Family] = [
    *_discrete(),
    *_simplex(),
    *(_gaussian(given) for given in _COVARIANCE),
    *(_wishart(given) for given in _COVARIANCE),
    *_other_matrices(),
    _mixture(),
    _transformed(),
]
