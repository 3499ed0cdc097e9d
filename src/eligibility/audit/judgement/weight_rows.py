"""The table of effective weights: what one path's actions were given, beside REINFORCE's."""

from __future__ import annotations

import numpy as np

from eligibility.audit.judgement.catalogue import Candidate, norm_factor
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.exact import Bias
from eligibility.audit.judgement.matching import Match, effective_weights
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.reporting.report import WeightRow

_MOST = 12


def weight_rows(
    evidence: Evidence, line: Timeline, match: Match | None, measured: Bias
) -> tuple[WeightRow, ...]:
    """Of the longest path on which REINFORCE's weights differ most from one another."""
    reinforce = line.discounted(measured.discount) * measured.discount**line.time * line.present
    spread = np.where(line.steps == line.steps.max(), np.ptp(reinforce, axis=1), -1.0)
    p = int(np.argmax(spread))
    scale = match.scale if match else measured.scale
    if evidence.identifiable:
        given, _ = effective_weights(evidence)
    elif match is not None and isinstance(match.form, Candidate):
        # more actions than directions; but the rule explains the gradient
        given = scale * match.form.weights(line)
    else:
        return ()
    if match is not None and match.plain.norm in ("mean-over-time", "mean-over-episodes"):
        scale *= float(norm_factor(match.plain.norm, line)[p, 0])
    unit = abs(scale) if scale and np.isfinite(scale) else 1.0
    return tuple(
        WeightRow(
            int(evidence.environment[p, i]),
            int(evidence.time[p, i]),
            float(evidence.reward[p, i]),
            float(given[p, i]) / unit,
            float(reinforce[p, i]),
        )
        for i in range(min(int(line.steps[p]), _MOST))
    )
