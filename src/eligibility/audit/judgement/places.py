"""Where a fault is: the first statement whose numbers follow the rewards as the faulty credit does.

Each function answers with the file and line of a statement, or None where the story does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.faults import FAULTS
from eligibility.audit.job import Job
from eligibility.audit.judgement.catalogue import MEAN_TIMES_SUM
from eligibility.audit.judgement.credit_places import (
    backwards,
    carried,
    cleared,
    departure,
    doubled,
    immediate,
    later_first,
    run_on,
    shifted,
    so_far,
    squared,
    without_mean,
)
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.matching import effective_weights
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.judgement.source import Source
from eligibility.audit.judgement.source_patterns import written
from eligibility.audit.judgement.story import BROKEN, EPISODES, LONG, Place, Statement, Story, tell
from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import PRODUCT, SOFTMAX, SQUARE, Fact, Trace

IN_SCORING = (
    "scored-other-action",
    "transformed-action-scored",
    "most-likely-action-scored",
    "behaviour-not-scored",
)
# What a softmax along the steps looks like.
_OTHERWISE_SCORED = ("behaviour-not-scored", "mask-in-acting-only")
_OUTSIDE = 0.1  # share of a gradient that is not rounding, nor an entropy's
_ATTACHED = "advantage-not-detached"
_DIFFERENT = 1e-3  # between two weights, of the largest: not the same number for all actions
_ALONE = "no statement that keeps the graph of an advantage was found"


def placed(
    report: AuditReport, survey: Survey, runner: Runner, source: Source | None
) -> AuditReport:
    """The report with each fault on the statement that makes it, where a story of it tells."""
    settled = _settled(survey)
    told = [
        finding
        for finding in report.findings
        if finding.rule in BLAME
        and not (source and written(finding.rule, source))
        and finding.rule not in settled
    ]
    wanted = {_TOLD_OF.get(finding.rule, LONG) for finding in told}
    if any(finding.rule == "unexplained" for finding in told):
        wanted |= {about for about, _ in _SHOWN.values()}
    stories = {about: tell(survey, runner, about) for about in sorted(wanted)}
    report = _named(report, stories)
    moved = tuple(
        _moved(finding, stories) if finding.rule in BLAME.keys() - settled else finding
        for finding in report.findings
    )
    report = _softmax_named(replace(report, findings=moved), survey, runner)
    report = _square_named(report, survey, runner)
    if _attached(report) is None or _shows_attached(stories.get(LONG)):
        return report
    return _multiplied(report, survey, runner)


def _settled(survey: Survey) -> set[str]:
    """The faults of scoring that have their place already: that of a call, or of the action."""
    if any(score.values for trace in survey.traces for score in trace.scores):
        return set(IN_SCORING)
    scoring = compare_scoring(survey)  # of two distributions that were seen either may be wrong
    return {scoring.rule} if scoring else set()


def _softmax_named(report: AuditReport, survey: Survey, runner: Runner) -> AuditReport:
    """The report in which another distribution is scored because a softmax runs along the steps."""
    finding = next((f for f in report.findings if f.rule in _OTHERWISE_SCORED), None)
    if finding is None and _scores_others(survey):
        finding = next((f for f in report.findings if f.rule == "unexplained"), None)
    trace = _longest(survey)
    if finding is None or trace is None:
        return report
    widths = {len(draw.probs) for draw in trace.draws if draw.loc is None}
    fact = _seen(survey, runner, trace, lambda f: f.kind == SOFTMAX and f.size in widths)
    return _told_of(report, finding, "softmax-over-steps", fact)


def _square_named(report: AuditReport, survey: Survey, runner: Runner) -> AuditReport:
    """The report in which a [B] × [B, 1] product is called so.

    Where all batches have one length, its mean is mean(log_prob) × sum(returns), but for a factor.
    """
    finding = next((f for f in report.findings if f.rule == MEAN_TIMES_SUM), None)
    trace = _longest(survey)
    if finding is None or trace is None:
        return report
    fact = _seen(survey, runner, trace, lambda f: f.kind == SQUARE)
    return _told_of(report, finding, "broadcast", fact)


def _longest(survey: Survey) -> Trace | None:
    """The longest path with an update, if there is one."""
    ran = (trace for trace in survey.traces if trace.updates)
    return max(ran, key=lambda trace: len(trace.steps), default=None)


def _seen(
    survey: Survey, runner: Runner, trace: Trace, wanted: Callable[[Fact], bool]
) -> Fact | None:
    """The first such fact in the graphs of a path's losses."""
    job = Job(trace.picked, survey.size, raised=survey.raised, inspected=True)
    return next((fact for fact in runner.run(job).facts if wanted(fact)), None)


def _told_of(report: AuditReport, finding: Finding, rule: str, fact: Fact | None) -> AuditReport:
    """The report with another fault in place of a finding, where a fact shows it."""
    if fact is None:
        return report
    changed = _with(report, finding, Finding.of(FAULTS[rule], finding.evidence, *fact.place))
    return replace(changed, verdict="biased", summary=changed.faults[0].means)


def _scores_others(survey: Survey) -> bool:
    """Whether much of the gradients is along no eligibility of an executed action."""
    evidence = gather(survey)
    if evidence is None or not evidence.scored or not np.isfinite(evidence.ascent).all():
        return False
    return bool(effective_weights(evidence)[1].max(initial=0.0) > _OUTSIDE)


def _attached(report: AuditReport) -> Finding | None:
    return next((finding for finding in report.findings if finding.rule == _ATTACHED), None)


def _shows_attached(story: Story | None) -> bool:
    return story is not None and _attached_advantage(story) is not None


def _multiplied(report: AuditReport, survey: Survey, runner: Runner) -> AuditReport:
    """The report with an attached advantage as a fault only where two measurements show it.

    The critic's gradient also follows the policy where the policy's numbers are what it looks at.
    Where no statement keeps the advantage, a product of the policy's and the critic's numbers in
    the graph of a loss shows it.
    """
    finding = _attached(report)
    assert finding is not None
    job = Job((), survey.size, raised=survey.raised, inspected=True)
    critic = {tensor for tensor, _ in survey.directions} - survey.policy
    for fact in runner.run(job).facts:
        first, second = set(fact.tensors[: int(fact.size)]), set(fact.tensors[int(fact.size) :])
        sides = (first, second), (second, first)
        if fact.kind == PRODUCT and any(a <= survey.policy and b <= critic for a, b in sides):
            seen = replace(finding, file=fact.place[0], line=fact.place[1])
            return _with(report, finding, seen)
    text = f"{finding.evidence}; {_ALONE}"
    told = _with(report, finding, replace(finding, severity="warning", evidence=text))
    if told.faults or not report.faults:
        return told
    return replace(told, verdict="inconclusive", summary=told.findings[0].evidence)


def _with(report: AuditReport, known: Finding, other: Finding) -> AuditReport:
    return replace(report, findings=tuple(other if f is known else f for f in report.findings))


def _named(report: AuditReport, stories: Mapping[str, Story | None]) -> AuditReport:
    """What no rule explains gets the name of a fault that the stories show."""
    told = ((rule, stories.get(about), shows) for rule, (about, shows) in _SHOWN.items())
    rule = next((r for r, story, shows in told if story and _shown(shows, story, report)), None)
    if rule is None or all(finding.rule != "unexplained" for finding in report.findings):
        return report
    known = FAULTS[rule]
    findings = tuple(
        Finding.of(known, f.evidence, f.file, f.line) if f.rule == "unexplained" else f
        for f in report.findings
    )
    return replace(report, verdict="biased", summary=known.means, findings=findings)


def _shown(shows: Callable[[Story], Statement | None], story: Story, report: AuditReport) -> bool:
    """Whether a story shows a fault; a square of returns only if each moves all weights alike."""
    statement = shows(story)
    if statement is None or shows is not _crossed or report.credit is None:
        return statement is not None
    apart = np.ptp(np.array(report.credit.given), axis=0).max()
    return statement.place in story.scored or bool(apart < _DIFFERENT)


def _crossed(story: Story) -> Statement | None:
    """A square of numbers in which all rows, or all columns, follow the same rewards each.

    Or a score of each decision's one action under each decision's distribution.
    """
    count = len(story.steps)
    single = all(len(step.action) == 1 for step in story.steps)
    for statement in story.statements:
        if count > 2 and len(statement.numbers) == count**2:
            if single and statement.attached and statement.place in story.scored:
                return statement
            square = statement.support.reshape(count, count, -1)
            for rows in (square, square.swapaxes(0, 1)):
                if (rows == rows[0]).all() and rows[0].diagonal().all():
                    return statement
    return None


def _moved(finding: Finding, stories: Mapping[str, Story | None]) -> Finding:
    story = stories.get(_TOLD_OF.get(finding.rule, LONG))
    place = place_of(finding.rule, story) if story else None
    return replace(finding, file=place[0], line=place[1]) if place else finding


def place_of(rule: str, story: Story) -> Place | None:
    """Where the fault ``rule`` is, if the story tells."""
    blame = BLAME.get(rule)
    if blame is None:
        return None
    # an update after each step credits each action at once, wherever its product stands
    credited = not story.early and blame not in (_not_finite, cleared)
    found = blame(story) or (_product(story) if credited else None)
    return found.place if found else None


def _scored(story: Story) -> Statement | None:
    """Where there is first one number for each decision that carries the policy's gradient."""
    return next(
        (s for s in story.statements if s.learns and len(s.numbers) == _due(s, story)), None
    )


def _due(statement: Statement, story: Story) -> int:
    """One number while the program acts, and one for each decision when it learns."""
    return 1 if statement.steps_before < story.transitions else len(story.steps)


def _product(story: Story) -> Statement | None:
    """Where rewards meet what carries a gradient to the policy."""
    learning = (statement for statement in story.statements if statement.learns)
    return next((s for s in learning if s.support[s.carrying].any()), None)


def _bootstrapped(story: Story) -> Statement | None:
    """Where the values behind the ends are left out of an array, or rewards meet a critic's."""
    ends = np.array([step.terminated or step.truncated for step in story.steps])
    some = bool(ends.any() and not ends.all())
    return next(
        (
            s
            for s in story.statements
            if (some and np.array_equal(s.valued, ~ends)) or s.support[s.valued].any()
        ),
        None,
    )


def _attached_advantage(story: Story) -> Statement | None:
    """Where a credit is made that carries a gradient."""
    credits: list[Array] = []
    for statement in story.statements:
        if statement.support.any():
            own = statement.attached and not statement.learns  # a ratio's product has the policy's
            if own and _is_among(statement.slopes, credits):
                return statement
            if not statement.attached:
                credits.append(statement.slopes)
    return None


def _is_among(slopes: Array, credits: list[Array]) -> bool:
    return any(
        slopes.shape == credit.shape and np.allclose(slopes, credit, atol=1e-3)
        for credit in credits
    )


def _detached(story: Story) -> Statement | None:
    """Where, before the loss, what carried a gradient was last kept without it."""
    attached: list[Array] = []
    found = None
    for statement in story.statements:
        if statement.attached:
            attached.append(statement.numbers)
        elif statement.place in story.scored or _equals_one(statement.numbers, attached):
            found = statement
    return found


def _equals_one(numbers: Array, others: list[Array]) -> bool:
    """Whether the numbers are those of one of the others, up to their sign."""
    return bool(numbers.any()) and any(
        len(numbers) == len(other) and np.allclose(np.abs(numbers), np.abs(other))
        for other in others
    )


def _not_finite(story: Story) -> Statement | None:
    """Where the first number is made that is none."""
    return next((s for s in story.statements if not np.isfinite(s.numbers).all()), None)


def _cut_to_integers(story: Story) -> Statement | None:
    """Where numbers are integers, and change with the rewards by whole ones."""
    for statement in story.statements:
        changed = bool((statement.numbers != statement.far).any())
        whole = np.concatenate([statement.numbers, statement.far])
        if changed and not statement.attached and bool((whole == np.trunc(whole)).all()):
            return statement
    return None


BLAME: dict[str, Callable[[Story], Statement | None]] = {
    "broadcast": lambda story: _crossed(story) or squared(story),
    "unexplained": departure,
    MEAN_TIMES_SUM: _product,
    "wrong-sign": _product,
    "probability-not-log-probability": _product,
    "no-gradient": _detached,
    _ATTACHED: _attached_advantage,
    "truncation-as-termination": _bootstrapped,
    "bootstrapped-after-termination": _bootstrapped,
    "return-carried-over-episodes": carried,
    "return-carried-over-actors": carried,
    "immediate-reward-twice": doubled,
    "reversed-returns": backwards,
    "discount-from-the-end": later_first,
    "shifted-rewards": shifted,
    "last-reward-dropped": cleared,
    "rewards-so-far": so_far,
    "immediate-reward": immediate,
    "rewards-centred": without_mean,
    "integer-returns": _cut_to_integers,
    **dict.fromkeys(IN_SCORING, _scored),
    "std-of-one-element": _not_finite,
    "non-finite-gradient": _not_finite,
}
# What a path shows without a rule, and which path.
_SHOWN: dict[str, tuple[str, Callable[[Story], Statement | None]]] = {
    "broadcast": (LONG, _crossed),
    "return-carried-over-episodes": (EPISODES, run_on),
}
# The paths that show them, where a long one does not.
_TOLD_OF = {
    "return-carried-over-episodes": EPISODES,
    "std-of-one-element": BROKEN,
    "non-finite-gradient": BROKEN,
}
