"""Signs that are wrong only for rewards."""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.reporting.report import AuditReport


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
