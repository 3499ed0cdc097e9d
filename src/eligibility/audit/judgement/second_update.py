"""What the second update adds to a report: faults that the first one cannot show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Booleans, as_multiple
from eligibility.audit.faults import CHOICES
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import candidates
from eligibility.audit.judgement.conventions import bias_of_cut, describe
from eligibility.audit.judgement.diagnosis import diagnose
from eligibility.audit.judgement.evidence import Evidence, gather, joined
from eligibility.audit.judgement.explained import match_of
from eligibility.audit.judgement.kept_rewards import ADDED, keeps_rewards, with_kept_rewards
from eligibility.audit.judgement.location import first_error
from eligibility.audit.judgement.match import Match
from eligibility.audit.judgement.matching import find_match
from eligibility.audit.judgement.refusal import moved_by_hand
from eligibility.audit.judgement.same_rule import same_rule
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.judgement.update_findings import facts_of_updates
from eligibility.audit.reporting.report import AuditReport, Convention, Finding
from eligibility.audit.running.rounds import Rounds, observe_rounds
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import RAN, Progress, Survey
from eligibility.audit.trace import RATIO, Trace

_SAID_BY_TORCH = ("a second time", "modified by an inplace operation")
_OF_FILES = (
    "FileNotFoundError", "FileExistsError", "PermissionError", "NotADirectoryError",
    "UnpicklingError",
)  # fmt: skip
# In the name of a list, or of what it is given: tensors with a graph.
_WITH_GRAPH = ("log", "prob", "value", "entrop", "loss")
_PASSED = ("unbiased", "convention")
_OPEN = ("inconclusive", "unexplained")
_BONUS = (
    "the gradients of the second update were not compared with a rule, because what is added to "
    "the rewards there is not known"
)
_APART = (
    "the network that acted until the first update shares nothing with the trained network, so "
    "the audit judges the second update"
)


def with_second_update(
    report: AuditReport,
    match: Match | None,
    program: AuditedProgram,
    runner: Runner,
    program_of: Callable[[Survey], AuditedProgram],
    progress: Progress,
) -> AuditReport:
    """The report with what the second update shows.

    Its paths are visited only if the first one is right: else its fault shows again in all.
    """
    unjudged = _unjudged(report, match, program)
    if unjudged is not None:
        return unjudged
    passed = report.verdict in _PASSED and not report.faults
    apart = report.verdict == "inconclusive" and gather(program.survey) is None
    if apart and moved_by_hand(program.survey) is not None:
        return report
    rounds = observe_rounds(program.survey, runner, passed or apart, progress)
    if rounds is None:
        return report
    found = list(facts_of_updates(program, rounds, runner, match))
    if rounds.second is None or rounds.whole is None:
        return _with_findings(report, found, 1)
    second = program_of(rounds.second).untold  # the credit was measured at the first update
    failed = _failure(second, rounds)
    if failed is not None:
        return _with_findings(report, [*found, failed], 2)
    if any(finding.rule in _CARRIED for finding in found):
        return _with_findings(report, found, 2)
    if apart:
        judged = diagnose(second)
        if judged.verdict != "inconclusive":
            report = replace(judged, notes=(*judged.notes, _APART))
        return _with_findings(report, found, 2)
    if match is not None and match.here_only:
        return _with_findings(replace(report, notes=(*report.notes, _BONUS)), found, 1)
    if match is not None and _follows(program, rounds.second, match):
        told = _with_findings(_with_cut(report, rounds), found, 2)
        return with_kept_rewards(told, program, match, rounds, runner)
    wrong = _fault_of_both(program, rounds.second) if match is not None else None
    if wrong is not None:
        text = "explains every path of two updates"
        named = [program.finding(rule, text) for rule in wrong.form.faults]
        told = replace(report, rule=describe(wrong, program.tolerance))
        return _with_findings(told, [*found, *named], 2)
    later = diagnose(replace(second, critic=False))
    if later.verdict in _PASSED and not _differs(report, later):
        report = _with_conventions(report, later)
        told = _with_findings(_with_cut(report, rounds), found, 2)
        return with_kept_rewards(told, program, match, rounds, runner)
    if later.verdict == "inconclusive" or not (later.findings or later.verdict in _PASSED):
        note = f"the second update was not judged: {later.summary}"
        return _with_findings(replace(report, notes=(*report.notes, note)), found, 1)
    if _again(program, second, program_of(rounds.whole).untold, match):
        found = [finding for finding in found if finding.rule != "old-log-prob-stale"]
        text = f"it reuses the steps of the first update; {_size(later)}"
        named = [second.finding("stale-batch", text)]
    elif match is not None and _adds_first(program, rounds, match):
        text = f"without the first update's gradient, it follows the rule; {_size(later)}"
        named = [second.finding("gradients-not-zeroed", text)]
    elif match is not None and keeps_rewards(match, rounds, runner):
        named = [second.finding("stale-batch", f"{ADDED}; {_size(later)}")]
    else:
        named = _named(second, later)
    audited = _with_findings(report, [*found, *named], 2)
    return replace(audited, residual=later.residual, cosine=later.cosine, weights=later.weights)


def _unjudged(
    report: AuditReport, match: Match | None, program: AuditedProgram
) -> AuditReport | None:
    """The report where there is no second update to look at; None where there is one."""
    updated = [trace for trace in program.survey.traces if trace.updates]
    if not program.survey.slopes or not updated:
        return report
    half = [trace for trace in updated if _is_of_graphs(trace)]
    if half:  # an error after the next action belongs to the second update, and is not in these
        stopped = _error(program, "graph-used-twice", half)
        known = (finding for finding in report.findings if finding.rule != "unexplained")
        return replace(report, verdict="biased", summary=stopped.means, findings=(*known, stopped))
    ratio = any(RATIO in trace.notes for trace in updated)
    if match is not None and match.use.endswith("-decisions"):
        note = "it begins with decisions from the first rollout"
    elif match is not None and match.use == "first-episodes" and ratio:
        note = "it trains, with a ratio, on episodes from before the first update"
    else:
        return None
    note = f"the second update was not judged, because {note}"
    return replace(report, notes=(*report.notes, note))


def _follows(program: AuditedProgram, later: Survey, match: Match) -> bool:
    """Whether the gradients of ``later`` follow the rule of the first update."""
    first = _along_both(program, later)
    return first is not None and any(
        _fits(program, first, second, match)
        for second in (gather(later), gather(_from_zero(later)))
    )


def _along_both(program: AuditedProgram, later: Survey) -> Evidence | None:
    """The first update, along the directions of both: a program may train another network later."""
    return gather(replace(program.survey, slopes=later.slopes))


def _fault_of_both(program: AuditedProgram, later: Survey) -> Match | None:
    """The rule with a fault that explains both updates, where the first also had one without."""
    first, second = _along_both(program, later), gather(later)
    if program.values != "trained" or first is None or second is None or not second.scored:
        return None
    both = joined(first, second)
    match = match_of(program, both.finite)
    return match if match is not None and match.form.faults else None


def _adds_first(program: AuditedProgram, rounds: Rounds, match: Match) -> bool:
    """Whether the second update's gradients are right once the first one's is taken off them."""
    assert rounds.second is not None
    begun = replace(rounds.inspected, updates=rounds.inspected.updates[: rounds.held])
    second = rounds.second
    known, later = _along_both(program, second), gather(second)
    first = gather(replace(program.survey, traces=(begun,), slopes=second.slopes))
    if known is None or first is None or later is None:
        return False
    return _fits(program, known, replace(later, ascent=later.ascent - first.ascent), match)


def _from_zero(later: Survey) -> Survey:
    """As seen by a program whose count of steps restarts at the update."""
    traces = []
    for trace in later.traces:
        first: dict[tuple[int, int], int] = {}
        for step in trace.steps:
            first.setdefault((step.environment, step.episode), step.time)
        steps = (replace(s, time=s.time - first[s.environment, s.episode]) for s in trace.steps)
        traces.append(replace(trace, steps=tuple(steps)))
    return replace(later, traces=tuple(traces))


def _fits(program: AuditedProgram, first: Evidence, second: Evidence | None, match: Match) -> bool:
    if second is None or not second.scored:
        return False
    finite: list[Booleans] = [
        np.asarray(np.isfinite(each.ascent).all(axis=1)) for each in (first, second)
    ]
    if not finite[1].any():
        return False
    beside = 0.0 if match.beside is None else match.beside
    alone, later = (
        replace(each, ascent=each.ascent - beside).where(mask)
        for each, mask in zip((first, second), finite, strict=True)
    )
    return same_rule(alone, later, match, program.tolerance, program.values == "trained")


def _differs(report: AuditReport, later: AuditReport) -> bool:
    """Whether the second update is only explained by an entropy that the first one has not.

    On few paths a multiple of the entropy's gradient can stand for something else. A constant at
    the end that the first one has not is what it earned. A number of each path's own may be its
    length.
    """
    before, after = ({c.name for c in r.conventions} for r in (report, later))
    return bool({"entropy-bonus", "rescaled", "reward-at-end", "reward-changed"} & (after - before))


# What explains by itself why the second update is not the policy gradient.
_CARRIED = ("gradients-not-zeroed",)
# What is wrong with the critic's gradient, and not with the policy's.
_OF_CRITIC = ("critic-target-not-detached",)


def _with_findings(report: AuditReport, found: Sequence[Finding], updates: int) -> AuditReport:
    known = {finding.rule for finding in report.findings}
    new = tuple(finding for finding in found if finding.rule not in known)
    told = {(each.file, each.line) for each in new if each.severity == "fault"}
    kept = [  # what is said of a line is why no rule explains it
        each
        for each in report.findings
        if each.rule != "unexplained" or (each.file, each.line) not in told
    ]
    report = replace(report, findings=(*kept, *new), updates=updates)
    telling = [finding for finding in new if finding.rule not in _OF_CRITIC]
    wrong = [finding for finding in telling if finding.severity == "fault"]
    if (telling and report.verdict in _PASSED) or (wrong and report.verdict in _OPEN):
        verdict = "biased" if wrong else "unexplained"
        report = replace(report, verdict=verdict, summary=(wrong or telling)[0].means)
    return report


def _with_conventions(report: AuditReport, later: AuditReport) -> AuditReport:
    """The conventions that only the second update shows."""
    known = {convention.name for convention in report.conventions}
    new = [convention for convention in later.conventions if convention.name not in known]
    return _with_new(report, new, later.verdict) if new else report


def _with_cut(report: AuditReport, rounds: Rounds) -> AuditReport:
    """The convention that an episode goes on after the update and its return does not."""
    names = {convention.name for convention in report.conventions}
    if not _goes_on(rounds) or {"bootstrapped", "gae"} & names or "rollout-cut" not in names:
        return report
    name = "return-cut-at-update"
    cut = Convention(name, CHOICES[name], _size_of_cut(report, rounds))
    return _with_new(report, [cut], "convention")


def _size_of_cut(report: AuditReport, rounds: Rounds) -> float | None:
    """The bias on the path of the first update; None if not all its continuations were seen."""
    both = gather(rounds.whole) if rounds.whole and rounds.whole.exhaustive else None
    if both is None:
        return None
    steps = rounds.first.steps[: rounds.first.updates[-1].steps_before]
    return bias_of_cut(both, sum(step.executed for step in steps), report.discount)


def _with_new(report: AuditReport, new: Sequence[Convention], verdict: str) -> AuditReport:
    named = (*report.conventions, *new)
    names = ", ".join(convention.name for convention in named)
    return replace(
        report,
        verdict="convention" if "convention" in (verdict, report.verdict) else report.verdict,
        conventions=named,
        summary=f"the policy gradient up to a convention: {names}",
    )


def _goes_on(rounds: Rounds) -> bool:
    """Whether an episode goes on after the first update."""
    assert rounds.second is not None
    starts = (trace.steps[0].time for trace in rounds.second.traces if trace.steps)
    return any(time > 0 for time in starts)


# paths ------------------------------------------------------------------------------------------


def _is_of_graphs(trace: Trace) -> bool:
    """Whether torch refused to go backward through a graph."""
    return any(said in trace.detail for said in _SAID_BY_TORCH)


def _failure(second: AuditedProgram, rounds: Rounds) -> Finding | None:
    """What stops the program on its way to the second update, on every path."""
    traces = (*second.survey.traces, rounds.inspected)
    failed = [trace for trace in traces if trace.outcome not in RAN]
    graph = [trace for trace in failed if _is_of_graphs(trace)]
    if graph:
        error = _error(second, "stale-graph", graph)
        kept = second.source.kept_list_line(_WITH_GRAPH) if second.source else 0
        return replace(error, line=kept) if kept and error.file == _path(second) else error
    if any(trace.detail.startswith(_OF_FILES) for trace in failed):
        return None  # a video that nothing recorded, a model that torch does not load
    if len(failed) >= len(traces) - 1:
        return _error(second, "second-update-fails", failed)
    return None


def _path(program: AuditedProgram) -> str:
    return str(program.source.path) if program.source else ""


def _error(program: AuditedProgram, rule: str, failed: Sequence[Trace]) -> Finding:
    return program.finding(
        rule, failed[0].detail.splitlines()[0][:300], seen=first_error(tuple(failed))
    )


def _size(later: AuditReport) -> str:
    return f"the second update is off by {later.residual:.1%}, cosine {later.cosine:+.3f}"


def _named(second: AuditedProgram, later: AuditReport) -> list[Finding]:
    """The faults of the second update that the catalogue knows, or that it is none of them."""
    known = [finding for finding in later.faults if finding.rule not in _UNNAMED]
    if known:
        return [replace(f, evidence=f"at the second update: {f.evidence}") for f in known]
    text = f"{_size(later)}; the first update follows the rule on the same path"
    return [second.finding("second-update-differs", text)]


_UNNAMED = ("unexplained", "entropy-sign")  # a multiple of the entropy fits much on few paths


def _again(
    program: AuditedProgram, second: AuditedProgram, whole: AuditedProgram, match: Match | None
) -> bool:
    """Whether the steps of the first update, or their returns, enter the second one."""
    if match is not None:
        surveys = (whole.survey, _as_one_episode(whole.survey))
        if any(_follows(program, survey, match) for survey in surveys):
            return True
    return _uses_first(whole) or _uses_first_returns(second, whole)


def _as_one_episode(both: Survey) -> Survey:
    """As seen by a program that takes the steps of both updates for those of one episode."""
    traces = []
    for trace in both.traces:
        counted: dict[int, int] = {}
        steps = []
        for step in trace.steps:
            time = counted[step.environment] = counted.get(step.environment, -1) + 1
            steps.append(replace(step, episode=0, time=time))
        traces.append(replace(trace, steps=tuple(steps)))
    return replace(both, traces=tuple(traces))


def _uses_first(whole: AuditedProgram) -> bool:
    """Whether the decisions of both updates together explain the second one's gradient."""
    evidence = gather(whole.survey)
    if evidence is None or not evidence.scored or not np.isfinite(evidence.ascent).all():
        return False
    match = find_match(evidence, whole.constants, whole.tolerance, critic="no")
    return match is not None and abs(match.entropy) < whole.tolerance


def _uses_first_returns(second: AuditedProgram, whole: AuditedProgram) -> bool:
    """Whether each action of the second update got the credit of one of the first, in order.

    So it is where rewards are kept and log-probabilities are not: what is longer is cut.
    """
    own, both = gather(second.survey), gather(whole.survey)
    if own is None or both is None or not np.isfinite(own.ascent).all():
        return False
    line = timeline(both)
    width = own.present.shape[1]
    for form in candidates(line, second.constants.discounts, parts=2):
        with np.errstate(all="ignore"):
            weights = form.weights(line)[:, :width] * own.present
        if (
            np.isfinite(weights).all()
            and as_multiple(own.ascent, own.gradient(weights))[1] < second.tolerance
        ):
            return True
    return False
