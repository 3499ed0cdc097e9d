"""Calls that are started before the first of them is waited for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from eligibility.audit.side_by_side import in_order
from eligibility.audit.trainers.branch import Branch, branch_off


def test_answers_come_in_order_and_as_many_are_begun_as_asked_for() -> None:
    events = []

    def calls() -> Iterator[Callable[[], int]]:
        for number in range(4):
            events.append(f"begin {number}")
            yield lambda number=number: number

    for number in in_order(calls(), most=lambda: 2):
        events.append(f"answer {number}")
    begun = ["begin 0", "begin 1", "answer 0", "begin 2", "answer 1", "begin 3", "answer 2"]
    assert events == [*begun, "answer 3"]


def branch(wait: int, **found: Any) -> Callable[[], dict[str, Any]]:
    """One that ends when nobody holds the other end of the pipe ``wait`` any more."""
    way = branch_off()
    if isinstance(way, Branch):
        os.read(wait, 1)
        way.send(**found)
    return way


def test_a_branch_goes_on_while_another_one_waits() -> None:
    end, begin = os.pipe()
    slow = branch(end, number=0)
    os.write(begin, b".")  # for either of the two
    quick = branch(end, number=1)
    os.write(begin, b".")
    assert [slow()["number"], quick()["number"]] == [0, 1]
    os.close(begin)
    os.close(end)


def test_a_branch_that_nobody_listens_to_ends_without_a_word() -> None:
    end, begin = os.pipe()
    way = branch_off()
    if isinstance(way, Branch):
        os.read(end, 1)
        way.send(number=0)
    child, reading = way.args  # type: ignore[attr-defined]
    os.close(reading)
    os.write(begin, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(begin)
    os.close(end)
