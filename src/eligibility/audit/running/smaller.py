"""Whole numbers of a program that are small in its runs, so that its batches are short."""

from __future__ import annotations

import ast
import builtins
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eligibility.audit.job import SIZES, Job, WholeNumber
from eligibility.audit.running.outside_numbers import read_small
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import NO_ENVIRONMENT, Trace

SMALL = 6  # two episodes of the probe
_LARGE = 12  # of a number that may be a batch's
_LONG, _SHORT = 14, 14  # steps of a batch: how many are too many, and few enough
_TRIALS = 8
_FIRST = Job((), SIZES[0])


class Smaller:
    """Runs a program with some of its whole numbers small."""

    def __init__(self, runner: Runner, numbers: tuple[WholeNumber, ...]) -> None:
        self._runner, self._numbers = runner, numbers

    @property
    def ahead(self) -> int:
        """As many as of the program as it is."""
        return self._runner.ahead

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        return self._runner.start(replace(job, smaller=self._numbers))

    def run(self, job: Job) -> Trace:
        """One run."""
        return self.start(job)()


def small_batches(
    runner: Runner, numbers: Callable[[], Sequence[WholeNumber]]
) -> tuple[WholeNumber, ...]:
    """The numbers that make a program's first batch short; none if it is, or none does."""
    first = runner.run(_FIRST)
    steps = _steps(first)
    if steps <= _LONG or first.outcome == NO_ENVIRONMENT:
        return ()
    learns = not first.updates or _has_gradient(first)

    def steps_with(smaller: Sequence[WholeNumber]) -> float:
        """NaN if the program does not run with these."""
        trial = Smaller(runner, tuple(smaller)).run(_FIRST)
        unlearning = learns and bool(trial.updates) and not _has_gradient(trial)
        return math.nan if unlearning or trial.outcome == "error" else _steps(trial)

    promising = _by_promise(steps, numbers())[:_TRIALS]
    chosen: list[WholeNumber] = []
    for number in promising:
        found = steps_with([*chosen, number])
        if math.isnan(found):  # such as parts that are larger than the whole
            return _fewest_of(promising, steps_with)
        if found < steps:
            chosen, steps = [*chosen, number], found
        if steps <= _SHORT:
            break
    return tuple(chosen) if steps <= _LONG else ()


def _fewest_of(
    numbers: list[WholeNumber], steps_with: Callable[[list[WholeNumber]], float]
) -> tuple[WholeNumber, ...]:
    """Those numbers that are needed to make a batch short."""
    needed = list(numbers)
    if not steps_with(needed) <= _SHORT:
        return ()
    for number in reversed(numbers):
        others = [each for each in needed if each != number]
        if others and steps_with(others) <= _SHORT:
            needed = others
    return tuple(needed)


def shrink(numbers: Sequence[WholeNumber]) -> None:
    """From now on these numbers are small in what this process loads."""
    if not numbers:
        return
    stock = builtins.compile

    def compiled(source: Any, filename: Any, mode: str, *args: Any, **options: Any) -> Any:
        name = os.path.basename(os.fsdecode(filename))
        places = {number[1:3] for number in numbers if number[0] == name}
        if places and mode == "exec" and not args and not isinstance(source, ast.AST):
            source = stock(source, filename, mode, ast.PyCF_ONLY_AST, dont_inherit=True)
            for node in ast.walk(source):
                if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) in places:
                    node.value = SMALL
        if len(args) < 2:  # else what this module has from __future__ would be the program's too
            options.setdefault("dont_inherit", True)
        return stock(source, filename, mode, *args, **options)

    builtins.compile = compiled
    sys.pycache_prefix = str(Path(os.devnull, "none"))  # what was compiled before is not loaded
    read_small(dict.fromkeys(numbers, SMALL))


def _steps(trace: Trace) -> float:
    """Steps before a run's first update; infinitely many if it came to none."""
    return len(trace.steps) if trace.outcome in RAN and trace.updates else float("inf")


def _has_gradient(trace: Trace) -> bool:
    """Whether any gradient of a run is not 0."""
    return any(value for update in trace.updates for row in update.ascent for value in row or ())


def _by_promise(steps: float, numbers: Sequence[WholeNumber]) -> list[WholeNumber]:
    """Those that can be the steps of a batch: those that divide it first, the larger first."""
    fitting = [number for number in numbers if _LARGE <= number[3] <= steps]
    rests = {number: steps % number[3] if steps != float("inf") else 0.0 for number in fitting}
    return sorted(fitting, key=lambda number: (rests[number] > 0, -number[3]))
