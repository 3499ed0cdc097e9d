"""Where a credit goes wrong: what numbers follow which rewards, statement by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.judgement.story import Place, Statement, Story

_SHIFTED = 1e-3  # share of a slope that is rounding


def carried(story: Story) -> Statement | None:
    """Where a number follows rewards of two episodes, unequally; rather when learning begins."""
    episode = [(step.environment, step.episode) for step in story.steps]
    other = np.array([[one != two for two in episode] for one in episode])
    for statement in sorted(_credits(story), key=lambda s: s.steps_before < story.transitions):
        for row, follows in zip(statement.slopes, statement.support, strict=True):
            several = bool(other[np.ix_(follows, follows)].any())
            if several and np.ptp(row[follows]) > 1e-3 * np.abs(row).max():
                return statement
    return None


def run_on(story: Story) -> Statement | None:
    """Where each decision follows all rewards from its own on, those of later episodes too."""
    episodes = [(step.environment, step.episode) for step in story.steps]
    last = _last(story) if len(set(episodes)) > len({actor for actor, _ in episodes}) == 1 else ()
    for statement in (s for s in _credits(story) if id(s) in last):
        follows = statement.support
        growing = (np.diff(follows, axis=1) <= follows[:, 1:]).all()  # none, and then all
        fewer = (follows[1:] <= follows[:-1]).all() and (follows[-1] < follows[0]).any()
        if len(follows) == story.transitions and follows[0].all() and growing and fewer:
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
    """Only the final state of a list or an array that is filled step by step."""
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


def backwards(story: Story) -> Statement | None:
    """Where the first decision gets the last return, or the last sum of rewards so far."""
    for statement, follows, wanted in _matrices(story):
        if any(np.array_equal(follows, rows[::-1]) for rows in (wanted, wanted.T)):
            return statement
    return None


def without_mean(story: Story) -> Statement | None:
    """Where each number follows all rewards of a batch or an episode, and no shift of them all."""
    for statement in (found[0] for found in _matrices(story)):
        slopes = statement.slopes
        size = np.abs(slopes).max()
        if len(slopes) > 1 and np.abs(slopes.sum(axis=1)).max() < _SHIFTED * size:
            return statement
    return None


def later_first(story: Story) -> Statement | None:
    """Where a number follows the later of its rewards more than the earlier ones."""
    for statement in _credits(story):
        for row in (
            slopes[slopes != 0.0] for slopes in np.abs(statement.slopes * statement.support)
        ):
            if len(row) > 1 and (np.diff(row) > 1e-3 * row.max()).all():
                return statement
    return None


def cleared(story: Story) -> Statement | None:
    """Where what followed each reward of an episode does not follow the last one."""
    last = {group[-1] for group in _groups(story)[:-1] if len(group) > 1}
    before: dict[str, Statement] = {}
    each: dict[tuple[Place, str], Statement] = {}
    usual: set[tuple[Place, str]] = set()  # where a name is given something else at every step
    grown = {
        (s.place, s.name, s.steps_before)
        for s in story.statements
        if 0 < s.steps_before <= len(story.steps) and s.support[:, s.steps_before - 1].any()
    }
    for statement in story.statements:
        reward, key = statement.steps_before - 1, (statement.place, statement.name)
        earlier, again = before.get(statement.name), each.get(key)
        before[statement.name] = each[key] = statement
        if (*key, statement.steps_before) in grown:
            continue  # it follows this step's reward, now or after more of the same
        if reward < 0 or reward >= len(story.steps):
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
    for statement, follows in (*_one_by_one(story), *((s, f) for s, f, _ in _finished(story))):
        if not follows[:, -1].any() and follows.diagonal()[:-1].all():
            return statement
    return None


def _one_by_one(story: Story) -> Iterator[tuple[Statement, Booleans]]:
    """What a loop over the decisions makes, one number each, with the rewards that these follow.

    The loop goes over all episodes, forwards or backwards; only the last one's are given.
    """
    count, last = len(story.steps), _groups(story)[-2]
    made: dict[tuple[Place, str], list[Statement]] = {}
    for statement in (s for s in story.statements if not s.attached):
        if statement.steps_before == story.transitions and len(statement.numbers) == 1:
            made.setdefault((statement.place, statement.name), []).append(statement)
    for runs in (runs for runs in made.values() if len(runs) == count):
        square = np.concatenate([run.support for run in runs])
        for rows in (square, square[::-1]):
            yield runs[0], rows[np.ix_(last, last)]


def departure(story: Story) -> Statement | None:
    """Where a reward is first lost, or a decision follows those before it or not its own."""
    if lost := cleared(story):
        return lost
    for statement, follows, wanted in _finished(story):
        credited = bool(follows.any(axis=1).all() and (follows != follows[0]).any())
        if credited and ((follows & ~wanted).any() or not follows.diagonal().all()):
            return statement
    return squared(story)


def shifted(story: Story) -> Statement | None:
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


def so_far(story: Story) -> Statement | None:
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


def immediate(story: Story) -> Statement | None:
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


def doubled(story: Story) -> Statement | None:
    """Where a number follows the first of its rewards twice, and the later ones at most once."""
    for statement in _credits(story):
        for row in (slopes[slopes != 0.0] for slopes in np.abs(statement.slopes)):
            if len(row) > 1 and abs(row[0] - 2.0) < 1e-3 and row[1:].max() < 1.0 + 1e-3:
                return statement
    return None


def squared(story: Story) -> Statement | None:
    """Where a number is made for each two decisions, and each of them follows a reward."""
    sizes = {len(group) ** 2 for group in _groups(story) if len(group) > 1}
    square = (s for s in story.statements if len(s.numbers) in sizes)
    return next((s for s in square if s.support.any(axis=1).all()), None)
