"""What one path's actions were given, and the credit behind it, next to REINFORCE's."""

from __future__ import annotations

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.catalogue import Candidate, norm_factor
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.exact import Bias
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.matching import effective_weights
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.reading import reinforce_credit
from eligibility.audit.judgement.timeline import Timeline
from eligibility.audit.reporting.report import Credit, WeightRow

_MOST = 12


def credit_of(measured: Measured | None, discount: float) -> Credit | None:
    """The measured credit next to REINFORCE's, each in units of its largest entry."""
    if measured is None or measured.kind in ("silent", "valued"):
        return None
    seen = measured.evidence
    several = len({*zip(seen.environment[0], seen.episode[0], strict=True)}) > 1
    names = tuple(
        f"t{time}" if not several else f"{chr(97 + int(actor))}{int(episode) + 1} t{time}"
        for actor, episode, time in zip(
            seen.environment[0], seen.episode[0], seen.time[0], strict=True
        )
    )
    given, right = (
        matrix / max(float(np.abs(matrix).max()), 1e-300)
        for matrix in (measured.credit, reinforce_credit(seen, discount))
    )
    return Credit(
        names,
        tuple(f"r({n})" for n in names),
        _rows(given),
        _rows(right),
        "each in units of its largest",
    )


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in matrix)


def weight_rows(
    evidence: Evidence, line: Timeline, match: Match | None, measured: Bias
) -> tuple[WeightRow, ...]:
    """The rows of the longest path on which REINFORCE's weights differ most from one another."""
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
