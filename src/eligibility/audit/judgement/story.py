"""How every number that the user's statements make depends on every reward: by replay.

One path is run again with one reward moved a little, and then with the next. Each statement ran in
all of them, so its numbers have slopes. The rewards that a number follows say what it is, whatever
the program calls it. Numbers that differ between two equal runs, such as a clock's, follow nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from eligibility.audit.arrays import Array, Booleans
from eligibility.audit.job import Job
from eligibility.audit.running.runner import Runner, run_all
from eligibility.audit.running.survey import RAN, Survey
from eligibility.audit.trace import Made, Step, Trace

Place = tuple[str, int]  # file and line
_MOVED = 1e-4  # a reward
_SHIFTED = 0.05  # a tensor of the critic
_FAR = 1.7  # by how much all rewards differ in one run, so that integers change
_VISIBLE = 1e-6
MOST_REWARDS = 24
LONG, EPISODES, BROKEN = "a long path", "several episodes", "values that are not numbers"


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement as it ran once.

    Attributes:
        place: File and line.
        name: What it made.
        numbers: [n] its numbers.
        slopes: [n, J] how they follow the rewards.
        far: [n] its numbers where all rewards are others.
        carrying: [n] whether a gradient flows through a number.
        learns: Whether such a gradient reaches what only the policy uses.
        valued: [n] whether a number follows a critic's values.
        steps_before: Transitions before it.
        identity: The same number for the same object.
    """

    place: tuple[str, int]
    name: str
    numbers: Array
    slopes: Array
    far: Array
    carrying: Booleans
    learns: bool
    valued: Booleans
    steps_before: int
    identity: int

    @property
    def attached(self) -> bool:
        """Whether a gradient flows through any of it."""
        return bool(self.carrying.any())

    @property
    def support(self) -> Booleans:
        """[n, J] whether a number follows a reward."""
        size = np.abs(self.slopes)
        return np.asarray(size > _VISIBLE * max(float(size.max(initial=0.0)), 1.0))


@dataclass(frozen=True, eq=False)
class Story:
    """One path.

    Attributes:
        statements: In the order of the run.
        steps: [J] the transitions that earned the rewards.
        transitions: How many there were, ignored ones included.
        scored: Where log-probabilities were computed that carry a gradient.
        early: Whether an update was made before the last transition.
    """

    statements: tuple[Statement, ...]
    steps: tuple[Step, ...]
    transitions: int
    scored: frozenset[tuple[str, int]]
    early: bool


def tell(survey: Survey, runner: Runner, about: str = LONG) -> Story | None:
    """The story of the path that shows most; None where replays do not run alike."""
    ran = sorted(survey.traces, key=lambda trace: trace.outcome in RAN)
    short = [trace for trace in ran if len(_rewarded(trace)) <= MOST_REWARDS]
    if not short:
        return None  # of those with the same rewards, the first that runs to its end
    told = max(reversed(short), key=lambda trace: _telling(trace, about))
    steps = _rewarded(told)
    job = Job(told.picked, survey.size, raised=survey.raised, followed=True)
    rewards = np.array([step.reward for step in steps])
    shown = [
        rewards,
        rewards,
        _FAR * rewards + 0.9,
        *(rewards + _MOVED * unit for unit in np.eye(len(steps))),
    ]
    jobs = (replace(job, rewards=tuple(each)) for each in shown)
    base, again, far, *moved = run_all(runner, jobs)
    others = _valued(told, survey.policy)
    critic = replace(job, rewards=tuple(rewards), tensor=others, distance=_SHIFTED)
    valued = runner.run(critic) if others is not None else base
    if any(_shape(trace.made) != _shape(base.made) for trace in (again, far, valued, *moved)):
        return None
    made = zip(base.made, again.made, far.made, valued.made, _by_statement(moved), strict=True)
    return Story(
        tuple(_statement(*each, survey.own) for each in made),
        steps,
        len(told.steps),
        frozenset(score.place for score in base.scores if score.differentiable),
        any(update.steps_before < len(told.steps) for update in told.updates[:1]),
    )


def _valued(trace: Trace, policy: frozenset[int]) -> int | None:
    """The last tensor that learns and is not of the policy: it moves a critic's values."""
    learning = {
        tensor
        for update in trace.updates
        for tensor, ascent in enumerate(update.ascent)
        if ascent is not None and any(ascent)
    }
    return max(learning - policy, default=None)


def _telling(trace: Trace, about: str) -> tuple[int, int]:
    """What a path shows of what is asked; and how many rewards."""
    steps = _rewarded(trace)
    if about == BROKEN:
        given = [row for update in trace.updates for row in update.ascent if row is not None]
        return int(not all(map(np.isfinite, chain.from_iterable(given)))), -len(steps)
    lengths = Counter((step.environment, step.episode) for step in steps)
    shown = len(lengths) if about == EPISODES else max(lengths.values(), default=0)
    return shown, len(steps)


def _rewarded(trace: Trace) -> tuple[Step, ...]:
    return tuple(step for step in trace.steps if step.executed)


def _shape(made: Sequence[Made]) -> list[tuple[tuple[str, int], str, int]]:
    return [(one.place, one.name, len(one.numbers)) for one in made]


def _by_statement(moved: Sequence[Trace]) -> list[tuple[Made, ...]]:
    return list(zip(*(trace.made for trace in moved), strict=True))


def _statement(
    base: Made, again: Made, far: Made, valued: Made, moved: Sequence[Made], policy: frozenset[int]
) -> Statement:
    numbers = np.array(base.numbers)
    loose = numbers != np.array(again.numbers)  # a clock's, or of memory that nobody has filled yet
    loose &= ~np.isnan(numbers)
    with np.errstate(invalid="ignore"):  # an infinite number stays infinite
        slopes = np.array([np.array(one.numbers) - numbers for one in moved]).T / _MOVED
    slopes = np.where(loose[:, None], 0.0, slopes.reshape(len(numbers), len(moved)))
    return Statement(
        base.place,
        base.name,
        numbers,
        np.nan_to_num(slopes),
        np.where(loose, numbers, np.array(far.numbers)),
        np.array(base.attached, dtype=bool),
        bool(policy & frozenset(base.leads)),
        (np.array(valued.numbers) != numbers) & ~loose,
        base.steps_before,
        base.identity,
    )
