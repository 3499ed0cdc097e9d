"""Whole numbers of a program that are small in its runs, so that its batches are short."""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from eligibility.audit.job import SIZES, Job, SmallNumber, WholeNumber
from eligibility.audit.patches import Patches
from eligibility.audit.rewritten import rewrite
from eligibility.audit.running.outside_numbers import read_small
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import NO_ENVIRONMENT, OWN_REWARD, TIME_LIMIT, Trace

_SMALL = 6  # two episodes of the probe
_FEW = 2  # environments, where a program has more
_LARGE = 12  # of a number that may be a batch's
_SHORT = 14  # steps of a batch that are few enough
_TRIALS = 8
FIRST = Job((), SIZES[0])
_NOT_LOADED = re.compile("(ModuleNotFound|Import|Syntax|Indentation|Tab)Error: ")


class Smaller(OtherRunner):
    """Runs a program with some of its whole numbers small."""

    def __init__(self, runner: Runner, numbers: tuple[SmallNumber, ...]) -> None:
        super().__init__(runner)
        self._numbers = numbers

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        return self._runner.start(replace(job, smaller=(*self._numbers, *job.smaller)))


def small_batches(
    runner: Runner,
    first: Trace,
    numbers: Callable[[], Sequence[WholeNumber]],
    most: int = _SHORT,
) -> tuple[SmallNumber, ...]:
    """The numbers that make the batch of a program's ``first`` run short, if it is long.

    ``most`` steps are few enough, or draws of a program without an environment.
    """
    steps = _steps(first)
    if steps <= most or first.outcome == NO_ENVIRONMENT or _has_no_batch(first):
        return ()
    learned = _learned(first)

    def run_with(smaller: Sequence[SmallNumber]) -> Trace | None:
        """The first path with these; None if the program does not run with them."""
        trial = Smaller(runner, tuple(smaller)).run(FIRST)
        learns = _has_gradient(trial) or (bool(first.updates) and not _has_gradient(first))
        as_before = not trial.updates or (learns and _learned(trial) >= learned)
        return trial if as_before and trial.outcome != "error" else None

    known = numbers()
    # the rows of a problem of the program's own are environments, and a mean is of all of them
    own = any(note.startswith(OWN_REWARD) for note in first.notes)
    count = _environments(first)
    chosen = [] if own else _fewer_environments(count, known, run_with)

    def steps_with(smaller: Sequence[SmallNumber]) -> float:
        """NaN if the program does not run with these."""
        trial = run_with([*chosen, *smaller])
        return math.nan if trial is None else _steps(trial)

    actors = _FEW if chosen else max(count, 1)
    if chosen:
        steps = steps_with(())
    left = [number for number in known if (*number, _FEW) not in chosen]
    acted = len(first.steps or first.draws)
    promising, refused = _by_promise(steps, steps / actors, left, acted)[:_TRIALS], False
    tiny = [(*number[:4], _FEW) for number in promising]  # parts of an episode, or many episodes
    for number in (*promising, *tiny):
        if steps <= most:
            break
        found = steps_with([number])
        refused = refused or math.isnan(found)  # such as parts that are larger than the whole
        if found < steps:
            others = [each for each in chosen if each[:4] != number[:4]]
            chosen, steps = [*others, number], found
    if steps > most and refused:
        needed = _fewest_of(promising, steps_with, most)
        return _with_larger_parts([*chosen, *needed], run_with) if needed else ()
    # a search for a reward needs fewer draws; an enumeration needs few steps
    return tuple(chosen) if steps <= most or not first.steps else ()


def _environments(trace: Trace) -> int:
    """How many environments took a step, without those that were only tried out before."""
    steps = trace.steps
    return len({step.environment for step in steps[len(steps) // 2 :]})


def _fewer_environments(
    count: int,
    numbers: Sequence[WholeNumber],
    run_with: Callable[[Sequence[SmallNumber]], Trace | None],
) -> list[SmallNumber]:
    """The number that says how many environments there are, if there are many."""
    if count <= _FEW:
        return []
    for number in [number for number in numbers if number[3] == count][:_TRIALS]:
        trial = run_with([(*number, _FEW)])
        if trial is not None and _environments(trial) == _FEW:
            return [(*number, _FEW)]
    return []


def _fewest_of(
    numbers: list[SmallNumber], steps_with: Callable[[list[SmallNumber]], float], most: int
) -> tuple[SmallNumber, ...]:
    """Those numbers that are needed to make a batch short."""
    needed = list(numbers)
    if not steps_with(needed) <= most:
        return ()
    for number in reversed(numbers):
        others = [each for each in needed if each != number]
        if others and steps_with(others) <= most:
            needed = others
    return tuple(needed)


def _with_larger_parts(
    numbers: Sequence[SmallNumber], run_with: Callable[[Sequence[SmallNumber]], Trace | None]
) -> tuple[SmallNumber, ...]:
    """The numbers, of which those that say how many parts a batch has are smaller still.

    Of a part of two steps, a mean and a deviation leave nothing but a sign.
    """
    best, found = tuple(numbers), run_with(numbers)
    for place, number in enumerate(numbers):
        other = (*best[:place], (*number[:4], _FEW), *best[place + 1 :])
        trial = run_with(other) if number[4] > _FEW else None
        if trial is None or found is None or _steps(trial) != _steps(found):
            continue
        if 0 < len(trial.updates) < len(found.updates):
            best, found = other, trial
    return best


def limits_in_probe(first: Trace, numbers: Sequence[WholeNumber]) -> tuple[SmallNumber, ...]:
    """The numbers that may be an environment's time limit, or its last step, with the probe's.

    `done and steps != 200` is right for CartPole-v0, whose limit is 200; the probe's is not.
    """
    met = (note for note in first.notes if note.startswith(TIME_LIMIT))
    limits = [int(note.removeprefix(TIME_LIMIT)) for note in met]
    meant = {limit - less: SIZES[0].horizon - less for limit in limits for less in (1, 0)}
    return tuple((*number, meant[number[3]]) for number in numbers if number[3] in meant)


def shrink(numbers: Sequence[SmallNumber]) -> None:
    """From now on these numbers are small in what this process loads."""
    if not numbers:
        return

    def change(tree: ast.Module, file: str) -> ast.Module:
        name = os.path.basename(file)
        places = {number[1:3]: number[4] for number in numbers if number[0] == name}
        for node in ast.walk(tree) if places else ():
            if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) in places:
                node.value = places[node.lineno, node.col_offset]
        return tree

    rewrite(Patches(), change)
    read_small({number[:4]: number[4] for number in numbers})


def _steps(trace: Trace) -> float:
    """Steps before a run's first update, or draws; infinitely many if it came to none."""
    acted = trace.outcome in RAN and trace.updates
    return len(trace.steps or trace.draws) if acted else float("inf")


def _has_no_batch(trace: Trace) -> bool:
    """Whether a run came to its end without an environment, or to a module that is not there."""
    ended = trace.outcome == "finished" and not trace.steps
    return ended or bool(_NOT_LOADED.search(trace.detail))


def _learned(trace: Trace) -> set[int]:
    """Which parameter tensors learn in a run; a baseline may need a batch of some size."""
    rows = [update.ascent for update in trace.updates]
    return {place for row in rows for place, values in enumerate(row) if values is not None}


def _has_gradient(trace: Trace) -> bool:
    """Whether any gradient of a run is not 0."""
    return any(value for update in trace.updates for row in update.ascent for value in row or ())


def _by_promise(
    steps: float, rows: float, numbers: Sequence[WholeNumber], acted: int
) -> list[SmallNumber]:
    """Those that can be the steps of a batch: its rows first, then what divides it, the larger.

    A run that came to no update ``acted`` that often: a batch that it has filled is not larger.
    """
    fitting = [number for number in numbers if _LARGE <= number[3] <= steps]
    rests = {number: steps % number[3] if steps != float("inf") else 0.0 for number in fitting}

    def promise(number: WholeNumber) -> tuple[bool, bool, bool, int]:
        return number[3] != rows, rests[number] > 0, number[3] > acted, -number[3]

    return [(*number, _SMALL) for number in sorted(fitting, key=promise)]
