"""The audited program: what was seen and is known of it, and how a finding on it is worded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from eligibility.audit.faults import FAULTS
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.location import locate
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.reading import Reading
from eligibility.audit.judgement.source import Source
from eligibility.audit.precision import tolerance
from eligibility.audit.reporting.report import Finding
from eligibility.audit.running.survey import Survey, has_critic


@dataclass(frozen=True)
class AuditedProgram:
    """A program as a survey saw it, with all else that is known of it.

    Attributes:
        survey: The observations.
        source: The program's text, if it is a script.
        name: What the report calls it.
        constants: Numbers that it may mean.
        place: File and line of the loss, where no ``backward`` of the program tells.
        critic: Whether to look for compositions with the values of a critic.
        measured: The credit on one path, where it could be measured.
        reading: What that credit says, where it could be read.
        shaped: Whether it may have changed its rewards.
        shortened: Whether the audit made the program's batches short.
        whole_numbers: Whether its gradients follow its rewards, which are not whole, by whole
            numbers only: no composition explains them.
    """

    survey: Survey
    source: Source | None
    name: str
    constants: Constants = Constants()  # noqa: RUF009  # a frozen value: sharing it is harmless
    place: tuple[str, int] | None = None
    critic: bool = True
    measured: Measured | None = None
    reading: Reading | None = None
    shaped: bool = True
    shortened: bool = False
    whole_numbers: bool = False

    @property
    def tolerance(self) -> float:
        """Residuals below it are rounding."""
        return tolerance(self.survey.unit)

    @cached_property
    def values(self) -> str:
        """Whose values may enter the advantages: of a critic that is "trained", or "no" one's."""
        return "trained" if self.critic and has_critic(self.survey) else "no"

    @cached_property
    def untold(self) -> AuditedProgram:
        """The program without its measured credit, for paths that it was not measured on."""
        return replace(self, constants=replace(self.constants, told=None))

    def finding(
        self, rule: str, evidence: str, severity: str = "", seen: tuple[str, int] | None = None
    ) -> Finding:
        """The finding of ``rule``, on its line.

        Args:
            rule: Identifier of the fault.
            evidence: What was measured.
            severity: "fault" or "warning"; empty: as its record says.
            seen: Its file and line, where they are known already.
        """
        located = seen if seen and seen[1] else None
        file, line = located or locate(rule, self.survey, self.source, self.place)
        finding = Finding.of(FAULTS[rule], evidence, file or self.name, line)
        return replace(finding, severity=severity) if severity else finding
