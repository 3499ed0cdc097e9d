"""Memory by Gymnasium's own wrapper: the last observations side by side."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from eligibility.train.learner import Reinforce


class Recall(gymnasium.Env[Any, int]):
    """A cue of −1 or 1, four steps of 0, and then a reward for the action that names the cue."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The cue."""
        super().reset(seed=seed)
        self._cue, self._time = int(self.np_random.integers(2)), 0
        return np.array([2 * self._cue - 1], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Nothing, or in the sixth step the reward."""
        self._time += 1
        over = self._time == 6
        return np.zeros(1, np.float32), float(over and action == self._cue), over, False, {}


def test_what_was_seen_five_steps_ago_is_remembered_by_a_stack_of_frames() -> None:
    options: dict[str, Any] = {"stop_at": 0.99, "environments": 64, "discount": 1.0}
    stacked = Reinforce(lambda: FrameStackObservation(Recall(), 6), **options)
    assert stacked.learn(40_000).progress.solved
    assert stacked.evaluate(100).mean_return == 1
    forgetful = Reinforce(Recall, **options).learn(40_000)
    assert not forgetful.progress.solved
    assert forgetful.evaluate(100).mean_return < 0.8
