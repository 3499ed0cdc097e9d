"""Whether a later update follows the rule of the first one."""

from __future__ import annotations

import numpy as np

from eligibility.audit.arrays import Booleans
from eligibility.audit.judgement.advantage import Advantage, is_affine
from eligibility.audit.judgement.critic import fit_advantage, linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence, joined
from eligibility.audit.judgement.match import Match, with_rewards
from eligibility.audit.judgement.matching import uses
from eligibility.audit.judgement.timeline import timeline

_SITUATIONS = 16  # states at a time, to each of which a baseline may give a number


def same_rule(first: Evidence, second: Evidence, match: Match, tolerance: float) -> bool:
    """Whether the rule of ``first`` explains ``second`` as well, with the same critic's values.

    The second may have its own constant baseline; without a critic, one for each state and time,
    which follows from the first update, and a positive factor.
    """
    masks = [dict(uses(each)).get(match.use, each.present) for each in (first, second)]
    both = joined(first.restricted(masks[0]), second.restricted(masks[1]))
    both = with_rewards(both, match.rewards, match.added)
    line, form = timeline(both), match.form
    later = np.zeros(both.ascent.shape, dtype=bool)
    later[first.paths :] = True
    situations = [both.present]
    with np.errstate(all="ignore"):
        if isinstance(form, Advantage):
            if not is_affine(form):
                fit = fit_advantage(both, line, form, tolerance)
                return fit is not None and fit.residual < tolerance
            columns = linear_columns(both, line, form)
        else:
            column = both.gradient(form.weights(line)).ravel()
            columns = [column, column * later.ravel()]
            situations = _situations(both, later[:, 0])
        columns += entropy_columns(both, line, form.norm)
        columns += [
            both.gradient(match.plain.finished(here.astype(float), line)).ravel() * later.ravel()
            for here in situations
        ]
    matrix, target = np.array(columns).T, both.ascent.ravel()
    if not np.isfinite(matrix).all():
        return False
    factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
    left = (target - matrix @ factors).reshape(later.shape)[first.paths :]
    opposite = not isinstance(form, Advantage) and (factors[0] + factors[1]) * factors[0] <= 0
    size = float(np.linalg.norm(both.ascent[first.paths :]))
    return bool(np.linalg.norm(left) < tolerance * max(size, 1e-300)) and not opposite


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
