"""A composition that explains the paths of a program, and the paths as it explains them."""

from __future__ import annotations

from dataclasses import dataclass

from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.reporting.report import Finding


@dataclass(frozen=True)
class Explained:
    """What explains a program.

    Attributes:
        match: The composition.
        evidence: The paths that it explains: with other rewards, say, or fewer decisions.
        faults: What is wrong with the program if it is this.
        truth: The paths that the policy gradient is that of, if not just as they are explained.
    """

    match: Match
    evidence: Evidence
    faults: tuple[Finding, ...] = ()
    truth: Evidence | None = None


def match_of(program: AuditedProgram, evidence: Evidence) -> Match | None:
    """The plainest composition for these paths of the program; None if no rule fits."""
    return find_match(evidence, program.constants, program.tolerance, program.values)


def fitted_match_of(program: AuditedProgram, evidence: Evidence) -> Match | None:
    """The same with the values of a critic that no optimizer trains."""
    if not program.critic or program.values != "no":
        return None
    return find_match(evidence, program.constants, program.tolerance, "fitted")
