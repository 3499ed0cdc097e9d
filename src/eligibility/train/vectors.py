"""Environments that step together: one episode each, EnvPool's (``envpool:CartPole-v1``), ALE's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
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
        rewards, terminations = self._rewards.copy(), self._terminations.copy()
        return self._observations, rewards, terminations, self._truncations.copy(), infos


class EnvPoolVector(VectorEnv[Any, Any, Any]):
    """A pool that ``reset(seed=...)`` seeds, as Gymnasium wants it.

    EnvPool seeds a pool when it is made and goes on from there, so that a rollout would depend on
    all before it, and a resumed run would not be the one that was stopped. Here a reset with a
    seed rebuilds the pool: 5 ms for 100 CartPoles.

    References:
        Weng et al. 2022, "EnvPool: a highly parallel reinforcement learning environment execution
        engine".
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, task: str, number: int, keywords: Mapping[str, Any]) -> None:
        self._task, self.num_envs, self._keywords = task, number, keywords
        self._pool = pool = self._make(0)
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.spec = EnvSpec(
            id=f"envpool/{task}",
            reward_threshold=pool.spec.reward_threshold,
            max_episode_steps=pool.config["max_episode_steps"],
        )

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._pool.close()
            self._pool = self._make(seed)
        return self._pool.reset()  # type: ignore[no-any-return]  # envpool has no types

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._pool.step(actions)  # type: ignore[no-any-return]  # envpool has no types

    def close_extras(self, **options: Any) -> None:
        self._pool.close()

    def _make(self, seed: Any) -> Any:
        import envpool  # an extra

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on its bounds, which are float64
            pool = envpool.make_gymnasium(
                self._task, num_envs=self.num_envs, seed=int(seed) % 2**31, **self._keywords
            )
            pool.single_observation_space, pool.observation_space  # noqa: B018  # made when read
        return pool


class Resetting(VectorWrapper[Any, Any, Any]):
    """A vector environment that does not reset itself, and is reset here.

    The observations of a step are those before the reset: what was seen last in an episode.
    """

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        over = terminated | truncated
        if over.any():
            observations = deepcopy(observations)  # the reset may write into the same memory
            self.env.reset(options={"reset_mask": over})
        return observations, rewards, terminated, truncated, info


class SignedSeeds(VectorWrapper[Any, Any, Any]):
    """A vector environment whose seeds, counted up over its copies, fit into 32 signed bits."""

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, int):
            seed %= 2**31 - self.num_envs
        return self.env.reset(seed=seed, options=options)


def with_seeds_that_fit(vector: VectorEnv[Any, Any, Any]) -> VectorEnv[Any, Any, Any]:
    """The environments themselves; ALE's, which refuse a larger seed, in `SignedSeeds`."""
    ale = type(vector.unwrapped).__module__.startswith("ale_py.")
    return SignedSeeds(vector) if ale else vector
