"""What is kept of a run, whoever trained it: one clock, one rule to stop by, one way to look."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.learning import blackjack
from benchmarks.learning.tasks import Task

# Episodes in the mean of training that decides and of the last evaluation; points of a curve.
WINDOW, EPISODES, POINTS = 100, 100, 150
# Seconds of training until the greedy policy is first looked at, and the factor between two looks.
FIRST_LOOK, GROWTH = 0.1, 1.3


@dataclass
class Record:
    """What a run has cost so far, and when it reached the threshold, by either measure.

    The clock stands still while the greedy policy is looked at. Rows of the curves are
    ``[steps, seconds of processor time, return]``: of training the mean of the last 100 episodes.

    Attributes:
        task: What is trained on.
        play: Gives the mean return of that many fresh episodes of the greedy policy.
    """

    task: Task
    play: Callable[[int], float]
    curve: list[list[float]] = field(default_factory=list)
    greedy_curve: list[list[float]] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    training: dict[str, float] | None = None
    greedy: dict[str, float] | None = None
    _look: float = FIRST_LOOK
    _start: float = field(default_factory=time.process_time)

    @property
    def seconds(self) -> float:
        """Of processor time in training."""
        return time.process_time() - self._start

    def note(self, steps: int, episodes: int, mean: float) -> None:
        """Take in the mean return of the last 100 episodes, and the steps and episodes so far."""
        self.steps, self.episodes = steps, episodes
        self.curve.append([steps, round(self.seconds, 3), round(mean, 4)])
        if self.training is None and episodes >= WINDOW and self._reached(mean):
            self.training = {"steps": steps, "seconds": self.curve[-1][1]}

    def goes_on(self, steps: int) -> bool:
        """Look at the greedy policy if it is time to; False when all is known, or at a limit."""
        self.steps, seconds = steps, self.seconds
        over = seconds >= self.task.seconds or steps >= self.task.steps
        if over or seconds >= self._look:
            self._look = GROWTH * seconds
            mean = self.play(self.task.look)
            self._start = time.process_time() - seconds
            self.greedy_curve.append([steps, round(seconds, 3), round(mean, 4)])
            if self.greedy is None and self._reached(mean):
                self.greedy = {"steps": steps, "seconds": self.greedy_curve[-1][1]}
        return not over and (self.training is None or self.greedy is None)

    def _reached(self, mean: float) -> bool:
        return self.task.threshold is not None and mean >= self.task.threshold

    def result(self) -> dict[str, Any]:
        """What is kept of the run; plays the greedy policy once more."""
        seconds = round(self.seconds, 3)
        stride = max(1, math.ceil(len(self.curve) / POINTS))
        curve = self.curve[::stride]
        if self.curve and curve[-1] != self.curve[-1]:
            curve.append(self.curve[-1])
        return {
            "training": self.training,
            "greedy": self.greedy,
            "steps": self.steps,
            "episodes": self.episodes,
            "processor_seconds": seconds,
            "mean_return": self.curve[-1][2] if self.curve else None,
            "greedy_return": round(self.play(EPISODES), 5),
            "curve": curve,
            "greedy_curve": self.greedy_curve,
        }


def exactly(predict: Callable[[np.ndarray[Any, Any]], Any]) -> float:
    """What greedy Blackjack pays on average: a hundred hands would not tell."""
    states = np.array([(t, s, a) for t in range(2, 22) for s in range(1, 11) for a in (0, 1)])
    actions = np.asarray(predict(states)).tolist()
    table = dict(zip(map(tuple, states.tolist()), actions, strict=True))
    return blackjack.expected_return(table.__getitem__)
