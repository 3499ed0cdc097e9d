"""From the observations to the report: verdict, rule, findings, conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.catalogue import Candidate
from eligibility.audit.evidence import Evidence, gather
from eligibility.audit.exact import Bias, least_bias, policy_gradient
from eligibility.audit.knowledge import CONVENTIONS, FAULTS
from eligibility.audit.location import first_error, locate
from eligibility.audit.matching import Match, effective_weights, find_match
from eligibility.audit.precision import tolerance
from eligibility.audit.report import AuditReport, Convention, Finding, WeightRow
from eligibility.audit.scoring import compare_scoring, probs_as_logits
from eligibility.audit.source import USUAL_DISCOUNTS, Source
from eligibility.audit.survey import RAN, Survey, policy_tensors
from eligibility.audit.timeline import Timeline, timeline


@dataclass(frozen=True)
class Case:
    """What a diagnosis looks at.

    Attributes:
        survey: The observations.
        source: The program's text, if it is a script.
        name: What the report calls it.
        discounts: The discounts it may mean.
        epsilons: Small constants it may add to divisors.
    """

    survey: Survey
    source: Source | None
    name: str
    discounts: tuple[float, ...] = (*USUAL_DISCOUNTS, 1.0)
    epsilons: tuple[float, ...] = (0.0,)

    @property
    def tolerance(self) -> float:
        """Residuals below it are rounding."""
        return tolerance(self.survey.unit)

    def finding(self, rule: str, evidence: str, severity: str = "fault") -> Finding:
        """The finding of ``rule``, on its line."""
        known = FAULTS[rule]
        file, line = locate(rule, self.survey, self.source)
        return Finding(
            rule, known.title, known.means, evidence, file or self.name, line, known.fix, severity
        )


def diagnose(case: Case) -> AuditReport:
    """The report of a case."""
    survey = case.survey
    ran = [trace for trace in survey.traces if trace.outcome in RAN]
    if not ran:
        return _did_not_run(case)
    if not any(trace.updates for trace in ran):
        return _inconclusive(case, "the program made no optimizer step; is its loop long enough?")
    if not any(trace.steps for trace in ran):
        return _inconclusive(
            case,
            "the program updated before any step of an environment made by gymnasium.make; "
            "audit its loss with audit_loss",
        )
    evidence = gather(survey)
    if evidence is None:
        return _without_policy(case)
    if not evidence.scored:
        return _inconclusive(case, "some actions come from random numbers the audit cannot read")
    return _judge(case, evidence)


def _judge(case: Case, evidence: Evidence) -> AuditReport:
    finite: Booleans = np.asarray(np.isfinite(evidence.ascent).all(axis=1))
    warnings = [*_failures(case), *_non_finite(case, evidence, finite), *_attainability(case)]
    if not finite.any():
        findings = tuple(replace(finding, severity="fault") for finding in warnings)
        return _report(case, evidence, "biased", "the gradient is never finite", findings)
    evidence = evidence.where(finite)
    line = timeline(evidence)
    if not np.any(evidence.ascent):
        missing = case.finding("no-gradient", "the gradient is 0 on every path")
        return _report(case, evidence, "no-gradient", missing.means, (missing, *warnings))
    match = find_match(evidence, line, case.discounts, case.epsilons, case.tolerance)
    discounts = (match.candidate.discount,) if match else case.discounts
    measured = least_bias(evidence, line, discounts)
    return _conclude(case, evidence, line, match, measured, warnings)


def _conclude(
    case: Case,
    evidence: Evidence,
    line: Timeline,
    match: Match | None,
    measured: Bias,
    warnings: Sequence[Finding],
) -> AuditReport:
    faults = _faults(case, match, measured)
    exact = measured.residual < case.tolerance and case.survey.exhaustive
    conventions = _conventions(case, evidence, line, match, measured)
    others = tuple(faults) + tuple(warnings)
    rule = describe(match) if match else ""
    if any(finding.rule == "wrong-sign" for finding in faults):
        verdict, summary = "wrong-sign", FAULTS["wrong-sign"].means
    elif exact and not faults:
        verdict, summary = "unbiased", "the expected gradient is the policy gradient"
    elif faults:
        verdict, summary = "biased", faults[0].means
    elif match is not None:
        verdict = "convention" if any(c.bias for c in conventions) else "unbiased"
        names = ", ".join(c.name for c in conventions)
        summary = f"the policy gradient up to a convention: {names}"
    elif not case.survey.exhaustive:
        return _inconclusive(
            case, "too many paths to run them all, and no rule explains the sample"
        )
    else:
        unexplained = _unexplained(case, evidence, measured)
        others = (unexplained, *warnings)
        verdict, summary = "biased", unexplained.means
    report = _report(case, evidence, verdict, summary, others)
    return replace(
        report,
        rule=rule,
        conventions=conventions,
        residual=measured.residual,
        cosine=measured.cosine,
        discount=measured.discount,
        weights=_weights(evidence, line, match, measured),
    )


def _faults(case: Case, match: Match | None, measured: Bias) -> list[Finding]:
    faults = []
    size = f"the expected gradient is off by {measured.residual:.1%}, cosine {measured.cosine:+.3f}"
    if match is not None:
        every = "every path" if case.survey.exhaustive else "every sampled path"
        faults += [
            case.finding(rule, f"explains {every}; {size}") for rule in match.candidate.faults
        ]
        if match.entropy < 0 and "entropy" in match.extra:
            evidence = f"the entropy's gradient enters with the factor {match.entropy:.3g}"
            faults.append(case.finding("entropy-sign", evidence))
    negative = match.scale < 0 if match else measured.scale < 0 and measured.residual < 1e-6
    if negative and not faults:
        faults.insert(0, case.finding("wrong-sign", f"cosine {measured.cosine:+.3f}"))
    return faults


def _unexplained(case: Case, evidence: Evidence, measured: Bias) -> Finding:
    scoring = compare_scoring(case.survey)
    _, outside = effective_weights(evidence)
    off = f"{outside.max():.1%} of the gradient lies outside the span of the executed actions'"
    size = f"the expected gradient is off by {measured.residual:.1%}, cosine {measured.cosine:+.3f}"
    if scoring is not None:
        return case.finding(scoring.rule, f"{scoring.evidence}; {size}")
    return case.finding("unexplained", f"{size}; {off} eligibilities")


def _conventions(
    case: Case, evidence: Evidence, line: Timeline, match: Match | None, measured: Bias
) -> tuple[Convention, ...]:
    """Those of the match, each with the bias that it would cause alone."""
    named: dict[str, float | None] = {}
    if match is not None:
        for name in match.candidate.conventions:
            named[name] = _bias_alone(evidence, line, match.candidate, name)
        if "entropy" in match.extra and match.entropy > 0:
            named["entropy-bonus"] = _bias_of_entropy(evidence, line, match)
        if "baseline" in match.extra:
            named["baseline"] = 0.0
        if abs(match.scale - 1.0) > 1e-6 and not match.candidate.norm:
            named["constant-scale"] = 0.0
    notes = {note for trace in case.survey.traces for note in trace.notes}
    if "gradient-clipping" in notes:
        named["gradient-clipping"] = None
    if case.survey.shared:
        named["shared-critic-parameters"] = None
    return tuple(
        Convention(
            name,
            CONVENTIONS[name],
            None if size is None else 0.0 if size < case.tolerance else size,
        )
        for name, size in named.items()
    )


def _bias_alone(evidence: Evidence, line: Timeline, candidate: Candidate, name: str) -> float:
    """Residual of a program that is right but for one convention."""
    right = replace(
        candidate,
        time_discount=not candidate.free_of_time,
        transform="",
        coupling="",
        norm="",
        epsilon=0.0,
    )
    if name == "gamma-t-dropped":
        alone = replace(right, time_discount=False)
    elif name == candidate.norm:
        alone = replace(right, norm=name)
    elif name == "whole-episode-return":
        alone = right
    else:
        alone = replace(right, transform=candidate.transform, epsilon=candidate.epsilon)
    weights = alone.weights(line)
    return _residual(evidence, line, weights, candidate.discount)


def _residual(evidence: Evidence, line: Timeline, weights: Array, discount: float) -> float:
    per_path = np.einsum("pi,pid->pd", weights, evidence.eligibility)
    expected = evidence.probability @ per_path
    true = policy_gradient(evidence, line, discount)
    size = float(np.linalg.norm(expected))
    if size == 0.0:
        return 1.0
    scale = float(expected @ true) / float(true @ true)
    return float(np.linalg.norm(expected - scale * true)) / size


def _bias_of_entropy(evidence: Evidence, line: Timeline, match: Match) -> float:
    true = policy_gradient(evidence, line, match.candidate.discount)
    bonus = evidence.probability @ np.einsum("pi,pid->pd", line.present, evidence.entropy)
    return float(np.linalg.norm(match.entropy * bonus) / np.linalg.norm(true))


def describe(match: Match) -> str:
    """A match in words."""
    candidate = match.candidate
    credit = candidate.credit.rule.replace("-", " ") or "reward-to-go"
    words = [f"{match.scale:.4g} × {credit} (γ = {candidate.discount:g})"]
    if candidate.time_discount:
        words.append("times γ^t")
    if candidate.transform:
        over = " over each episode" if candidate.scope == "episode" else ""
        words.append(candidate.transform.removesuffix("-biased") + over)
    if candidate.coupling:
        words.append(candidate.coupling.replace("-", " "))
    if candidate.norm:
        words.append(candidate.norm.replace("-", " "))
    if "entropy" in match.extra:
        words.append(f"plus {match.entropy:.3g} × entropy")
    if "baseline" in match.extra:
        words.append("minus a baseline")
    return ", ".join(words)


def _weights(
    evidence: Evidence, line: Timeline, match: Match | None, measured: Bias
) -> tuple[WeightRow, ...]:
    """Of the longest path on which REINFORCE's weights differ most from one another."""
    given, _ = effective_weights(evidence)
    reinforce = line.discounted(measured.discount) * measured.discount**line.time * line.present
    scale = match.scale if match else measured.scale
    spread = np.where(line.steps == line.steps.max(), np.ptp(reinforce, axis=1), -1.0)
    p = int(np.argmax(spread))
    unit = abs(scale) if scale and np.isfinite(scale) else 1.0
    return tuple(
        WeightRow(
            int(evidence.environment[p, i]),
            int(evidence.time[p, i]),
            float(evidence.reward[p, i]),
            float(given[p, i]) / unit,
            float(reinforce[p, i]),
        )
        for i in range(int(line.steps[p]))
    )


def _failures(case: Case) -> list[Finding]:
    failed = [trace for trace in case.survey.traces if trace.outcome not in RAN]
    if not failed:
        return []
    file, line = first_error(tuple(failed))
    text = f"{len(failed)} of {len(case.survey.traces)} paths: {failed[0].detail}"
    finding = case.finding("fails-on-some-episodes", text, "warning")
    return [replace(finding, file=file or finding.file, line=line or finding.line)]


def _non_finite(case: Case, evidence: Evidence, finite: Booleans) -> list[Finding]:
    if finite.all():
        return []
    steps = evidence.present.sum(axis=1)
    single = bool((steps[~finite] == 1).all())
    share = f"NaN or infinite on {int((~finite).sum())} of {len(finite)} paths"
    if single:
        return [case.finding("std-of-one-element", f"{share}, all of one step", "warning")]
    return [case.finding("non-finite-gradient", share)]


def _attainability(case: Case) -> list[Finding]:
    reach = probs_as_logits(case.survey)
    if reach is None:
        return []
    text = f"no action can get a probability below {reach[0]:.3f} or above {reach[1]:.3f}"
    return [case.finding("probs-as-logits", text)]


def _without_policy(case: Case) -> AuditReport:
    """No action depends on the parameters: nothing is drawn, or nothing reaches the policy."""
    drawn = any(step.groups for trace in case.survey.traces for step in trace.steps)
    if not drawn:
        finding = case.finding("argmax-action", "no action was drawn at random on any path")
        return replace(_inconclusive(case, finding.means), verdict="biased", findings=(finding,))
    return _inconclusive(
        case,
        "no action's probability depends on the parameters that the optimizer trains; "
        "are they changed after the optimizer was made?",
    )


def _did_not_run(case: Case) -> AuditReport:
    trace = case.survey.traces[0]
    needs = {
        "choices": "it makes too many random choices before its first update; pass arguments "
        "after `--` that make its batches small",
        "time": f"{trace.detail}; raise `--time-limit`, or pass arguments that make it shorter",
    }.get(trace.outcome, trace.detail)
    place = f" (line {trace.line})" if trace.line else ""
    return _inconclusive(case, f"the program could not be run{place}: {needs}")


def _inconclusive(case: Case, reason: str) -> AuditReport:
    return AuditReport(
        case.name,
        "inconclusive",
        reason,
        paths=sum(trace.outcome in RAN for trace in case.survey.traces),
        predicted_paths=case.survey.predicted,
        exhaustive=case.survey.exhaustive,
        precision=_precision(case.survey),
        tolerance=case.tolerance,
    )


def _report(
    case: Case, evidence: Evidence, verdict: str, summary: str, findings: Sequence[Finding]
) -> AuditReport:
    survey = case.survey
    policy = policy_tensors(survey.directions, survey.slopes or {})
    shapes = max((trace.shapes for trace in survey.traces), key=len)
    return AuditReport(
        case.name,
        verdict,
        summary,
        findings=tuple(findings),
        paths=len(survey.traces),
        predicted_paths=survey.predicted,
        exhaustive=survey.exhaustive,
        probability=sum(trace.probability for trace in survey.traces),
        parameters=sum(int(np.prod(shapes[tensor])) for tensor in policy),
        precision=_precision(survey),
        tolerance=case.tolerance,
    )


def _precision(survey: Survey) -> str:
    if survey.raised:
        return "run in double precision"
    return "run in single precision, as the program insists on it"
