"""How far sums over the nodes of continuous draws can be trusted: a second look, off the nodes.

A rule that explains every path is a proof only if it holds for all values of a normal number, not
for the three that stand for it; and the size of a bias is only as good as the sum that it is taken
by. So some paths are run at other values, which enter no sum and which a rule must explain, and
the residual is taken once more with five nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.diagnosis import diagnose
from eligibility.audit.judgement.scoring import Scoring, compare_scoring
from eligibility.audit.quadrature import COARSE, FINE
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.sampling_calls import executing_call
from eligibility.audit.running.slopes import action_keys
from eligibility.audit.running.survey import RAN, Progress, Survey, enumerated
from eligibility.audit.trace import Trace

_OFF_NODES = 12  # paths at other values
_FAR = 4  # of these, where the paths are a sample
_CANNOT_TELL = (
    "the sums over the nodes of continuous draws are not conclusive: no rule explains every path, "
)


def has_continuous_draws(survey: Survey) -> bool:
    """Whether nodes stand for some of the program's draws, in sums that are taken over all."""
    drawn = any(draw.loc is not None for trace in survey.traces for draw in trace.draws)
    return survey.exhaustive and drawn and bool(survey.slopes)


def with_other_values(survey: Survey, runner: Runner) -> Survey:
    """The survey and some paths of probability 0, at values of the draws off the nodes."""
    job = _job(survey, COARSE)
    jobs = (replace(job, size=survey.size, seed=seed, off_nodes=True) for seed in range(_OFF_NODES))
    runs = _readable(survey, [*run_all(runner, jobs)])
    return replace(survey, traces=(*survey.traces, *runs))


def resolved(
    report: AuditReport,
    survey: Survey,
    runner: Runner,
    program_of: Callable[[Survey], AuditedProgram],
    max_paths: int,
    progress: Progress,
) -> AuditReport:
    """The report with the error of its sums; never "unbiased" where they cannot tell it."""
    report = replace(report, paths=report.paths - _zero(survey))
    proved = report.verdict != "unbiased" or bool(report.rule)
    for size in SIZES[SIZES.index(survey.size) :]:
        fine = _enumerated(
            survey, runner, replace(_job(survey, FINE), size=size), max_paths, progress
        )
        if fine is None:
            continue
        coarse = report.residual
        if size != survey.size:
            job = replace(_job(survey, COARSE), size=size)
            smaller = _enumerated(survey, runner, job, max_paths, progress)
            coarse = diagnose(program_of(smaller)).residual if smaller else float("nan")
        closer = diagnose(program_of(fine))
        error = abs(closer.residual - coarse)
        where = "" if size == survey.size else f", on the probe with {size.horizon} steps"
        note = (
            f"continuous draws are replaced by {COARSE} quadrature nodes; with {FINE} the "
            f"residual changes by {error:.2g}{where}"
        )
        if not proved and closer.rule:
            report = _only_on_nodes(report, program_of(survey), closer.rule)
        elif not proved and closer.residual > closer.tolerance:
            report = closer if closer.findings else replace(closer, verdict="inconclusive")
        return replace(report, quadrature_error=error, notes=(*report.notes, note))
    note = f"{FINE} nodes a draw make more than {max_paths} paths"
    if proved:
        return replace(report, notes=(*report.notes, f"{note}: the error of {COARSE} is unknown"))
    return replace(report, verdict="inconclusive", summary=f"{_CANNOT_TELL}and {note}")


def _only_on_nodes(report: AuditReport, program: AuditedProgram, rule: str) -> AuditReport:
    """A rule explains what happens at the nodes, and not what happens at other values."""
    scoring = compare_scoring(program.survey)
    if scoring is None:
        summary = f"{_CANNOT_TELL}but those at the nodes are by {rule}"
        return replace(report, verdict="inconclusive", summary=summary)
    return _scored_otherwise(report, program, scoring)


def _scored_otherwise(
    report: AuditReport, program: AuditedProgram, scoring: Scoring
) -> AuditReport:
    """The report of a program whose scores are wrong at values off the nodes only."""
    evidence = f"{scoring.evidence}; it happens too rarely to show in the residual"
    finding = program.finding(scoring.rule, evidence)
    findings = (finding, *report.findings)
    return replace(report, verdict="biased", summary=finding.means, findings=findings)


def with_far_scores(report: AuditReport, program: AuditedProgram, runner: Runner) -> AuditReport:
    """The report of sampled paths, and what is scored where continuous draws are far out.

    Too few paths are sampled to see what happens to rare values, such as those that are clipped.
    """
    survey = program.survey
    drawn = any(draw.loc is not None for trace in survey.traces for draw in trace.draws)
    if survey.exhaustive or not drawn or compare_scoring(survey) is not None:
        return report
    job = replace(_job(survey, COARSE), off_nodes=True)
    runs = run_all(runner, (replace(job, seed=seed) for seed in range(_FAR)))
    far = replace(survey, traces=tuple(run for run in runs if run.outcome in RAN))
    scoring = compare_scoring(far)
    return report if scoring is None else _scored_otherwise(report, program, scoring)


def _enumerated(
    survey: Survey, runner: Runner, job: Job, max_paths: int, progress: Progress
) -> Survey | None:
    """All paths of another job, judged by the eligibilities that are known; None: too many."""
    traces = enumerated(runner, job, max_paths, max_paths, progress)
    if traces is None or len(_readable(survey, traces)) < len(traces):
        return None
    return replace(survey, traces=traces, size=job.size)


def _readable(survey: Survey, traces: list[Trace] | tuple[Trace, ...]) -> list[Trace]:
    """Those whose choices have a known eligibility."""
    call, slopes = executing_call(survey.traces), survey.slopes or {}
    return [
        trace
        for trace in traces
        if trace.outcome in RAN and all(key in slopes for key, _ in action_keys(trace, call))
    ]


def _zero(survey: Survey) -> int:
    return sum(trace.probability == 0.0 for trace in survey.traces)


def _job(survey: Survey, nodes: int) -> Job:
    each = survey.directions_each
    return Job((), survey.size, directions=each, raised=survey.raised, nodes=nodes)
