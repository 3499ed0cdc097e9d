"""From the observations to the report: verdict, rule, findings, conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Booleans
from eligibility.audit.faults import CHOICES
from eligibility.audit.judgement.advantage import CROSSED, ENDINGS, OWN_RETURN, Advantage
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.constants import (
    CONFIRMED,
    FITTED,
    LEAST,
    MEASURED,
    NOT_FOUND,
    TEXT,
    USUAL,
)
from eligibility.audit.judgement.conventions import HARMLESS, conventions_of, describe
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.exact import Bias, bias, fitted_bias, least_bias, tells_discount
from eligibility.audit.judgement.explanations import explain
from eligibility.audit.judgement.hotelling import (
    EPISODES,
    FALSE_POSITIVES,
    RUNS,
    VISIBLE,
    best_test,
)
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.matching import RUNNING, uses
from eligibility.audit.judgement.refusal import evidence_or_refusal, inconclusive, precision_of
from eligibility.audit.judgement.symptoms import mostly_fails, symptoms, without_rare_equals
from eligibility.audit.judgement.timeline import Timeline, timeline
from eligibility.audit.judgement.unmatched import seen_on_one_path, unmatched_fault
from eligibility.audit.judgement.weight_rows import credit_of, weight_rows
from eligibility.audit.reporting.report import AuditReport, Convention, Finding
from eligibility.audit.running.batch_steps import has_steps_of_parts, repeated_steps
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import ENDLESS, UNREAD

_FEWEST = 20  # finite paths of a sample in which others are not
_ROUNDING = 16.0  # unit roundoffs: the weight of an action that is none
CROSSED_MEANS = (
    "each action's return has the mean of all the batch's values subtracted, not its own V(s)"
)
_TOO_MANY = "there are too many paths to run them all, and no rule explains the sample"
_SAMPLED = (
    "the paths were drawn at random; a rule that explains them is exact on each path, but the "
    "residual includes the sampling error"
)


def diagnose(program: AuditedProgram) -> AuditReport:
    """The report of a program."""
    return diagnose_and_match(program)[0]


def diagnose_and_match(program: AuditedProgram) -> tuple[AuditReport, Match | None]:
    """The report of a program, and the composition that explains every path, if there is one."""
    evidence = evidence_or_refusal(program)
    if isinstance(evidence, AuditReport):
        return evidence, None
    return _judge(program, evidence)


def _judge(program: AuditedProgram, evidence: Evidence) -> tuple[AuditReport, Match | None]:
    finite: Booleans = np.asarray(np.isfinite(evidence.ascent).all(axis=1))
    warnings = symptoms(program, evidence, finite)
    told = mostly_fails(program) or _told_by_size(program, evidence, finite, warnings)
    if told is not None:
        return told, None
    broken, evidence = evidence.where(~finite), evidence.where(finite)
    explained = explain(program, evidence)
    if explained is None:
        return _conclude(program, evidence, None, warnings), None
    match, evidence = explained.match, explained.evidence
    warnings = without_rare_equals(program, warnings, broken, match)
    used = evidence.restricted(dict(uses(evidence)).get(match.use, evidence.present))
    # what is left out of running episodes, or of the ratios, is the bias
    whole = explained.truth or (evidence if match.use == RUNNING else used)
    return _conclude(program, used, match, warnings, explained.faults, whole), match


def _told_by_size(
    program: AuditedProgram, evidence: Evidence, finite: Booleans, warnings: Sequence[Finding]
) -> AuditReport | None:
    """The report of gradients that are 0 or not finite; None where they say more."""
    spoilt = not finite.all() and not any(f.severity == "fault" for f in warnings)
    if spoilt and not program.survey.exhaustive and finite.sum() < _FEWEST:
        reason = f"the gradient is finite on {finite.sum()} of {len(finite)} paths: too few to tell"
        return replace(inconclusive(program, reason), findings=tuple(warnings))
    if not finite.any():
        findings = tuple(replace(finding, severity="fault") for finding in warnings)
        return _report(program, "biased", "the gradient is never finite", findings)
    size = np.linalg.norm(evidence.ascent[finite], axis=1)
    own = np.linalg.norm(evidence.eligibility[finite], axis=2).sum(axis=1)
    if (size > _ROUNDING * program.survey.unit * own).any():
        return None
    text = "rounding" if size.any() else "0"
    missing = program.finding("no-gradient", f"the gradient is {text} on every path")
    return _report(program, "no-gradient", missing.means, (missing, *warnings))


def _measured_bias(
    program: AuditedProgram, evidence: Evidence, line: Timeline, match: Match | None
) -> tuple[AuditedProgram, Bias]:
    """The bias at the discount that is known; else at the one with which there is none, or at 1."""
    if match is not None:
        return program, bias(evidence, line, match.form.discount)
    if program.constants.origin == MEASURED:
        return program, bias(evidence, line, program.constants.discounts[0])
    if program.constants.origin != USUAL:
        return program, least_bias(evidence, line, program.constants.discounts)
    plain = bias(evidence, line, 1.0)
    fits = program.survey.exhaustive and tells_discount(evidence)
    found = fitted_bias(evidence, line) if fits else plain
    if found.residual >= program.tolerance or plain.residual < program.tolerance:
        return program, plain
    constants = replace(program.constants, discounts=(found.discount,), origin=FITTED)
    return replace(program, constants=constants), found


def _origin(program: AuditedProgram, match: Match | None) -> str:
    """Where the discount of the report comes from."""
    told, product = program.constants.origin, program.constants.product
    if match is not None and told == MEASURED and product not in (None, match.form.discount):
        return CONFIRMED
    if (
        match is not None
        and told == MEASURED
        and match.form.discount != program.constants.discounts[0]
    ):
        return USUAL
    return told if match is not None else {USUAL: NOT_FOUND, TEXT: LEAST}.get(told, told)


def _conclude(
    program: AuditedProgram,
    evidence: Evidence,
    match: Match | None,
    warnings: Sequence[Finding],
    found: Sequence[Finding] = (),
    whole: Evidence | None = None,
) -> AuditReport:
    """The report of finite gradients, from what explains them and from how they add up.

    Args:
        program: The program.
        evidence: Its paths, as they are explained.
        match: What explains every path, if anything does.
        warnings: Findings that hold whatever explains the paths.
        found: Faults that the explanation consists of.
        whole: The paths that the policy gradient is that of, if not just as they are explained.
    """
    line, of = timeline(evidence), whole or evidence
    program, measured = _measured_bias(program, of, timeline(of), match)
    parted = match is not None and has_steps_of_parts(program.survey)
    exact = measured.residual < program.tolerance and program.survey.exhaustive
    exact = exact and not parted and not (match and match.note)
    faults, noisy = _faults(program, line, match, measured, found, exact)
    conventions = conventions_of(program, evidence, line, match, measured)
    if parted:
        conventions = (*conventions, _chosen("step-per-action"))
    if exact or faults or match is not None:
        verdict, summary = _verdict(exact, faults, noisy, conventions)
    else:
        other = unmatched_fault(program, evidence, line, measured, warnings)
        if other is None:
            return _tested(program, evidence, line, (*warnings, *seen_on_one_path(program)))
        faults = [other]
        verdict = "biased" if other.severity == "fault" else "unexplained"
        summary = other.means
    beside = [finding for finding in warnings if finding not in faults]
    if verdict in ("unbiased", "convention"):  # the gradient may be exact: it is not all
        wrong = (finding.means for finding in beside if finding.severity == "fault")
        verdict, summary = next((("biased", means) for means in wrong), (verdict, summary))
    return replace(
        _report(program, verdict, summary, (*faults, *noisy, *beside)),
        rule=describe(match, program.tolerance) if match else "",
        conventions=conventions,
        residual=measured.residual,
        cosine=measured.cosine,
        discount=measured.discount,
        origin=_origin(program, match),
        notes=(*(() if program.survey.exhaustive else (_SAMPLED,)), *_unread(program.survey)),
        weights=weight_rows(evidence, line, match, measured),
        credit=credit_of(program.measured, measured.discount),
        scale=match.scale if match else measured.scale,
    )


def _faults(
    program: AuditedProgram,
    line: Timeline,
    match: Match | None,
    measured: Bias,
    found: Sequence[Finding],
    exact: bool,
) -> tuple[list[Finding], list[Finding]]:
    """The faults, and what would be one if the expected gradient were not ``exact``."""
    shape = [*found, *_faults_of_shape(program, match, measured)]
    if exact:
        noisy = [_only_noise(each) for each in shape if each.rule != OWN_RETURN]
        faults = []
    else:
        shape = [_if_episodes_terminate(each, program, line) for each in shape]
        noisy = [each for each in shape if each.severity == "warning"]
        faults = [each for each in shape if each.severity == "fault"]
    repeated = repeated_steps(program.survey)
    if repeated > 1:
        text = f"{repeated} optimizer steps on the same data, with no ratio"
        faults.append(program.finding("several-updates-without-ratio", text))
    negative = match.scale < 0 if match else measured.scale < 0 and exact
    if negative and not faults:
        faults.append(program.finding("wrong-sign", f"cosine {measured.cosine:+.3f}"))
    return faults, noisy


def _verdict(
    exact: bool,
    faults: Sequence[Finding],
    noisy: Sequence[Finding],
    conventions: Sequence[Convention],
) -> tuple[str, str]:
    """The verdict on gradients that are exact or explained, and the sentence that says why."""
    if faults:
        wrong = faults[0].rule == "wrong-sign"
        return "wrong-sign" if wrong else "biased", faults[0].means
    if exact and not any(map(_unmeasured, conventions)):
        summary = "the expected gradient is the policy gradient"
        if noisy:
            summary += f", but noisier than necessary: {noisy[0].title}"
        return "unbiased", summary
    verdict = "convention" if any(map(_matters, conventions)) else "unbiased"
    return verdict, up_to(conventions)


def up_to(conventions: Sequence[Convention]) -> str:
    """The sentence on gradients that conventions explain."""
    names = ", ".join(convention.name for convention in conventions)
    return f"the policy gradient up to a convention: {names}"


def _chosen(name: str) -> Convention:
    """A convention whose bias is not known."""
    return Convention(name, CHOICES[name], None)


def _only_noise(finding: Finding) -> Finding:
    """A loss that is exact in expectation is not a fault: its shape only costs variance."""
    text = f"{finding.evidence}; this is rounding, so the mean gradient is right but noisier"
    return replace(finding, severity="warning", evidence=text)


def _if_episodes_terminate(finding: Finding, program: AuditedProgram, line: Timeline) -> Finding:
    """A fault that needs episodes which terminate; a warning where only time limits end them.

    All have one length then: a mean that is subtracted from each reward is the same for all of
    them, and there always is a value behind the last step.
    """
    endless = all(ENDLESS in trace.notes for trace in program.survey.traces)
    equal = endless or not np.ptp(line.length[line.present])
    harmless = {"rewards-centred": equal, ENDINGS[2]: endless}
    if not harmless.get(finding.rule):
        return finding
    text = f"{finding.evidence}; it does no harm where only a time limit ends episodes"
    return replace(finding, severity="warning", evidence=text)


def _tested(
    program: AuditedProgram, evidence: Evidence, line: Timeline, warnings: Sequence[Finding]
) -> AuditReport:
    """The verdict of the statistical test, where nothing exact can be said."""
    if line.episodes.sum() < EPISODES or evidence.paths < RUNS:
        return replace(inconclusive(program, _TOO_MANY), findings=tuple(warnings))
    test = best_test(evidence, line, program.constants.discounts)
    words = (
        f"Hotelling's T² = {test.statistic:.4g} with {test.degrees} degrees of freedom on "
        f"{test.runs} runs, p = {test.p_value:.2g} (false-positive rate {FALSE_POSITIVES:.1%})"
    )
    if test.p_value < FALSE_POSITIVES:
        other = program.finding("unexplained", words)
        report = _report(program, "unexplained", other.means, (other, *warnings))
    elif test.visible > VISIBLE:
        reason = (
            f"no bias was detected, but a bias below {test.visible:.0%} of the gradient would not "
            f"have been: {words}"
        )
        return replace(inconclusive(program, reason), findings=tuple(warnings))
    elif test.scale < 0:
        wrong = program.finding("wrong-sign", words)
        report = _report(program, "wrong-sign", wrong.means, (wrong, *warnings))
    else:
        dropped = not test.time_discount
        report = replace(
            _report(
                program,
                "convention" if dropped else "unbiased",
                f"no bias was detected; a bias above {test.visible:.0%} of the gradient would be",
                warnings,
            ),
            conventions=(_chosen("gamma-t-dropped"),) if dropped else (),
        )
    measured = bias(evidence, line, test.discount)
    return replace(
        report,
        residual=measured.residual,
        cosine=measured.cosine,
        discount=test.discount,
        origin=program.constants.origin,
        notes=(words, *_unread(program.survey)),
        weights=weight_rows(evidence, line, None, measured),
    )


def _unread(survey: Survey) -> tuple[str, ...]:
    """A note on random numbers that were not enumerated."""
    notes = {n.removeprefix(UNREAD).strip() for t in survey.traces for n in t.notes if UNREAD in n}
    if not notes:
        return ()
    how = (
        "drawn again in every run"
        if survey.traces[0].noise is not None
        else "the same in every run"
    )
    return (f"random numbers that the audit does not enumerate, {how}: {', '.join(sorted(notes))}",)


def wants_test(program: AuditedProgram, report: AuditReport) -> bool:
    """Whether only the statistical test can tell: random numbers or paths are beyond counting."""
    unread = any(note.startswith(UNREAD) for trace in program.survey.traces for note in trace.notes)
    unexplained = [finding.rule for finding in report.findings] == ["unexplained"]
    return (unread and unexplained) or report.summary == _TOO_MANY


def _matters(convention: Convention) -> bool:
    """Whether a convention biases the gradient, as far as is known; a sample may not tell."""
    return bool(convention.bias or convention.error) or _unmeasured(convention)


def _unmeasured(convention: Convention) -> bool:
    return convention.bias is None and convention.name not in HARMLESS


def _faults_of_shape(program: AuditedProgram, match: Match | None, measured: Bias) -> list[Finding]:
    """What the rule of the gradient has that is wrong, unless it is exact in expectation."""
    if match is None:
        return []
    size = f"the expected gradient is off by {measured.residual:.1%}, cosine {measured.cosine:+.3f}"
    every = "every path" if program.survey.exhaustive else "every sampled path"
    faults = [program.finding(rule, f"explains {every}; {size}") for rule in match.form.faults]
    if isinstance(match.form, Advantage) and match.form.ending in CROSSED:
        faults = [replace(f, means=CROSSED_MEANS) if f.rule == "broadcast" else f for f in faults]
    if match.entropy < -program.tolerance and match.scale > 0.0:
        evidence = f"the gradient of the entropy is added with the factor {match.entropy:.3g}"
        faults.append(program.finding("entropy-sign", evidence))
    return faults


def _report(
    program: AuditedProgram, verdict: str, summary: str, findings: Sequence[Finding]
) -> AuditReport:
    survey = program.survey
    shapes = max((trace.shapes for trace in survey.traces), key=len)
    return AuditReport(
        program.name,
        verdict,
        summary,
        findings=tuple(findings),
        paths=len(survey.traces),
        predicted_paths=survey.predicted,
        exhaustive=survey.exhaustive,
        probability=sum(trace.probability for trace in survey.traces),
        parameters=sum(int(np.prod(shapes[tensor])) for tensor in survey.policy),
        precision=precision_of(survey),
        tolerance=program.tolerance,
    )
