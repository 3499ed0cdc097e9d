"""One line of the page: what was tried, how often, and what did not hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """An attack and its outcome.

    Attributes:
        attack: What was done.
        tried: How often.
        held: How often what was expected came about.
        expected: What that is.
        failures: Of those that did not hold, what happened: the first few.
        note: A figure worth knowing, such as the slowest of them; may be empty.
    """

    attack: str
    tried: int
    held: int
    expected: str
    failures: tuple[str, ...] = ()
    note: str = ""


def row_of(attack: str, expected: str, outcomes: Iterable[str], note: str = "") -> Row:
    """The row of several outcomes; an outcome is empty if it was the expected one."""
    listed = list(outcomes)
    failures = [outcome for outcome in listed if outcome]
    held = len(listed) - len(failures)
    return Row(attack, len(listed), held, expected, tuple(failures[:5]), note)
