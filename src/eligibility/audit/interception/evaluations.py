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
        self._waiting: set[int] = set()
        self._unsettled: list[int] = []
        self._drawn = False
        self.steps: list[Step] = []

    def begins(self, environment: int) -> None:
        """An episode starts, and its first action is not yet drawn."""
        self._waiting.add(environment)

    def drawn(self) -> None:
        """The program draws, so the next steps are not an evaluation."""
        self._drawn = True
        self._waiting.clear()
        self._settle()

    def has(self, environment: int) -> bool:
        """Whether nothing was drawn since the environment was reset."""
        return environment in self._waiting

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
