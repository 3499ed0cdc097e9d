"""Whether a later update follows the rule of the first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.advantage import Advantage, is_affine
from eligibility.audit.judgement.critic import fit_advantage, linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence, joined, merged
from eligibility.audit.judgement.importance_weights import weighted
from eligibility.audit.judgement.match import Match, with_offset, with_rewards
from eligibility.audit.judgement.matching import uses
from eligibility.audit.judgement.some_entropies import with_entropies
from eligibility.audit.judgement.timeline import timeline

_SAME = 1e-6  # difference of two factors that is none
_SITUATIONS = 16  # states at a time, to each of which a baseline may give a number


def same_rule(
    first: Evidence, second: Evidence, match: Match, tolerance: float, trained: bool = False
) -> bool:
    """Whether the rule of ``first`` explains ``second`` as well, with the same critic's values.

    The second may have its own constant baseline and, without a critic, a positive factor; or
    without a factor a number for each state and time, which follows from the first update, unless
    its values are of a critic that an optimizer has ``trained``: those the audit keeps as they are.
    """
    if match.merged:
        first, second = merged(first), merged(second)
    first, second = (weighted(each, match.weights) for each in (first, second))
    masks = [dict(uses(each)).get(match.use, each.present) for each in (first, second)]
    both = joined(first.restricted(masks[0]), second.restricted(masks[1]))
    both = with_offset(with_rewards(both, match.rewards, match.added), match.offset)
    both = with_entropies(both, match.entropies)
    line, form = timeline(both), match.form
    later = np.zeros(both.ascent.shape, dtype=bool)
    later[first.paths :] = True
    with np.errstate(all="ignore"):
        if not isinstance(form, Advantage):
            column = both.gradient(form.weights(line)).ravel()
            columns = [column, column * later.ravel()]
        elif is_affine(form):
            columns = linear_columns(both, line, form)
        else:
            fit = fit_advantage(both, line, form, tolerance)
            return fit is not None and fit.residual < tolerance
        columns += entropy_columns(both, line, form.norm)

    def own(baseline: Sequence[Booleans]) -> list[Array]:
        """The gradients of the second's decisions with a number for each of these."""
        with np.errstate(all="ignore"):
            weights = [match.plain.finished(here.astype(float), line) for here in baseline]
        return [both.gradient(each).ravel() * later.ravel() for each in weights]

    def factor_with(baseline: Sequence[Booleans]) -> float:
        """The second's factor, relative to the first's; NaN if that does not explain it."""
        matrix, target = np.array([*columns, *own(baseline)]).T, both.ascent.ravel()
        if not np.isfinite(matrix).all():
            return float("nan")
        factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
        left = (target - matrix @ factors).reshape(later.shape)[first.paths :]
        size = float(np.linalg.norm(both.ascent[first.paths :]))
        if np.linalg.norm(left) >= tolerance * max(size, 1e-300):
            return float("nan")
        return 1.0 if isinstance(form, Advantage) else float(1.0 + factors[1] / factors[0])

    if factor_with([both.present]) > 0.0:
        return True
    free = not isinstance(form, Advantage) or (form.ending == "return" and not trained)
    return free and bool(abs(factor_with(_situations(both, later[:, 0])) - 1.0) < _SAME)


def _situations(evidence: Evidence, paths: Booleans) -> list[Booleans]:
    """[P, I] the decisions in each state at each time of these paths; all at once if many."""
    here = evidence.present & paths[:, None]
    met = set(zip(evidence.state[here].tolist(), evidence.time[here].tolist(), strict=True))
    if len(met) > _SITUATIONS:
        return [evidence.present]
    return [
        evidence.present & (evidence.state == state) & (evidence.time == time)
        for state, time in sorted(met)
    ]
