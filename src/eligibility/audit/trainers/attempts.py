"""A script with its own training loop: one attempt, and more with other numbers in its text."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from eligibility.audit.job import WholeNumber
from eligibility.audit.running.outside_numbers import place_of
from eligibility.audit.trainers.branch import Branch, branch_off
from eligibility.audit.trainers.record import Record, record_from
from eligibility.audit.trainers.rewriting import SMALL

Sizes = dict[WholeNumber, int]
_TRIALS = 32
_PAIRS = 3  # others that a number may have to go with
_TOGETHER = 3  # numbers that are made small at a time
_FEW_ROWS = 4  # with more answers a program is first tried with smaller numbers in its text


class Attempts:
    """Runs of one script, each in a process of its own.

    Args:
        run: Runs it and fills the record, with other numbers in its text, up to a number of rows;
            the last argument: whether only the grouping of its answers is wanted.
    """

    def __init__(self, run: Callable[[Record, Sizes, float, bool], None]) -> None:
        self._run = run
        self._known: dict[str, Any] = {}  # of the program, by fields of the record
        self._sizes: Sizes = {}

    def best(self) -> Record:
        """The record of the script as it is, or of the one with the fewest rows that was found."""
        first = self._attempt({})
        for labels in (2, 3, 5):  # such as negative, neutral and positive
            if first.classifies and not first.rows:
                first = self._again(first, labels=labels)
        record = self._with_few_rows(first)
        uneven = first.one_prompt or record.one_prompt
        if uneven and record.outcome != "measured":
            self._sizes = {}
            record = self._with_few_rows(self._again(first, one_prompt=True))
        if self._sizes and record.prompts == record.group > 1 and not record.mixed:
            record.mixed_elsewhere = self._mixes_where_unequal()
        return record

    def _with_few_rows(self, first: Record) -> Record:
        self._known["early"] = first.early
        return first if first.rows <= _FEW_ROWS else self._smaller(first)

    def _again(self, first: Record, **known: Any) -> Record:
        """The record of what more is known, if the program comes at least as far with it."""
        before, self._known = self._known, self._known | known
        record = self._attempt({})
        if record.rows or not first.rows:
            return record
        self._known = before
        return first

    def _smaller(self, least: Record) -> Record:
        listed = [each for each in _by_promise(least) if each[3] > SMALL]
        promising = deque(([each], "") for each in listed)
        values = dict.fromkeys(each[3] for each in listed)  # of a batch and of all of its answers
        promising.extend(([n for n in listed if n[3] == value], "") for value in values)
        for _ in range(_TRIALS):
            if not promising:
                break
            constants, failure = promising.popleft()
            sizes = self._sizes | dict.fromkeys(constants, SMALL)
            trial = self._attempt(sizes)
            if trial.outcome == "measured" and trial.rows < least.rows:
                self._sizes, least = sizes, trial
                if trial.rows <= _FEW_ROWS:
                    return trial
            elif not trial.fits and trial.detail != failure:
                others = [each for each in listed if each not in sizes]
                near = sorted(others, key=lambda each: _distance(constants[0], each))
                more = [([*constants, each], trial.detail) for each in near[:_PAIRS]]
                promising.extendleft(reversed(more if len(constants) < _TOGETHER else []))
        least = self._with_ones(least)
        return least if least.rows <= _FEW_ROWS else self._attempt(self._sizes, math.inf)

    def _with_ones(self, least: Record) -> Record:
        """The record with 1 for numbers that are 2, such as prompts, until the rows are few."""
        twos = [each for each in map(_whole, least.constants) if each[3] == SMALL]
        for number in [*self._sizes, *twos][:_TRIALS]:
            if least.rows <= _FEW_ROWS:
                break
            sizes = self._sizes | {number: 1}
            trial = self._attempt(sizes)
            fewer = trial.rows < least.rows and trial.group == least.group
            if trial.outcome == "measured" and fewer:
                self._sizes, least = sizes, trial
        return least

    def _mixes_where_unequal(self) -> bool:
        """Whether answers to different prompts share a group where a group has another size.

        Where there are as many prompts as answers to each, rows and columns can be confused, and
        nothing shows it.
        """
        for value in dict.fromkeys(number[3] for number in self._sizes):
            larger = {n: s + (n[3] == value) for n, s in self._sizes.items()}
            record = self._attempt(larger, math.inf, grouping=True)
            if record.outcome == "measured" and record.prompts != record.group:
                return record.mixed
        return False

    def _attempt(
        self, sizes: Sizes, most_rows: float = _FEW_ROWS, grouping: bool = False
    ) -> Record:
        way = branch_off()
        if isinstance(way, Branch):
            record = Record(**self._known)
            try:
                self._run(record, sizes, most_rows, grouping)
            except BaseException as error:  # this process must never go on as its parent would
                record = Record("error", f"{type(error).__name__}: {error}")
            way.send(**asdict(record))
        if not (found := way()):
            return Record("error", "the program's process ended early")
        made = record_from(found)
        for number, size in sizes.items():
            made.note(f"reduced: {number[3]} is {size} {place_of(number)}")
        return made


def _by_promise(record: Record) -> list[WholeNumber]:
    """Whole numbers of a program, those first that can be how many answers it samples."""
    rows, named = record.rows, (record.rows, record.group, record.prompts)
    fitting = [each for each in map(_whole, record.constants) if rows % each[3] == 0]
    return sorted(fitting, key=lambda each: (each[3] not in named, -each[3]))


def _whole(number: list[Any]) -> WholeNumber:
    name, line, column, value = number
    return name, line, column, value


def _distance(one: WholeNumber, other: WholeNumber) -> tuple[bool, bool, int]:
    """How far apart two numbers are: the same one first, then those that stand near."""
    return one[3] != other[3], one[0] != other[0], abs(one[1] - other[1])
