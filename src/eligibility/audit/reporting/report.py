"""The result of an audit: a frozen record that renderers only draw."""

from __future__ import annotations

import json
import linecache
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eligibility.audit.faults import Fault
from eligibility.errors import EligibilityError, InvalidTypeError
from eligibility.files import relative_to_here
from eligibility.notebooks import script_of

FAULTY = ("biased", "wrong-sign", "no-gradient")
_SMALL_BIAS = 5e-4  # of which one decimal of a percentage would show nothing


@dataclass(frozen=True)
class Finding:
    """A fault in the program, or a warning.

    Attributes:
        rule: Identifier; ``docs/audit`` has a page for each.
        title: The fault in a few words.
        means: What the program computes instead.
        evidence: What was measured.
        file: Where.
        line: Where, from 1; 0 if no statement could be singled out.
        fix: A line of code or an instruction.
        severity: "fault", or "warning" for what happens only on some problems.
    """

    rule: str
    title: str
    means: str
    evidence: str
    file: str
    line: int
    fix: str
    severity: str = "fault"

    @classmethod
    def of(cls, fault: Fault, evidence: str, file: str, line: int) -> Finding:
        """What the record of a fault says of it, with what was measured and where."""
        known = fault.id, fault.title, fault.means
        return cls(*known, evidence, file, line, fault.fix, fault.severity)

    @property
    def place(self) -> str:
        """File and line as they are shown: relative to the working folder, if within."""
        file = relative_to_here(self.file).as_posix() if self.file else ""
        return f"{file}:{self.line}" if self.line else file

    @property
    def code(self) -> str:
        """The text of the line as it stands in the file or cell; "" if it cannot be read."""
        path, _, cell = self.file.partition("#cell-")
        if not cell:
            return linecache.getline(path, self.line).strip()
        with suppress(EligibilityError):
            lines, places = script_of(Path(path))
            for text, place in zip(lines.splitlines(), places, strict=False):
                if place == (int(cell), self.line):
                    return text.strip()
        return ""


@dataclass(frozen=True)
class Convention:
    """A choice that people make on purpose.

    Attributes:
        name: Identifier.
        means: What it does.
        bias: ‖E[g] − c·∇J‖ / ‖E[g]‖ that it alone causes on the probe; None if not measured.
        error: Standard error of that bias; 0 where every path was run.
        file: Where it is made; empty if unknown.
        line: Where, from 1; 0 if unknown.
        instead: What to write if it is not wanted; empty if unknown.
    """

    name: str
    means: str
    bias: float | None
    error: float = 0.0
    file: str = ""
    line: int = 0
    instead: str = ""

    @property
    def place(self) -> str:
        """Where it is made, as it is shown."""
        return f"{Path(self.file).name}:{self.line}" if self.line else ""

    @property
    def size(self) -> str:
        """The bias as it is shown."""
        if self.bias is None:
            return "-"
        if self.error:
            return f"{self.bias:.1%} ± {self.error:.1%}"
        small = 0.0 < self.bias < _SMALL_BIAS  # it must not be shown as 0
        return f"{100 * self.bias:.1g}%" if small else f"{self.bias:.1%}"


@dataclass(frozen=True)
class WeightRow:
    """One action of the example path.

    Attributes:
        environment: Index of the environment.
        time: Step of its episode.
        reward: What the action earned.
        given: The weight that the program gave to the action's ∇ log π, in units of the scale.
        reinforce: The weight that REINFORCE gives.
    """

    environment: int
    time: int
    reward: float
    given: float
    reinforce: float


@dataclass(frozen=True)
class Credit:
    """The measured credit: how the weight of each decision moves with each reward.

    Attributes:
        decisions: Name of each row: an action of a path (its actor and episode, where there are
            several, and its time), or a token of an answer.
        rewards: Name of each column.
        given: [I][J] ∂(weight of decision i)/∂(reward j), as the program has it.
        reinforce: [I][J] The same for REINFORCE.
        unit: What both are measured in, for the title; empty: as they are.
    """

    decisions: tuple[str, ...]
    rewards: tuple[str, ...]
    given: tuple[tuple[float, ...], ...]
    reinforce: tuple[tuple[float, ...], ...]
    unit: str = ""

    def title(self) -> str:
        """What the table of it shows."""
        return f"∂(weight of each ∇ log π)/∂(each reward){self.unit and f', {self.unit}'}"

    def differs(self, row: int, column: int) -> bool:
        """Whether an entry is visibly another than REINFORCE's."""
        largest = max(abs(v) for line in (*self.given, *self.reinforce) for v in line)
        return abs(self.given[row][column] - self.reinforce[row][column]) > 5e-3 * largest


@dataclass(frozen=True)
class AuditReport:
    """Whether a program computes the policy gradient, and if not, what it computes.

    Attributes:
        program: What was audited.
        verdict: "unbiased", "convention", "biased", "wrong-sign", "no-gradient"; "inconclusive" if
            nothing could be measured, or "unexplained" if no known rule explains the measurement.
        summary: The verdict in one sentence.
        rule: The rule that explains every path, in words; empty if there is none.
        findings: Faults and warnings, each with its line.
        conventions: Choices, which are not faults, each with the size of its bias.
        weights: The weights that each action of one path got, and those of REINFORCE.
        scale: The program's constant factor, by which these weights are divided; NaN if unknown.
        credit: The measured credit of each decision, if it was measured.
        components: Coefficient of each named direction in the expected gradient of a language
            model's loss: "reward", "kl-reverse", ...
        wanted: The same for the objective that is meant, E[R] with the divergence of whole answers
            and the entropy that the loss has; what the components are compared with.
        invariances: Relative change of a language model's gradient under a change that should not
            matter: "padding", "micro-batches", ...
        residual: ‖E[g] − c·∇J‖ / ‖E[g]‖; NaN where it could not be measured.
        quadrature_error: By how much the residual changes with more nodes for normal numbers; NaN
            where there are none, or where more cannot be afforded.
        cosine: Between the expected gradient and the true one.
        discount: γ of the return; NaN if there is none.
        origin: Where that γ comes from.
        paths: Paths that were run.
        predicted_paths: How many were expected before the run.
        exhaustive: Whether they are all the paths, so that the result is exact.
        probability: Sum of the paths' probabilities.
        parameters: Number of the policy's parameters.
        precision: The floating-point precision that the program ran in, and why.
        tolerance: Residuals below it are rounding.
        notes: What else a reader should know.
        guard: What held the program's writes to its scratch folder: "landlock", "namespace",
            "copy"; empty if it did not run in a separate process.
        updates: How many updates of the program were audited, from the first one on.
        seconds: Time that the audit took.

    Example:
        >>> report = AuditReport("agent.py", "unbiased", "the policy gradient, exactly")
        >>> report.ok(), report.exit_status
        (True, 0)
    """

    program: str
    verdict: str
    summary: str
    rule: str = ""
    findings: tuple[Finding, ...] = ()
    conventions: tuple[Convention, ...] = ()
    weights: tuple[WeightRow, ...] = ()
    scale: float = float("nan")
    credit: Credit | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    wanted: Mapping[str, float] = field(default_factory=dict)
    invariances: Mapping[str, float] = field(default_factory=dict)
    residual: float = float("nan")
    quadrature_error: float = float("nan")
    cosine: float = float("nan")
    discount: float = float("nan")
    origin: str = ""
    paths: int = 0
    predicted_paths: int = 0
    exhaustive: bool = False
    probability: float = 0.0
    parameters: int = 0
    precision: str = ""
    tolerance: float = 0.0
    notes: tuple[str, ...] = ()
    guard: str = ""
    updates: int = 1
    seconds: float = field(default=0.0, compare=False)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are faults."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    @property
    def exit_status(self) -> int:
        """1 if a fault was found, 2 if nothing could be judged, 3 if unexplained, else 0."""
        if self.faults or self.verdict in FAULTY:
            return 1
        return {"inconclusive": 2, "unexplained": 3}.get(self.verdict, 0)

    def ok(self, conventions: Collection[str] = ()) -> bool:
        """Whether there is no fault, and no convention beyond the ones allowed.

        Conventions that cause no bias need no permission. An audit without a judgement is not ok.

        Args:
            conventions: Names of the conventions that are meant.

        Raises:
            InvalidTypeError: They are one str, whose letters would be taken for names.

        Example:
            >>> dropped = Convention("gamma-t-dropped", "", 0.05)
            >>> report = AuditReport("agent.py", "convention", "", conventions=(dropped,))
            >>> report.ok(), report.ok(conventions={"gamma-t-dropped"})
            (False, True)
        """
        if isinstance(conventions, str):
            raise InvalidTypeError(
                "`conventions`", "a str", "a set of names", f"write {{{conventions!r}}}"
            )
        if self.exit_status:
            return False
        biased = {c.name for c in self.conventions if c.bias is None or c.bias > self.tolerance}
        return biased <= set(conventions)

    def measured(self) -> str:
        """What was run and measured, in one line."""
        if not self.paths:
            return "no path was completed"
        total = f"probabilities sum to {self.probability:.12g}"
        kind = f"(every path), {total}" if self.exhaustive else "drawn at random"
        count = f"{self.paths} path{'' if self.paths == 1 else 's'}"
        said = [f"{count} {kind}" if self.probability else f"{count} run"]
        if self.parameters:
            said.append(f"{self.parameters} policy parameters")
        if self.residual == self.residual:
            below = f"anything below {self.tolerance:.0e} is rounding"
            if self.verdict == "biased" and self.residual < self.tolerance:
                below += ": the fault is not in the first step's policy gradient"
            said.append(f"residual {self.residual:.1e} ({below})")
        if self.discount == self.discount:
            said.append(f"γ = {self.discount:.6g}{f' ({self.origin})' if self.origin else ''}")
        said.append(self.precision)
        said.append(f"updates audited: {'1 and 2' if self.updates == 2 else '1'}")
        return ", ".join(filter(None, said))

    def change(self, name: str) -> str:
        """The relative change of the gradient under something that should not matter."""
        size = self.invariances[name]
        return "0" if size < self.tolerance else f"{size:.1%}"

    def weights_title(self) -> str:
        """What the table of weights shows."""
        title = "weight of each action's ∇ log π, on one path"
        if self.scale != self.scale or abs(abs(self.scale) - 1.0) < 1e-6:
            return title
        return f"{title}; the program's are divided by its constant factor, {abs(self.scale):.4g}"

    def to_json(self) -> str:
        """The report as JSON: the fields that programs rely on, and everything else."""
        first = ("verdict", "conventions", "residual", "paths", "findings")
        given = vars(self) | {
            "conventions": [convention.name for convention in self.conventions],
            "convention_biases": {c.name: c.bias for c in self.conventions},
            "convention_errors": {c.name: c.error for c in self.conventions},
            "convention_places": {c.name: f"{c.file}:{c.line}" for c in self.conventions if c.line},
            "convention_alternatives": {c.name: c.instead for c in self.conventions},
            "discount_origin": self.origin,
            "seconds": round(self.seconds, 3),
        }
        names = dict.fromkeys((*first, *given))
        return json.dumps({n: _plain(given[n]) for n in names if n != "origin"}, indent=2)

    def text(self, width: int = 100) -> str:
        """The report as it is printed in a terminal, without colours."""
        from eligibility.audit.reporting.terminal import render_text

        return render_text(self, width)

    def html(self) -> str:
        """The report as one page that needs nothing else."""
        from eligibility.audit.reporting.page import render_html

        return render_html(self)

    def sarif(self) -> str:
        """The findings as SARIF 2.1.0, for editors and code hosts."""
        from eligibility.audit.reporting.exchange import render_sarif

        return render_sarif(self)

    def junit(self) -> str:
        """The audit as one test case of JUnit XML."""
        from eligibility.audit.reporting.exchange import render_junit

        return render_junit(self)

    def save(self, path: str | Path) -> Path:
        """Write the report; the form follows the ending: .html, .sarif, .xml, .json or text."""
        from eligibility.files import write_atomically

        forms = {
            ".html": self.html,
            ".sarif": self.sarif,
            ".xml": self.junit,
            ".json": self.to_json,
        }
        return write_atomically(path, forms.get(Path(path).suffix, self.text)())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        rules = ", ".join(finding.rule for finding in self.findings) or "no findings"
        return f"<AuditReport of {self.program}: {self.verdict}; {rules}>"


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


def _plain(value: Any) -> Any:
    """For JSON, which has no records and no NaN."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return vars(value)
    return None if value != value else value
