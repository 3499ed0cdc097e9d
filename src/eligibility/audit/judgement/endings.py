"""How the end of an episode enters an advantage, where the gradients of one policy fit two ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.judgement.advantage import ENDINGS, Advantage
from eligibility.audit.judgement.critic import linear_columns
from eligibility.audit.judgement.entropy import entropy_columns
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match, tells_apart
from eligibility.audit.judgement.matching import fitted, uses
from eligibility.audit.judgement.timeline import Timeline, timeline


def with_true_ending(evidence: Evidence, match: Match, tolerance: float) -> Match:
    """The match of a program that is known to look at what it sees after the end of an episode.

    The value v of the terminal state in the last advantage, r + γv − V(s), is the same as values
    V − v and a constant baseline, which a centred advantage loses. The gradients of one policy do
    not tell these two apart; that knowledge does.
    """
    form = match.form
    if not isinstance(form, Advantage) or form.ending:
        return match
    part = evidence.restricted(dict(uses(evidence)).get(match.use, evidence.present))
    line = timeline(part)
    with np.errstate(all="ignore"):
        if not form.form.transform and _without_constant(part, line, form) < tolerance:
            return match
        other = fitted(part, line, replace(form, ending=ENDINGS[2]), match.use, tolerance)
    return other or match


def with_blind_ending(evidence: Evidence, match: Match, tolerance: float) -> Match:
    """The match of a program that is known not to look at what it sees at a time limit.

    Values that depend on more than the state are free there: 0, where no value is taken.
    """
    form = match.form
    if not isinstance(form, Advantage) or form.ending or match.values is None:
        return match
    part = evidence.restricted(dict(uses(evidence)).get(match.use, evidence.present))
    line, faulty = timeline(part), replace(form, ending=ENDINGS[1])
    if not (part.truncated & part.present).any():
        return match
    with np.errstate(all="ignore"):
        other = fitted(part, line, faulty, match.use, tolerance)
    return other if other is not None and tells_apart(part, other) else match


def _without_constant(evidence: Evidence, line: Timeline, form: Advantage) -> float:
    """What share of the gradients ``form`` leaves, without a constant baseline next to V."""
    columns = linear_columns(evidence, line, form)[:-1]
    columns += entropy_columns(evidence, line, form.norm)
    matrix, target = np.array(columns).T, evidence.ascent.ravel()
    factors = np.linalg.lstsq(matrix, target, rcond=1e-11)[0]
    return float(np.linalg.norm(target - matrix @ factors) / np.linalg.norm(target))
