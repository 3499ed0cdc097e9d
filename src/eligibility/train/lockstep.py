"""Environments that step together, each for exactly one episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, iterate


class OneEpisodeVector(SyncVectorEnv[Any, Any]):
    """Gymnasium's `SyncVectorEnv` without what a rollout of whole episodes would throw away.

    An environment whose episode is over is neither stepped nor reset until the next full
    ``reset()``: it keeps its last observation, its flags stay up and it pays 0. Episodes of a
    rollout differ in length, so this saves up to most of the steps. What counts is the same as
    in a `SyncVectorEnv` of the same seed.
    """

    def __init__(self, env_fns: Any) -> None:
        super().__init__(env_fns, copy=False, autoreset_mode=AutoresetMode.DISABLED)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments whose episode goes on."""
        infos: dict[str, Any] = {}
        over = self._terminations | self._truncations
        self._rewards[over] = 0
        for i, action in enumerate(iterate(self.action_space, actions)):
            if over[i]:
                continue
            self._env_obs[i], self._rewards[i], terminated, truncated, info = self.envs[i].step(
                action
            )
            self._terminations[i], self._truncations[i] = terminated, truncated
            infos = self._add_info(infos, info, i)
        self._observations = concatenate(
            self.single_observation_space, self._env_obs, self._observations
        )
        return (
            self._observations,
            np.copy(self._rewards),
            np.copy(self._terminations),
            np.copy(self._truncations),
            infos,
        )
