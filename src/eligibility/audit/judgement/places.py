"""Where a fault is: the first statement whose numbers follow the rewards as the faulty credit does.

Each function answers with the file and line of a statement, or None where the story does not tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.faults import FAULTS
from eligibility.audit.judgement.source import Source
from eligibility.audit.judgement.source_patterns import written
from eligibility.audit.judgement.story import BROKEN, EPISODES, LONG, Statement, Story, tell
from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import Survey

Place = tuple[str, int]
_ATTACHED = "advantage-not-detached"
_ALONE = "no statement was seen to keep the graph of an advantage"


def placed(
    report: AuditReport, survey: Survey, runner: Runner, source: Source | None
) -> AuditReport:
    """The report with each fault on the statement that makes it, where a story of it tells."""
    told = [
        finding
        for finding in report.findings
        if finding.rule in BLAME and not (source and written(finding.rule, source))
    ]
    wanted = {_TOLD_OF.get(finding.rule, LONG) for finding in told}
    stories = {about: tell(survey, runner, about) for about in sorted(wanted)}
    report = _with_broadcast(report, stories.get(LONG))
    moved = tuple(
        _moved(finding, stories) if finding.rule in BLAME else finding
        for finding in report.findings
    )
    return _without_unconfirmed(replace(report, findings=moved), stories.get(LONG))


def _without_unconfirmed(report: AuditReport, story: Story | None) -> AuditReport:
    """The report with an attached advantage as a fault only where two measurements show it.

    The critic's gradient also follows the policy where the policy's numbers are what it looks at.
    """
    if story is not None and _attached_advantage(story) is not None:
        return report
    findings = tuple(
        replace(finding, severity="warning", evidence=f"{finding.evidence}; {_ALONE}")
        if finding.rule == _ATTACHED
        else finding
        for finding in report.findings
    )
    told = replace(report, findings=findings)
    if told.faults or not report.faults:
        return told
    return replace(told, verdict="inconclusive", summary=told.findings[0].evidence)


def _with_broadcast(report: AuditReport, story: Story | None) -> AuditReport:
    """What no rule explains is a broadcast where each decision meets the reward of each other."""
    if story is None or _crossed(story) is None:
        return report
    known = FAULTS["broadcast"]
    findings = tuple(
        replace(
            f, rule=known.id, title=known.title, means=known.means, fix=known.fix,
            severity=known.severity,
        )
        if f.rule == "unexplained"
        else f
        for f in report.findings
    )  # fmt: skip
    if findings == report.findings:
        return report
    return replace(report, verdict="biased", summary=known.means, findings=findings)


def _crossed(story: Story) -> Statement | None:
    """A square of numbers in which all rows, or all columns, follow the same rewards each."""
    count = len(story.steps)
    for statement in story.statements:
        if count > 2 and len(statement.numbers) == count**2:
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
    credited = not story.early and blame not in (_not_finite, _cleared)
    found = blame(story) or (_product(story) if credited else None)
    return found.place if found else None


def _product(story: Story) -> Statement | None:
    """Where rewards meet what carries a gradient to the policy."""
    learning = (statement for statement in story.statements if statement.learns)
    return next((s for s in learning if s.support[s.carrying].any()), None)


def _squared(story: Story) -> Statement | None:
    """Where a number is made for each two decisions, and each of them follows a reward."""
    sizes = {len(group) ** 2 for group in _groups(story) if len(group) > 1}
    square = (s for s in story.statements if len(s.numbers) in sizes)
    return next((s for s in square if s.support.any(axis=1).all()), None)


def _bootstrapped(story: Story) -> Statement | None:
    """Where rewards meet the values of a critic."""
    return next((s for s in story.statements if s.support[s.valued].any()), None)


def _attached_advantage(story: Story) -> Statement | None:
    """Where a credit is made that carries a gradient."""
    credits: list[Array] = []
    for statement in story.statements:
        if statement.support.any():
            if statement.attached and _is_among(statement.slopes, credits):
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


def _carried(story: Story) -> Statement | None:
    """Where a number follows rewards of two episodes, unequally."""
    episode = [(step.environment, step.episode) for step in story.steps]
    other = np.array([[one != two for two in episode] for one in episode])
    for statement in _credits(story):
        for row, follows in zip(statement.slopes, statement.support, strict=True):
            several = bool(other[np.ix_(follows, follows)].any())
            if several and np.ptp(row[follows]) > 1e-3 * np.abs(row).max():
                return statement
    return None


def _credits(story: Story) -> Iterator[Statement]:
    """What follows rewards and carries no gradient."""
    return (s for s in story.statements if not s.attached and s.support.any())


def _matrices(story: Story) -> Iterator[tuple[Statement, Booleans, Booleans]]:
    """Those with a number for every step of an episode, or of all.

    With each [T, T] the rewards that each number follows, and those that a return would follow.
    """
    groups = _groups(story)
    own = np.array([[(i in g) and (j in g) and j >= i for j in range(len(story.steps))]
                    for i in range(len(story.steps))
                    for g in groups[:-1] if i in g])  # fmt: skip
    abreast = len({step.environment for step in story.steps})
    first = [i for i, step in enumerate(story.steps) if step.environment == 0]
    for statement in _credits(story):
        count, follows = len(statement.numbers), statement.support
        for group in groups:
            if len(group) > 1 and count == len(group) and not np.delete(follows, group, 1).any():
                yield statement, follows[:, group], own[np.ix_(group, group)]
                break
        else:
            if abreast > 1 and count == abreast * len(first):
                yield statement, follows[::abreast, first], own[np.ix_(first, first)]


def _finished(story: Story) -> Iterator[tuple[Statement, Booleans, Booleans]]:
    """Of a list or an array that is filled step by step, only what it is in the end."""
    last = _last(story)
    return (found for found in _matrices(story) if id(found[0]) in last)


def _last(story: Story) -> set[int]:
    """The identities of what a statement made when it ran last."""
    return set(map(id, {(s.place, s.name): s for s in _credits(story)}.values()))


def _groups(story: Story) -> list[list[int]]:
    """The decisions of each episode, and at last those of all."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, step in enumerate(story.steps):
        groups.setdefault((step.environment, step.episode), []).append(index)
    return [*groups.values(), list(range(len(story.steps)))]


def _reversed(story: Story) -> Statement | None:
    """Where the first decision gets the last return, or the last sum of rewards so far."""
    for statement, follows, wanted in _matrices(story):
        if any(np.array_equal(follows, rows[::-1]) for rows in (wanted, wanted.T)):
            return statement
    return None


def _cleared(story: Story) -> Statement | None:
    """Where what followed each reward of an episode does not follow the last one."""
    last = {group[-1] for group in _groups(story)[:-1] if len(group) > 1}
    before: dict[str, Statement] = {}
    each: dict[tuple[Place, str], Statement] = {}
    usual: set[tuple[Place, str]] = set()  # where a name is given something else at every step
    for statement in story.statements:
        reward, key = statement.steps_before - 1, (statement.place, statement.name)
        earlier, again = before.get(statement.name), each.get(key)
        before[statement.name] = each[key] = statement
        if reward < 0 or reward >= len(story.steps) or statement.support[:, reward].any():
            continue
        replaced = False
        if earlier is not None and earlier.steps_before == statement.steps_before:
            follows = earlier.support[earlier.support[:, reward]]
            same = len(earlier.numbers) == len(statement.numbers)
            replaced = bool(len(follows) == follows.sum() == 1 and same)
        if reward not in last:
            usual |= {key} if replaced else set()
            continue
        kept = again is not None and again.steps_before == reward
        if kept and again is not None and again.support[:, reward - 1].any():
            return statement
        if replaced and key not in usual:
            return statement
    for statement, follows, _ in _finished(story):
        if not follows[:, -1].any() and follows.diagonal()[:-1].all():
            return statement
    return None


def _departure(story: Story) -> Statement | None:
    """Where a reward is first lost, or a decision follows those before it or not its own."""
    if lost := _cleared(story):
        return lost
    for statement, follows, wanted in _finished(story):
        credited = bool(follows.any(axis=1).all() and (follows != follows[0]).any())
        if credited and ((follows & ~wanted).any() or not follows.diagonal().all()):
            return statement
    return _squared(story)


def _shifted(story: Story) -> Statement | None:
    """Where the numbers of an earlier statement have moved to other decisions, or begin so."""
    moved = {id(s) for s, *follows in _matrices(story) if _is_off_diagonal(*follows)}
    last = _last(story)
    before: list[Array] = []
    for statement in (s for s in _credits(story) if id(s) in last):
        if id(statement) in moved or any(_has_moved(statement.slopes, one) for one in before):
            return statement
        before.append(statement.slopes)
    return None


def _is_off_diagonal(follows: Booleans, wanted: Booleans) -> bool:
    """Whether each decision follows what the one after it should, or the one before it."""
    return np.array_equal(follows[:-1], wanted[1:]) or np.array_equal(follows[1:], wanted[:-1])


def _has_moved(slopes: Array, before: Array) -> bool:
    """Whether rows are those before, all moved by the same number of places."""
    count = len(slopes)
    if count < 2 or slopes.shape != before.shape or np.allclose(slopes, before, atol=1e-3):
        return False
    return any(
        np.allclose(slopes[:-by], before[by:], atol=1e-3)
        or np.allclose(slopes[by:], before[:-by], atol=1e-3)
        for by in range(1, count // 2 + 1)
    )


def _so_far(story: Story) -> Statement | None:
    """Where a decision follows rewards before it, or a sum begins with the first reward."""
    past = {id(s) for s, follows, wanted in _matrices(story) if np.array_equal(follows, wanted.T)}
    for statement in _credits(story):
        if id(statement) in past:
            return statement
        if len(statement.numbers) == 1 and statement.steps_before == story.transitions:
            row = statement.support[0]
            begun = int(row.sum())
            if 1 < begun < len(row) and row[:begun].all():
                return statement
    return None


def _immediate(story: Story) -> Statement | None:
    """After the last step: where what is used as returns is made, and follows one reward each."""
    begun = [s for s in story.statements if s.steps_before < story.transitions]
    known, same = {s.name for s in begun}, {s.identity for s in begun}
    later = [s for s in _credits(story) if s.steps_before == story.transitions]
    summing = {s.place for s in later if (s.support.sum(axis=1) > 1).any()}
    made = {id(s) for s, follows, _ in _matrices(story) if _is_diagonal(follows)}
    new = [s for s in later if id(s) in made and s.identity not in same and s.name not in known]
    often = Counter(s.place for s in later)
    built = [s for s in new if often[s.place] > 1]  # step by step, not by conversion
    names = [s.name for s in built or new]
    for before, statement in zip([None, *later], later, strict=False):
        if names and statement.name == names[-1] and statement.place not in summing:
            added = before is not None and len(before.numbers) < len(story.steps)
            own = added and before and before.name not in known and before.place not in summing
            return before if own else statement
    return None


def _is_diagonal(follows: Booleans) -> bool:
    """Whether each decision follows one reward, and all do another."""
    return bool((follows.sum(axis=0) == 1).all() and (follows.sum(axis=1) == 1).all())


def _doubled(story: Story) -> Statement | None:
    """Where a number follows the first of its rewards twice, and the later ones at most once."""
    for statement in _credits(story):
        for row in (slopes[slopes != 0.0] for slopes in np.abs(statement.slopes)):
            if len(row) > 1 and abs(row[0] - 2.0) < 1e-3 and row[1:].max() < 1.0 + 1e-3:
                return statement
    return None


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
    "broadcast": lambda story: _crossed(story) or _squared(story),
    "unexplained": _departure,
    "mean-log-prob-times-sum-of-returns": _product,
    "wrong-sign": _product,
    "probability-not-log-probability": _product,
    "no-gradient": _detached,
    _ATTACHED: _attached_advantage,
    "truncation-as-termination": _bootstrapped,
    "bootstrapped-after-termination": _bootstrapped,
    "return-carried-over-episodes": _carried,
    "return-carried-over-actors": _carried,
    "immediate-reward-twice": _doubled,
    "reversed-returns": _reversed,
    "shifted-rewards": _shifted,
    "last-reward-dropped": _cleared,
    "rewards-so-far": _so_far,
    "immediate-reward": _immediate,
    "integer-returns": _cut_to_integers,
    "std-of-one-element": _not_finite,
    "non-finite-gradient": _not_finite,
}
# The paths that show them, where a long one does not.
_TOLD_OF = {
    "return-carried-over-episodes": EPISODES,
    "return-carried-over-actors": EPISODES,
    "std-of-one-element": BROKEN,
    "non-finite-gradient": BROKEN,
}
