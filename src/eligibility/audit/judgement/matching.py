"""Finds the composition that explains every path, and the weights that the program really gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.catalogue import Candidate, candidates
from eligibility.audit.judgement.critic import (
    Advantage,
    baselines,
    bootstraps,
    entropy_columns,
    fit_advantage,
    is_affine,
    linear_columns,
    whitened,
)
from eligibility.audit.judgement.evidence import Evidence, joined
from eligibility.audit.judgement.timeline import Timeline, timeline

_Search = Callable[[Timeline, "Constants"], Iterator[Candidate | Advantage]]
# Paths that a composition must explain before all of them are tried: so many, or fewer long ones.
_SAMPLE, _SAMPLED_STEPS = 16, 2000
_LONG = 200  # decisions of a batch beyond which each composition takes a millisecond
_SHARE = 1e-3  # a match must come from the composition itself, not from what may be added


@dataclass(frozen=True)
class Constants:
    """Numbers that the program may mean.

    Attributes:
        discounts: γ.
        decays: λ.
        epsilons: Added to a divisor.
    """

    discounts: tuple[float, ...] = (0.99, 0.9, 0.95, 1.0)
    decays: tuple[float, ...] = (0.0, 1.0, 0.95)
    epsilons: tuple[float, ...] = (0.0,)


@dataclass(frozen=True)
class Match:
    """A composition that explains the gradient of every path.

    Attributes:
        form: The composition.
        use: Which decisions entered: all, or only "complete-episodes" or "first-episodes".
        scale: Its constant factor; negative: the sign is wrong.
        entropy: Factor of the entropy's gradient, relative to ``scale``; 0 for none.
        residual: ‖gradient − explanation‖ / ‖gradient‖ over all paths.
    """

    form: Candidate | Advantage
    use: str
    scale: float
    entropy: float
    residual: float

    @property
    def plain(self) -> Candidate:
        """The composition without the critic's values."""
        return self.form.form if isinstance(self.form, Advantage) else self.form


def find_match(
    evidence: Evidence, constants: Constants, tolerance: float, critic: bool
) -> Match | None:
    """The plainest composition within ``tolerance``, or None.

    Args:
        evidence: What was observed.
        constants: Numbers that the program may mean.
        tolerance: Residuals below it are rounding.
        critic: Whether the optimizer also trains what is no policy.
    """
    parts = [(use, evidence.restricted(mask)) for use, mask in uses(evidence)]
    values = (_with_baseline, *((_with_critic,) if critic else ()))
    searches: tuple[_Search, ...] = (_plain, *values)
    if evidence.present.shape[1] > _LONG:  # most of the time would go to the rarest
        searches = (_plainer, *values, _plain)
    # a standard deviation of one element, or of equal ones, is no explanation
    with np.errstate(all="ignore"):
        for search, (use, part) in product(searches, parts):
            match = _plainest(part, use, search, constants, tolerance)
            if match is not None:
                return match
    return None


def _plainest(
    evidence: Evidence, use: str, search: _Search, constants: Constants, tolerance: float
) -> Match | None:
    """The first composition that fits; of equally plain ones, one whose scale is ±1.

    Where all episodes are equally long, a mean is a sum times a constant: then the scale decides.
    """
    sample = evidence.where(_few(evidence))
    few, all_ = timeline(sample), timeline(evidence)
    best: Match | None = None
    for form in search(all_, constants):
        if best is not None and _involved(form) > best.plain.involved:
            break
        if _fit(sample, few, form, use, tolerance) is None:
            continue
        match = _fit(evidence, all_, form, use, tolerance)
        if match is not None and abs(abs(match.scale) - 1.0) < max(1e-6, tolerance):
            return match
        best = best or match
    return best


def _involved(form: Candidate | Advantage) -> int:
    return (form.form if isinstance(form, Advantage) else form).involved


def _plain(line: Timeline, constants: Constants) -> Iterator[Candidate | Advantage]:
    return candidates(line, constants.discounts, constants.epsilons)


def _plainer(line: Timeline, constants: Constants) -> Iterator[Candidate | Advantage]:
    return candidates(line, constants.discounts, constants.epsilons, parts=2)


def _with_baseline(line: Timeline, constants: Constants) -> Iterator[Candidate | Advantage]:
    return baselines(line, constants.discounts, constants.epsilons)


def _with_critic(line: Timeline, constants: Constants) -> Iterator[Candidate | Advantage]:
    yield from bootstraps(line, constants.discounts, constants.decays)
    yield from whitened(line, constants.discounts, constants.decays, constants.epsilons)


def same_rule(first: Evidence, second: Evidence, match: Match, tolerance: float) -> bool:
    """Whether the rule of ``first`` explains ``second`` as well, with the same critic's values.

    The second may have a constant baseline of its own, and a positive factor if it has no critic.
    """
    masks = [dict(uses(each)).get(match.use, each.present) for each in (first, second)]
    both = joined(first.restricted(masks[0]), second.restricted(masks[1]))
    line, form = timeline(both), match.form
    later = np.zeros(both.ascent.shape, dtype=bool)
    later[first.paths :] = True
    with np.errstate(all="ignore"):
        if isinstance(form, Advantage):
            if not is_affine(form):
                fit = fit_advantage(both, line, form)
                return fit is not None and fit.residual < tolerance
            columns = linear_columns(both, line, form)
        else:
            column = np.einsum("pi,pid->pd", form.weights(line), both.eligibility).ravel()
            columns = [column, column * later.ravel(), *entropy_columns(both, line, form.norm)]
        constant = match.plain.finished(line.present.astype(float), line)
    columns.append(np.einsum("pi,pid->pd", constant, both.eligibility).ravel() * later.ravel())
    matrix, target = np.array(columns).T, both.ascent.ravel()
    if not np.isfinite(matrix).all():
        return False
    factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
    left = (target - matrix @ factors).reshape(later.shape)[first.paths :]
    opposite = not isinstance(form, Advantage) and (factors[0] + factors[1]) * factors[0] <= 0
    size = float(np.linalg.norm(both.ascent[first.paths :]))
    return bool(np.linalg.norm(left) < tolerance * max(size, 1e-300)) and not opposite


def _few(evidence: Evidence) -> Booleans:
    """[P] some of the longest paths: enough to refuse a composition."""
    chosen = np.zeros(evidence.paths, dtype=bool)
    steps = evidence.present.sum(axis=1)
    count = min(_SAMPLE, max(2, _SAMPLED_STEPS // max(int(steps.max(initial=1)), 1)))
    chosen[np.argsort(-steps, kind="stable")[:count]] = True
    return chosen


def uses(evidence: Evidence) -> Iterator[tuple[str, Booleans]]:
    """Which decisions a program may use: a rollout can end within an episode."""
    present = evidence.present
    yield "", present
    line = timeline(evidence)
    complete = present & (line.total(evidence.terminated | evidence.truncated, "episode") > 0)
    if (complete != present).any():
        yield "complete-episodes", complete
    first = present & (evidence.episode == 0)
    if (first != present).any() and (first != complete).any():
        yield "first-episodes", first


def _fit(
    evidence: Evidence, line: Timeline, form: Candidate | Advantage, use: str, tolerance: float
) -> Match | None:
    """The match of ``form``, if it explains the gradients within ``tolerance``."""
    if isinstance(form, Advantage):
        fit = fit_advantage(evidence, line, form)
        if fit is None or fit.residual >= tolerance or fit.scale == 0.0:
            return None
        return Match(form, use, fit.scale, fit.entropy, fit.residual)
    weights = form.weights(line)
    if not np.isfinite(weights).all():
        return None
    column = np.einsum("pi,pid->pd", weights, evidence.eligibility).ravel()
    matrix = np.stack([column, *entropy_columns(evidence, line, form.norm)], axis=1)
    target = evidence.ascent.ravel()
    size = float(np.linalg.norm(target))
    factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
    residual = float(np.linalg.norm(target - matrix @ factors)) / size
    scale, entropy = float(factors[0]), float(factors[1:].sum())
    if float(np.linalg.norm(matrix[:, 1:] @ factors[1:])) < tolerance * size:
        entropy = 0.0  # a policy so close to uniform that its entropy hardly moves
    if residual >= tolerance or abs(scale) * float(np.linalg.norm(column)) < _SHARE * size:
        return None
    return Match(form, use, scale, entropy / scale, residual)


def effective_weights(evidence: Evidence) -> tuple[Array, Array]:
    """[P, I] the reinforcement that each action got, and [P] the share of the gradient beyond it.

    The least-squares solution of ``−gradient = Σ_i w_i e_i`` on every path, the smallest one where
    two decisions have the same eligibility.
    """
    weights = np.zeros(evidence.present.shape)
    outside = np.zeros(evidence.paths)
    for p in range(evidence.paths):
        here = evidence.present[p]
        basis = evidence.eligibility[p, here].T
        solution = np.linalg.lstsq(basis, evidence.ascent[p], rcond=1e-9)[0]
        weights[p, here] = solution
        size = float(np.linalg.norm(evidence.ascent[p]))
        if size > 0:
            outside[p] = float(np.linalg.norm(evidence.ascent[p] - basis @ solution)) / size
    return weights, outside
