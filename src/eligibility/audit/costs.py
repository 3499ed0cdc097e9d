"""Numbers that a program trains on and that may be costs, by what it calls them."""

from __future__ import annotations

import re
from dataclasses import replace

from eligibility.audit.reporting.report import AuditReport

_REWARDS = re.compile("reward|score|return|gain|payoff|profit|win|won|acc", re.IGNORECASE)
_COSTS = re.compile("cost|loss|error|distance|length|penalt|regret|energy", re.IGNORECASE)


def is_a_cost(name: str) -> bool:
    """Whether a number is called a cost."""
    return bool(_COSTS.search(name)) and not _REWARDS.search(name)


def may_be_a_cost(name: str) -> bool:
    """Whether a number is not called a reward."""
    return not _REWARDS.search(name) and name not in ("r", "R", "rs", "G")


def if_a_reward(report: AuditReport, supposed: str) -> AuditReport:
    """Less of something may be what is wanted: a sign is only wrong for a reward."""
    if report.verdict != "wrong-sign":
        return report
    findings = tuple(
        replace(each, severity="warning") if each.rule == "wrong-sign" else each
        for each in report.findings
    )
    faulty = any(each.severity == "fault" for each in findings)
    summary = f"what raises {supposed} becomes less likely: correct if it is a cost, not a reward"
    verdict = "biased" if faulty else "unexplained"
    return replace(report, verdict=verdict, summary=summary, findings=findings)
