"""What is kept of a run, whoever trained it: one rule to stop by, one way to play greedily."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.learning import blackjack
from benchmarks.learning.tasks import Task

# Episodes in the mean that decides, points kept of a curve, episodes of the evaluation.
WINDOW, POINTS, EPISODES = 100, 150, 200


@dataclass
class Record:
    """What a run has cost so far, and whether it is over: solved, or at a limit.

    The curve has a row ``[steps, seconds of processor time, mean of the last 100 episodes]``.
    """

    task: Task
    curve: list[list[float]] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    solved: bool = False
    _wall: float = field(default_factory=time.perf_counter)
    _processor: float = field(default_factory=time.process_time)

    def note(self, steps: int, episodes: int, mean: float) -> bool:
        """Take the state after ``steps`` steps; True while training is to go on."""
        self.steps, self.episodes = steps, episodes
        seconds = time.process_time() - self._processor
        self.curve.append([steps, round(seconds, 3), round(mean, 4)])
        goal = self.task.threshold
        self.solved = goal is not None and episodes >= WINDOW and mean >= goal
        return not self.solved and seconds < self.task.seconds and steps < self.task.steps

    def result(self) -> dict[str, Any]:
        """What is kept of the run."""
        stride = max(1, math.ceil(len(self.curve) / POINTS))
        curve = self.curve[::stride]
        if self.curve and curve[-1] != self.curve[-1]:
            curve.append(self.curve[-1])
        return {
            "solved": self.solved,
            "steps": self.steps,
            "episodes": self.episodes,
            "mean_return": self.curve[-1][2] if self.curve else None,
            "processor_seconds": self.curve[-1][1] if self.curve else None,
            "wall_seconds": round(time.perf_counter() - self._wall, 2),
            "curve": curve,
        }


def exactly(predict: Callable[[np.ndarray[Any, Any]], Any]) -> float:
    """What greedy Blackjack pays on average: 200 hands would not tell."""
    states = np.array([(t, s, a) for t in range(2, 22) for s in range(1, 11) for a in (0, 1)])
    actions = np.asarray(predict(states)).tolist()
    table = dict(zip(map(tuple, states.tolist()), actions, strict=True))
    return round(blackjack.expected_return(table.__getitem__), 5)
