"""Whole numbers of a program's text that are small in its runs, so that its batches are."""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eligibility.audit.job import SIZES, Job, WholeNumber
from eligibility.audit.running.runner import Runner
from eligibility.audit.running.survey import RAN
from eligibility.audit.trace import Trace

SMALL = 6  # two episodes of the probe
_LARGE = 24  # of a number that may be a batch's
_LONG, _SHORT = 100, 30  # steps of a batch: how many are too many, and few enough
_TRIALS, _NEAR = 8, 2  # the second: other numbers that one may have to go with


class Smaller:
    """Runs a program with some of its whole numbers small.

    Args:
        runner: Runs it.
        numbers: Those.
    """

    def __init__(self, runner: Runner, numbers: tuple[WholeNumber, ...]) -> None:
        self._runner, self._numbers = runner, numbers

    def run(self, job: Job) -> Trace:
        """One run."""
        return self._runner.run(replace(job, smaller=self._numbers))


def small_batches(runner: Runner, numbers: Sequence[WholeNumber]) -> tuple[WholeNumber, ...]:
    """The numbers that make a program's first batch short; none if it is, or none does.

    Args:
        runner: Runs it.
        numbers: All of its text.
    """
    fewest = steps = _steps(runner.run(Job((), SIZES[0])))
    if steps <= _LONG:
        return ()
    chosen: tuple[WholeNumber, ...] = ()
    waiting: deque[tuple[WholeNumber, ...]]
    waiting = deque((number,) for number in _by_promise(steps, numbers))
    for _ in range(_TRIALS):
        if not waiting or fewest <= _SHORT:
            break
        added = waiting.popleft()
        found = _steps(Smaller(runner, (*chosen, *added)).run(Job((), SIZES[0])))
        if found < fewest:
            chosen, fewest = (*chosen, *added), found
        elif found == float("inf") and len(added) == 1:  # such as parts larger than the whole
            others = sorted(set(numbers) - {*chosen, *added}, key=lambda n: distance(added[0], n))
            waiting.extendleft((*added, other) for other in reversed(others[:_NEAR]))
    return chosen if fewest <= _LONG else ()


def shrink(numbers: Sequence[WholeNumber]) -> None:
    """From now on these numbers are small in what this process compiles, which is all it loads."""
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


def _steps(trace: Trace) -> float:
    """Steps before a run's first update; infinitely many if it came to none."""
    return len(trace.steps) if trace.outcome in RAN and trace.updates else float("inf")


def _by_promise(steps: float, numbers: Sequence[WholeNumber]) -> list[WholeNumber]:
    """Those that can be the steps of a batch: those that divide it first, the larger first."""
    fitting = [number for number in numbers if _LARGE <= number[3] <= steps]
    rests = {number: steps % number[3] if steps != float("inf") else 0.0 for number in fitting}
    return sorted(fitting, key=lambda number: (rests[number] > 0, -number[3]))


def distance(one: WholeNumber, other: WholeNumber) -> tuple[bool, int]:
    """How far apart two numbers stand in the program's text."""
    return one[0] != other[0], abs(one[1] - other[1])
