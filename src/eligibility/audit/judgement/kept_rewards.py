"""Rewards of the first update that are still added to the weights of the second one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.match import Match
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.rounds import Rounds, of_other_rewards
from eligibility.audit.running.runner import Runner

_ROUNDING = 1e-6  # relative size
_RANK = 1e-5  # relative size below which eligibilities count as dependent
_TEXT = (
    "rewards of the first update are added to the weights of the second: no bias, but the variance "
    "grows with every update"
)


def with_kept_rewards(
    report: AuditReport,
    program: AuditedProgram,
    match: Match | None,
    rounds: Rounds,
    runner: Runner,
) -> AuditReport:
    """The report, with a warning if there are any and nothing is wrong.

    What they add follows nothing that the new actions do, so it is no bias. A baseline, which
    takes past rewards off the weights, is not meant, and neither is what rescales them.
    """
    if match is None or report.verdict not in ("unbiased", "convention"):
        return report
    seen = gather(of_other_rewards(rounds, runner, (0.0, 1.0, 2.0)))
    if seen is None or not np.isfinite(seen.ascent).all():
        return report
    plain, once, twice = seen.ascent
    moved = once - plain
    least = _ROUNDING * max(float(np.linalg.norm(moved)), _ROUNDING * float(np.linalg.norm(plain)))
    basis = seen.eligibility[0][seen.present[0]].T
    added = np.linalg.lstsq(basis, moved, rcond=_RANK)[0]
    left = max(np.linalg.norm(twice - once - moved), np.linalg.norm(moved - basis @ added))
    if left > least or (added * np.sign(match.scale) <= 0.0).any():
        return report
    warning = program.finding("stale-batch", _TEXT, "warning")
    return replace(report, findings=(*report.findings, warning))
