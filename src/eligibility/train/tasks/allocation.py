"""``eligibility/Allocation-v0``: share n units out over K bins while the demand moves on."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eligibility.spaces.counts import Counts

# How far the demand moves in a step, in radians: on the whole forward, and at random.
_DRIFT, _NOISE = 0.3, 0.2
# What a further unit in a bin yields, as a share of the one before.
_DECAY = 0.7


class Allocation(gymnasium.Env[np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    r"""Twelve searchers and six districts on a ring, say, and a place that is looked for.

    The demand of bin k is ``d_k = exp(2 cos(x − 2πk/K))`` with the state x on a circle, which moves
    by 0.3 and normal noise of 0.2 a step. The y_k units in bin k yield ``d_k (1 − 0.7^{y_k})``:
    each further one 0.7 of the one before. The reward is the yield divided by the best yield
    possible in this state, so the optimum of an episode of T steps is T, whatever happens. Drawing
    each unit uniformly reaches 63 % of it, equal counts 69 %, and the best multinomial about 96 %,
    because it cannot make its counts certain; a policy's most probable counts can reach all of it.

    ============  ==================================================================
    observation   ``Box [2]``: cos x, sin x
    action        `Counts(units, bins)`: whole numbers ``[K]`` that sum to n
    reward        share of the best yield, in (0, 1]
    end           after 20 steps, as registered: a truncation
    ============  ==================================================================

    Args:
        units: n >= 1.
        bins: K >= 2.

    Example:
        >>> env = Allocation()
        >>> observation, _ = env.reset(seed=0)
        >>> env.step(env.best())[1]
        1.0
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, units: int = 12, bins: int = 6) -> None:
        self.action_space: Counts = Counts(units, bins)
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self._places = 2 * np.pi * np.arange(bins) / bins

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """A state drawn uniformly."""
        super().reset(seed=seed)
        self._state = float(self.np_random.uniform(0, 2 * np.pi))
        return self._observe(), {}

    def step(
        self, action: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], float, bool, bool, dict[str, Any]]:
        """The share of the best yield, then the demand moves on."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is not in {self.action_space}")
        reward = self.yields(action) / self.yields(self.best())
        self._state += _DRIFT + _NOISE * float(self.np_random.standard_normal())
        return self._observe(), float(reward), False, False, {}

    def best(self) -> np.ndarray[Any, Any]:
        """The counts of the largest yield in the present state.

        The n largest of what the first, second, … unit of each bin would add: in each bin those
        are its first ones, because what the next one adds only falls.
        """
        units = self.action_space.total
        gains = self._demand()[:, None] * _DECAY ** np.arange(units)
        largest = np.argsort(-gains, axis=None, kind="stable")[:units]
        return np.bincount(largest // units, minlength=len(self._places))

    def yields(self, counts: np.ndarray[Any, Any]) -> float:
        """``Σ_k d_k (1 − 0.7^{y_k})`` in the present state."""
        return float(self._demand() @ (1 - _DECAY**counts))

    def _demand(self) -> np.ndarray[Any, Any]:
        demand: np.ndarray[Any, Any] = np.exp(2 * np.cos(self._state - self._places))
        return demand

    def _observe(self) -> np.ndarray[Any, Any]:
        return np.array([math.cos(self._state), math.sin(self._state)], np.float32)
