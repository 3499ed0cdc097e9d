"""The true policy gradient of the probe, and how far the program's expected gradient is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eligibility.audit.arrays import Array, as_multiple
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.sections import refined

_GRID: Array = np.linspace(0.0, 1.0, 21)
_FITTED = 2  # numbers that a fit chooses: γ and the scale


@dataclass(frozen=True)
class Bias:
    """The program's expected gradient against the true one.

    Attributes:
        scale: The factor c that brings the true gradient closest to the expected one.
        residual: ‖expected − c·true‖ / ‖expected‖.
        cosine: Cosine of the angle between the two.
        discount: γ of the return.
    """

    scale: float
    residual: float
    cosine: float
    discount: float


def policy_terms(evidence: Evidence, line: Timeline, discount: float, time_discount: bool) -> Array:
    """[P, D] Σ_t w_t ∇ ln π(a_t|s_t) of each run, with the reward-to-go as w."""
    weights = line.discounted(discount) * line.present
    if time_discount:
        weights = weights * discount**line.time
    return evidence.gradient(weights)


def policy_gradient(evidence: Evidence, line: Timeline, discount: float) -> Array:
    """[D] E[Σ_t γ^t e_t Σ_{k≥t} γ^(k−t) r_k], the gradient of E[Σ_t γ^t r_t], over all paths.

    Williams 1992, Theorem 2: this expectation is the gradient; and it is taken without sampling.
    """
    terms = policy_terms(evidence, line, discount, time_discount=True)
    return np.asarray(evidence.probability @ terms)


def bias(evidence: Evidence, line: Timeline, discount: float) -> Bias:
    """The bias for one discount."""
    expected = evidence.probability @ evidence.ascent
    return Bias(*as_multiple(expected, policy_gradient(evidence, line, discount)), discount)


def least_bias(evidence: Evidence, line: Timeline, discounts: Sequence[float]) -> Bias:
    """The discount that the program's expected gradient fits best; the first of equals."""
    return min((bias(evidence, line, discount) for discount in discounts), key=lambda b: b.residual)


def tells_discount(evidence: Evidence) -> bool:
    """Whether an expected gradient has more coordinates than γ and the scale can make up.

    With two of them, as in episodes of two steps, some γ fits almost every gradient.
    """
    slopes = evidence.eligibility.reshape(-1, evidence.eligibility.shape[-1])
    return bool(np.linalg.matrix_rank(slopes.T @ slopes, hermitian=True) > _FITTED)


def fitted_bias(evidence: Evidence, line: Timeline) -> Bias:
    """The discount of all in [0, 1] that the program's expected gradient fits best."""

    def residual(discount: float) -> float:
        return bias(evidence, line, discount).residual

    start = float(min(_GRID, key=residual))
    return bias(evidence, line, refined(residual, start, _GRID[1]))
