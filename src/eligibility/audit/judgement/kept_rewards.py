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

_MORE = (0.0, 1.0, 2.0)  # what is added to each reward of the first update
_ROUNDING = 1e-6  # relative size
_RANK = 1e-5  # relative size below which eligibilities count as dependent
ADDED = "rewards of the first update are added to the weights of the second"
_NO_BIAS = "no bias, but the variance grows with every update"


def with_kept_rewards(
    report: AuditReport,
    program: AuditedProgram,
    match: Match | None,
    rounds: Rounds,
    runner: Runner,
) -> AuditReport:
    """The report, with a warning if there are any and nothing is wrong.

    Where every weight of an episode gets the same, or the new actions do not change what it gets,
    this is no bias.
    """
    right = report.verdict in ("unbiased", "convention")
    if match is None or not right or not keeps_rewards(match, rounds, runner):
        return report
    warning = program.finding("stale-batch", f"{ADDED}: {_NO_BIAS}", "warning")
    return replace(report, findings=(*report.findings, warning))


def keeps_rewards(match: Match, rounds: Rounds, runner: Runner) -> bool:
    """Whether the first update's rewards praise every action of the second.

    A baseline, which takes past rewards off the weights, is not meant, and neither is what rescales
    them.
    """
    seen = gather(of_other_rewards(rounds, runner, _MORE))
    if seen is None or seen.paths < len(_MORE):
        return False  # a program that has learned enough may end
    if not (np.isfinite(seen.ascent).all() and seen.present.any()):
        return False
    if (seen.present != seen.present[0]).any() or (seen.state != seen.state[0]).any():
        return False  # other rewards led it another way
    plain, once, twice = seen.ascent
    moved = once - plain
    least = _ROUNDING * max(float(np.linalg.norm(moved)), _ROUNDING * float(np.linalg.norm(plain)))
    basis = seen.eligibility[0][seen.present[0]].T
    added = np.linalg.lstsq(basis, moved, rcond=_RANK)[0]
    left = max(np.linalg.norm(twice - once - moved), np.linalg.norm(moved - basis @ added))
    return bool(left <= least and (added * np.sign(match.scale) > 0.0).all())
