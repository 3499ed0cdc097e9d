"""Finds the reward of a program without an environment, by its effect on the gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.costs import is_a_cost, may_be_a_cost
from eligibility.audit.job import SIZES, Job, OwnProblem, Statement
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import ARGUMENTS, OPTIMIZERS, Draw, Trace

_PATHS = 32  # looked at for numbers that follow the draws
_SAME_LUCK = 4  # of them have the same other random numbers
_MOST_DRAWS = 2000  # in two updates
_LONG = 12  # draws for one reward: too many to follow
_OUTCOMES = 3  # of a draw, besides its own, after which the reward is looked at
_COMPARED = 256  # numbers that a name is given
_TRIED = 12  # numbers that may be the reward
_ROUNDING = 1e-6  # relative, also of what runs in single precision
_REWARDS = np.random.Generator(np.random.PCG64(17)).normal(size=4096).round(3)


class Solving(OtherRunner):
    """Runs a program without an environment on a problem."""

    def __init__(self, runner: Runner, problem: OwnProblem) -> None:
        super().__init__(runner, problem=problem)
        self.problem = problem


def own_problem(runner: Runner, first: Trace) -> tuple[OwnProblem, Trace] | None:
    """The problem of a program whose ``first`` run had no environment, and its first path with it.

    None if the program draws nothing.
    """
    noted = [note for note in first.notes if note.startswith(OPTIMIZERS)]
    count = int(noted[0].removeprefix(OPTIMIZERS)) if noted else 0
    # what is drawn between two optimizers is a network's weights, or an action
    for begins, by_hand in dict.fromkeys(((count, False), (1, False), (count, True))):
        problem = OwnProblem(begins, by_hand)
        path = Solving(runner, problem).run(Job((), SIZES[0]))
        if begins and path.draws:
            return problem, path
    return None


def with_own_reward(runner: Runner, problem: OwnProblem, updates: int) -> Solving | None:
    """Runs the program with the probe's rewards in place of its own; None if it has no reward.

    The program makes ``updates`` optimizer steps on what it has drawn for the problem. Its reward
    is the first number that follows what was drawn, moves the gradient as a factor or a summand
    does, and without which no number made of it follows the draw before it.
    """
    plain = Solving(runner, problem)
    # and one more: the first reward may be a baseline's, which leaves nothing to the first update
    job = Job((), SIZES[0], seed=0, held=max(updates, 1))
    paths: list[Trace] = []
    for seed in range(_PATHS):
        path = plain.run(replace(job, seed=seed, noise=seed // _SAME_LUCK, followed=True))
        if path.outcome not in RAN or not 0 < len(path.draws) <= _MOST_DRAWS:
            return None
        paths.append(path)
    tried = [
        Solving(runner, replace(problem, reward=reward, cost=is_a_cost(reward[2])))
        for reward in _following(paths)[:_TRIED]
    ]
    known = [each for each in tried if _moves_gradients(each, job)]
    for each in known:
        if _is_whole(each, job, known) and _is_separate(each, job) and _is_short(each, job):
            cost = each.problem.cost or _is_opposed(each, known, paths)
            contexts = _has_contexts(each, job)
            return Solving(runner, replace(each.problem, cost=cost, contexts=contexts))
    return None


def _following(paths: list[Trace]) -> list[Statement]:
    """What gives a name numbers that differ as draws do, in the order in which they begin to."""
    begins: dict[Statement, int] = {}
    for start in range(0, len(paths), _SAME_LUCK):
        first, *others = alike = paths[start : start + _SAME_LUCK]
        found = [_given(path) for path in others]
        for name, given in _given(first).items():
            if all(_are_drawn(_given(path).get(name, []), path) for path in alike):
                continue
            numbers = [[each[0] for each in other[name]] for other in found if name in other]
            for place, (number, when, line) in enumerate(given):
                if any(each[place : place + 1] != [number] for each in numbers):
                    begins.setdefault((name.file, line, name.name), when)
                    break
    return sorted(begins, key=lambda statement: begins[statement])


class _Name(NamedTuple):
    """A name of a function, or of a module."""

    file: str
    scope: int  # the first line of either
    name: str


_Given = tuple[float, int, int]  # a number, when it was given in the order of statements, the line


def _given(path: Trace) -> dict[_Name, list[_Given]]:
    """The numbers without a gradient that each name is given."""
    given: dict[_Name, list[_Given]] = {}
    for when, made in enumerate(path.made):
        named = made.name.replace(".", "_").isidentifier()
        if named and made.name not in ("return", ARGUMENTS) and not any(made.attached):
            name = _Name(Path(made.place[0]).name, made.scope, made.name)
            before = given.setdefault(name, [])
            if len(before) < _COMPARED:
                before += [(number, when, made.place[1]) for number in made.numbers]
    return given


def _given_to(statement: Statement, path: Trace) -> list[float]:
    """The numbers that the name of a statement is given, there and elsewhere in its function."""
    file, line, name = statement
    for known, given in _given(path).items():
        if (known.file, known.name) == (file, name) and any(at == line for _, _, at in given):
            return [number for number, _, _ in given]
    return []


def _are_drawn(given: list[_Given], path: Trace) -> bool:
    """Whether the numbers are what was drawn itself."""
    values = [draw.picked if draw.value is None else draw.value for draw in path.draws]
    return [number for number, _, _ in given] == values[: len(given)]


def _moves_gradients(by: Runner, job: Job) -> bool:
    """Whether it enters each gradient as a factor or a summand does, if by its sign alone.

    So (g(2r) − g₀) is from 1 to 2 times (g(r) − g₀), where g₀ is the mean of g(r) and g(−r).
    """
    found = [
        _gradients(by.run(replace(job, rewards=tuple((scale * _REWARDS).tolist()))))
        for scale in (1.0, -1.0, 2.0)
    ]
    if not found[0] or len({tuple(map(len, each)) for each in found}) > 1:
        return False
    moved = False
    for once, against, twice in zip(*found, strict=True):
        change, more = (once - against) / 2.0, twice - (once + against) / 2.0
        size = float(np.linalg.norm(change))
        if size <= _ROUNDING * np.linalg.norm(once):
            continue
        factor = float(change @ more) / size**2
        off = float(np.linalg.norm(more - factor * change))
        if off > _ROUNDING * size or not 1.0 - _ROUNDING < factor < 2.0 + _ROUNDING:
            return False
        moved = True
    return moved


def _gradients(trace: Trace) -> list[Array]:
    """Those of all updates; none if no step was made, or the program failed."""
    if trace.outcome not in RAN or not trace.steps:
        return []
    every = ([row for row in update.ascent if row is not None] for update in trace.updates)
    return [np.concatenate(rows) if rows else np.zeros(0) for rows in every]


def _is_whole(by: Solving, job: Job, known: list[Solving]) -> bool:
    """Whether nothing that is made of the reward follows the draw before it in another way."""
    # at the ends alone: else a reward's size would follow the number of its draws
    job = replace(job, followed=True, at_ends=True, rewards=(0.5,) * len(_REWARDS))
    path = by.run(job)
    last = max(max(group) for step in path.steps if not step.episode for group in step.groups)
    more = by.run(replace(job, rewards=(0.75,) * len(_REWARDS)))
    turned = [by.run(replace(job, prescribed=picked)) for picked in _otherwise(path, last)]
    others = [each.problem.reward for each in known if each is not by and each.problem.reward]
    for statement in others:
        plain, moved, *after = (_given_to(statement, each) for each in (path, more, *turned))
        if plain != moved and any(each != plain for each in after):
            return False
    return True


def _is_opposed(by: Solving, known: list[Solving], paths: list[Trace]) -> bool:
    """Whether what is called a reward is a constant minus it, as −b and 1 − b are for a b."""

    def numbers(each: Solving) -> Array:
        statement = each.problem.reward
        assert statement is not None
        return np.array([number for path in paths for number in _given_to(statement, path)])

    mine = numbers(by)
    rewards = (
        numbers(each)
        for each in known
        if each.problem.reward and not may_be_a_cost(each.problem.reward[2])
    )
    return bool(np.ptp(mine)) and any(
        len(theirs) == len(mine) and np.ptp(theirs + mine) <= _ROUNDING * np.ptp(mine)
        for theirs in rewards
    )


def _is_separate(by: Runner, job: Job) -> bool:
    """Whether no other reward's first draw, of the same batch or the next, depends on the first."""
    path = by.run(job)
    other = by.run(replace(job, prescribed=_otherwise(path, 0)[0][:1]))
    one, two = (
        {
            (step.environment, step.episode): each.draws[step.groups[0][0]]
            for step in each.steps
            if step.time == 0 and step.episode < 2
        }
        for each in (path, other)
    )
    first = path.steps[0]
    later = one.keys() - {(first.environment, first.episode)}
    return bool(later) and all(key in two and _same_law(one[key], two[key]) for key in later)


def _is_short(by: Runner, job: Job) -> bool:
    """Whether a reward comes after few draws, on some paths at least."""
    paths = [by.run(replace(job, seed=seed)) for seed in range(_PATHS)]
    return all(step.time < _LONG for path in paths for step in path.steps)


def _has_contexts(by: Runner, job: Job) -> bool:
    """Whether what is drawn from depends on other random numbers."""
    one, two = (by.run(replace(job, noise=noise)) for noise in (1, 2))
    return not all(map(_same_law, one.draws, two.draws))


def _otherwise(path: Trace, position: int) -> list[tuple[int, ...]]:
    """The choices of a path, of which one is another: for some of its other outcomes."""
    picked, probs = path.picked, path.draws[position].probs
    possible = [k for k, prob in enumerate(probs) if prob > 0 and k != picked[position]]
    return [
        (*picked[:position], k, *picked[position + 1 :])
        for k in (possible or [picked[position]])[:_OUTCOMES]
    ]


def _same_law(one: Draw, other: Draw) -> bool:
    return (one.probs, one.loc, one.scale) == (other.probs, other.loc, other.scale)
