"""Finds the composition that explains every path, and the weights that the program really gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.catalogue import Candidate, candidates, norm_factor
from eligibility.audit.evidence import Evidence
from eligibility.audit.timeline import Timeline

# What may be added to any composition without being its fault, from the plainest on.
EXTRAS = ("", "entropy", "constant-baseline", "state-baseline", "entropy+state-baseline")
_SHARE = 1e-3  # a match must come from the composition itself, not from what may be added


@dataclass(frozen=True)
class Match:
    """A composition that explains the gradient of every path.

    Attributes:
        candidate: The composition.
        extra: What is added to it.
        scale: Its constant factor; negative: the sign is wrong.
        entropy: Factor of the entropy's gradient, relative to ``scale``.
        residual: ‖gradient − explanation‖ / ‖gradient‖ over all paths.
    """

    candidate: Candidate
    extra: str
    scale: float
    entropy: float
    residual: float


def find_match(
    evidence: Evidence,
    line: Timeline,
    discounts: Sequence[float],
    epsilons: Sequence[float],
    tolerance: float,
) -> Match | None:
    """The plainest composition within ``tolerance``, or None."""
    for extra in EXTRAS:
        bases = {norm: _basis(evidence, line, extra, norm) for norm in _norms()}
        reduced = {norm: _without(evidence.ascent.ravel(), base) for norm, base in bases.items()}
        size = float(np.linalg.norm(evidence.ascent))
        for candidate in candidates(line, discounts, epsilons):
            weights = candidate.weights(line)
            if not np.isfinite(weights).all():
                continue
            predicted = np.einsum("pi,pid->pd", weights, evidence.eligibility).ravel()
            column = _without(predicted, bases[candidate.norm])
            target = reduced[candidate.norm]
            square = float(column @ column)
            if square == 0.0:
                continue
            scale = float(column @ target) / square
            residual = float(np.linalg.norm(target - scale * column)) / size
            if residual < tolerance and abs(scale) * np.sqrt(square) > _SHARE * size:
                entropy = _entropy_factor(evidence, line, candidate, extra, scale, predicted)
                return Match(candidate, extra, scale, entropy, residual)
    return None


def effective_weights(evidence: Evidence) -> tuple[Array, Array]:
    """[P, I] the reinforcement that each action got, and [P] the share of the gradient beyond it.

    The least-squares solution of ``−gradient = Σ_i w_i e_i`` on every path, the smallest one where
    two decisions have the same eligibility.
    """
    weights = np.zeros(evidence.present.shape)
    outside = np.zeros(evidence.paths)
    for p in range(evidence.paths):
        count = int(evidence.present[p].sum())
        basis = evidence.eligibility[p, :count].T
        solution = np.linalg.lstsq(basis, evidence.ascent[p], rcond=1e-9)[0]
        weights[p, :count] = solution
        size = float(np.linalg.norm(evidence.ascent[p]))
        if size > 0:
            outside[p] = float(np.linalg.norm(evidence.ascent[p] - basis @ solution)) / size
    return weights, outside


def _norms() -> tuple[str, ...]:
    from eligibility.audit.catalogue import NORMS

    return NORMS


def _columns(evidence: Evidence, line: Timeline, extra: str, norm: str) -> Iterator[Array]:
    factor = norm_factor(norm, line) * line.present
    if "entropy" in extra:
        yield np.einsum("pi,pid->pd", factor, evidence.entropy).ravel()
    if "constant" in extra:
        yield np.einsum("pi,pid->pd", factor, evidence.eligibility).ravel()
    if "state" in extra:
        for state in range(int(evidence.state.max()) + 1):
            here = factor * (evidence.state == state)
            yield np.einsum("pi,pid->pd", here, evidence.eligibility).ravel()


def _basis(evidence: Evidence, line: Timeline, extra: str, norm: str) -> Array:
    """Orthonormal columns that span what may be added."""
    columns = list(_columns(evidence, line, extra, norm))
    if not columns:
        return np.zeros((evidence.ascent.size, 0))
    left, values, _ = np.linalg.svd(np.array(columns).T, full_matrices=False)
    basis: Array = left[:, values > 1e-10 * max(float(values.max()), 1e-300)]
    return basis


def _without(vector: Array, basis: Array) -> Array:
    return vector - basis @ (basis.T @ vector)


def _entropy_factor(
    evidence: Evidence,
    line: Timeline,
    candidate: Candidate,
    extra: str,
    scale: float,
    predicted: Array,
) -> float:
    if "entropy" not in extra:
        return 0.0
    columns = np.array(list(_columns(evidence, line, extra, candidate.norm))).T
    rest = evidence.ascent.ravel() - scale * predicted
    factors = np.linalg.lstsq(columns, rest, rcond=1e-10)[0]
    return float(factors[0]) / scale
