"""Episodes for which the program draws nothing: evaluations of the most likely actions."""

from __future__ import annotations

from collections.abc import Iterable

from eligibility.audit.choices import MAX_STEPS, Choices, TooMuchWorkError
from eligibility.audit.trace import Step


class Evaluations:
    """The environments that wait for a draw, and what was done in them without one.

    No decision is made in such an episode, and one outcome of the problem's choices is enough. But
    a program that never draws has no other steps; so nothing is settled before the first draw.
    """

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self.waiting: set[int] = set()  # those that were reset, and nothing was drawn since
        self._unsettled: list[int] = []
        self._drawn = False
        self.steps: list[Step] = []

    def drawn(self) -> None:
        """The program draws, so the next steps are not an evaluation."""
        self._drawn = True
        self.waiting.clear()
        self._settle()

    def add(self, step: Step, chosen: Iterable[int | None]) -> None:
        """A step without a draw, and the choices of the problem that led there."""
        if len(self.steps) >= MAX_STEPS:
            raise TooMuchWorkError(f"{MAX_STEPS:,} steps of its environments")
        self.steps.append(step)
        self._unsettled += [choice for choice in chosen if choice is not None]
        if self._drawn:
            self._settle()

    def _settle(self) -> None:
        while self._unsettled:
            self._choices.settle(self._unsettled.pop())
