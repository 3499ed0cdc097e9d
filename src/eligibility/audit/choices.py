"""Every random choice of a program asks here, and a depth-first search visits all the answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from eligibility.audit.trace import Draw, Trace

MAX_CHOICES = 40_000  # a batch of 10,000 steps, with the problem's own choices
MAX_UPDATES = 128  # of one round: a batch with 80 steps of a critic on it is customary


class TooManyChoicesError(BaseException):
    """The program makes more random choices before its first update than the audit follows.

    Not an ``Exception``: a program's own ``except Exception`` must not swallow it.
    """


class PathComplete(BaseException):  # the normal end of a run, no error
    """The run has reached what it was started for."""


class Choices:
    """Answers the choices of one run: first as prescribed, then the first possible outcome.

    Args:
        prescribed: Outcomes of the first choices.
        seed: Draw the later ones at random instead, with this seed.
        stop_after: End the run after so many choices.
    """

    def __init__(
        self, prescribed: Sequence[int] = (), seed: int | None = None, stop_after: int | None = None
    ) -> None:
        self._prescribed = prescribed
        self._random = None if seed is None else random.Random(seed)
        self._stop_after = stop_after
        self.draws: list[Draw] = []

    def choose(
        self,
        probs: Sequence[float],
        source: str,
        gaussian: tuple[float, float, Sequence[float]] | None = None,
    ) -> int:
        """The outcome of the next choice, an index of ``probs``.

        Args:
            probs: Probability of each outcome; outcomes of probability 0 are never taken.
            source: "action", "environment" or "other".
            gaussian: Mean, standard deviation and quadrature values, for a Gaussian draw.
        """
        position = len(self.draws)
        if position == self._stop_after:
            raise PathComplete
        if position >= MAX_CHOICES:
            raise TooManyChoicesError
        picked = self._pick(position, probs)
        if gaussian is None:
            draw = Draw(source, tuple(probs), picked)
        else:
            loc, scale, values = gaussian
            draw = Draw(source, tuple(probs), picked, loc, scale, values[picked])
        self.draws.append(draw)
        return picked

    def _pick(self, position: int, probs: Sequence[float]) -> int:
        if position < len(self._prescribed):
            return self._prescribed[position]
        possible = [index for index, prob in enumerate(probs) if prob > 0]
        if not possible:
            raise ValueError(f"a distribution whose probabilities are {list(probs)[:8]}")
        if self._random is None:
            return possible[0]
        return self._random.choices(possible, [probs[index] for index in possible])[0]


def next_path(trace: Trace, given: int = 0) -> tuple[int, ...] | None:
    """The choices of the path after ``trace`` in depth-first order; None after the last one.

    The first ``given`` choices stay as they are.
    """
    for position in reversed(range(given, len(trace.draws))):
        draw = trace.draws[position]
        for outcome in range(draw.picked + 1, len(draw.probs)):
            if draw.probs[outcome] > 0:
                return (*(earlier.picked for earlier in trace.draws[:position]), outcome)
    return None
