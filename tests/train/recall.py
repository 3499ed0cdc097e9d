"""A task for a memory: what is to be done at the end was shown at the beginning."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


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
