"""A test for programs whose paths are too many, or whose randomness cannot be enumerated.

Of every run, ascent − c·Σ_t w_t ∇ ln π(a_t|s_t) has the mean 0 if the program's expected gradient
is c times the one that the weights w estimate without bias. Hotelling's T² asks whether the mean
over independent runs is further from 0 than chance brings it; the scale c, which is nobody's fault,
is the one that makes T² least, at the price of one degree of freedom.

References:
    Hotelling 1931, *The generalization of Student's ratio*, Annals of Mathematical Statistics 2.
    Hansen, Heaton & Yaron 1996, *Finite-sample properties of some alternative GMM estimators*,
    Journal of Business & Economic Statistics 14: the minimum over c (continuously updated).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.exact import policy_terms
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.sections import refined

_MOST_TERMS = 300  # of a continued fraction

# Probability with which a program without bias is called biased.
FALSE_POSITIVES = 0.001
EPISODES = 500  # the least that are looked at
RUNS = 100  # and the least number of independent runs, so that the covariance is known
# A bias of this share of the gradient must be visible before its absence is called unbiased.
VISIBLE = 0.1
_RANK = 1e-12  # variances below this share of the terms' are rounding, no dimension of the sample


@dataclass(frozen=True)
class Test:
    """How well the runs fit one hypothesis.

    Attributes:
        discount: γ.
        time_discount: Whether the weights carry γ^t; without it they are the customary convention.
        scale: c.
        statistic: T².
        degrees: Of freedom.
        runs: Independent runs.
        p_value: Probability of a T² at least this large if there is no bias.
        visible: Relative bias that the sample shows: twice its standard error over the gradient.
    """

    discount: float
    time_discount: bool
    scale: float
    statistic: float
    degrees: int
    runs: int
    p_value: float
    visible: float


def best_test(evidence: Evidence, line: Timeline, discounts: Sequence[float]) -> Test:
    """The hypothesis that the runs fit best: a discount, with γ^t or without."""
    hypotheses = [
        (discount, time_discount)
        for discount in discounts
        for time_discount in ((True, False) if discount != 1.0 else (True,))
    ]
    tests = [
        replace(
            hotelling(evidence.ascent, policy_terms(evidence, line, *hypothesis)),
            discount=hypothesis[0],
            time_discount=hypothesis[1],
        )
        for hypothesis in hypotheses
    ]
    return max(tests, key=lambda test: (test.p_value, -test.statistic))


def hotelling(ascent: Array, terms: Array) -> Test:
    """The test of E[ascent] = c·E[terms] for some c.

    Args:
        ascent: [n, D] the program's of each run.
        terms: [n, D] what it is compared with.

    Returns:
        The test; its hypothesis is left at γ = 1.
    """
    runs, width = ascent.shape
    left, right = ascent.mean(axis=0), terms.mean(axis=0)
    joint = np.cov(np.hstack([ascent, terms]), rowvar=False, ddof=1)

    def moments(scale: float) -> tuple[Array, Array, float]:
        """Mean and covariance of the difference, and the size of what it is the difference of."""
        factor = np.hstack([np.eye(width), -scale * np.eye(width)])
        sizes = np.diag(joint)
        whole = float(sizes[:width].sum() + scale**2 * sizes[width:].sum() + left @ left)
        return left - scale * right, factor @ joint @ factor.T, whole

    scale = _minimum(lambda c: _statistic(runs, *moments(c))[0], _least_squares(left, right))
    _, covariance, _ = moments(scale)
    statistic, rank = _statistic(runs, *moments(scale))
    degrees = max(rank - 1, 1)
    tail = survival(statistic * (runs - degrees) / (degrees * (runs - 1)), degrees, runs - degrees)
    size = float(np.linalg.norm(scale * right))
    error = float(np.sqrt(max(np.trace(covariance), 0.0) / runs))
    visible = 2.0 * error / size if size else np.inf
    return Test(1.0, True, scale, statistic, degrees, runs, tail if rank else 1.0, visible)


def _statistic(runs: int, mean: Array, covariance: Array, size: float) -> tuple[float, int]:
    """T² = n m̄ᵀ S⁺ m̄ and the rank of S; a mean outside of S's range counts as infinite."""
    values, vectors = np.linalg.eigh(covariance)
    keep = values > _RANK * size
    along = vectors.T @ mean
    if float(np.linalg.norm(along[~keep])) > np.sqrt(_RANK * size):
        return np.inf, int(keep.sum())
    return runs * float((along[keep] ** 2 / values[keep]).sum()), int(keep.sum())


def _least_squares(left: Array, right: Array) -> float:
    square = float(right @ right)
    return float(left @ right) / square if square else 0.0


def _minimum(function: Callable[[float], float], start: float) -> float:
    width = max(abs(start), 1e-6)
    return refined(function, start, 2.0 * width, (-np.inf, np.inf))


def survival(value: float, numerator: int, denominator: int) -> float:
    """P(F > value) of a variable of Fisher's and Snedecor's F distribution."""
    if not np.isfinite(value):
        return 0.0
    whole = denominator + numerator * value
    a, b = denominator / 2.0, numerator / 2.0
    return _incomplete_beta(a, b, denominator / whole, numerator * value / whole)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function of x = 1 − rest, by its continued fraction.

    References:
        Abramowitz and Stegun 1964, 26.5.8; evaluated from the front by Lentz's method.
    """
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # there it converges slowly
        return 1.0 - _incomplete_beta(b, a, rest, x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    factor = math.exp(scale + a * math.log(x) + b * math.log(rest)) / a
    fraction, above, below = 1.0, 1.0, 0.0
    for step in range(_MOST_TERMS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + step - 1.0) * (a + step))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1.0) * (a + step))
        below = 1.0 / (1.0 + term * below)
        above = 1.0 + term / above
        fraction *= above * below
        if abs(above * below - 1.0) < 1e-15:
            break
    return factor * (fraction - 1.0)
