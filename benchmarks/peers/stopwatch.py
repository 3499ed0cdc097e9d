"""One stopping rule and one clock for trainers that know of neither.

`watch` replaces ``gymnasium.make``: every environment that a trainer makes reports its episodes
here. The clock starts with the first reset. When the mean of the last 100 episodes, over all
environments in the order in which they end, reaches the goal, the process prints the result and
ends; likewise when the steps are used up. A step costs about a microsecond more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium

WINDOW = 100


class Stopwatch:
    """What all environments of a process report to.

    Args:
        goal: The mean return of the last 100 episodes that ends the process.
        steps: The environment steps after which it ends unsolved.
    """

    def __init__(self, goal: float, steps: int) -> None:
        self._goal, self._limit = goal, steps
        self._start: float | None = None
        self._steps = 0
        self._returns: deque[float] = deque(maxlen=WINDOW)

    def started(self) -> None:
        """An environment is reset."""
        if self._start is None:
            self._start = time.perf_counter()

    def stepped(self) -> None:
        """An environment has made a step."""
        self._steps += 1
        if self._steps >= self._limit:
            self.finish(solved=False)

    def ended(self, episode_return: float) -> None:
        """An episode is over."""
        self._returns.append(episode_return)
        if len(self._returns) == WINDOW and sum(self._returns) >= WINDOW * self._goal:
            self.finish(solved=True)

    def finish(self, *, solved: bool) -> None:
        """Print the result as the last line of standard output, and end the process."""
        now = time.perf_counter()
        result = {
            "solved": solved,
            "training_seconds": round(now - (self._start or now), 6),
            "steps": self._steps,
            "mean_return": sum(self._returns) / max(len(self._returns), 1),
        }
        print(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that reports to the stopwatch."""

    def __init__(self, env: Any, stopwatch: Stopwatch) -> None:
        super().__init__(env)
        self._stopwatch, self._return = stopwatch, 0.0

    def reset(self, **options: Any) -> Any:
        """As the environment does."""
        self._stopwatch.started()
        self._return = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """As the environment does."""
        result = self.env.step(action)
        self._return += float(result[1])
        self._stopwatch.stepped()
        if result[2] or result[3]:
            self._stopwatch.ended(self._return)
        return result


def watch(stopwatch: Stopwatch) -> Callable[..., Any]:
    """Make ``gymnasium.make`` watch what it makes; returns the stock function."""
    stock = gymnasium.make

    def make(*arguments: Any, **options: Any) -> Watched:
        return Watched(stock(*arguments, **options), stopwatch)

    gymnasium.make = make
    return stock
