"""Stable-Baselines3 with the zoo's settings, stopped by the rule that all runs have."""

from __future__ import annotations

import importlib
import math
import warnings
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from benchmarks.learning.record import WINDOW, Record, exactly
from benchmarks.learning.tasks import Task
from benchmarks.learning.zoo import Settings


class Watch(BaseCallback):
    """Notes each finished episode, in the order of their ends, and stops by the record's rule."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._episodes = 0

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:  # from the Monitor: the reward as it was
                self._recent.append(float(info["episode"]["r"]))
                self._episodes += 1
                mean = math.fsum(self._recent) / len(self._recent)
                self._record.note(self.num_timesteps, self._episodes, mean)
        return self._record.goes_on(self.num_timesteps)


def train(algorithm: str, task: Task, seed: int) -> dict[str, Any]:
    """Train, and keep what is kept of every run."""
    settings = task.peers[algorithm]
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="stable_baselines3")
    environments = make_environments(task.env, settings, settings.n_envs, seed)
    fresh = make_environments(task.env, settings, task.look, seed + 10_000)
    model = getattr(stable_baselines3, algorithm)(
        "MlpPolicy", environments, seed=seed, device="cpu", **arguments(settings.options)
    )

    def play(episodes: int) -> float:
        if task.env == "Blackjack-v1":
            return exactly(lambda states: model.predict(flat(states), deterministic=True)[0])
        if isinstance(fresh, VecNormalize) and isinstance(environments, VecNormalize):
            fresh.obs_rms, fresh.training, fresh.norm_reward = environments.obs_rms, False, False
        mean, _ = evaluate_policy(model, fresh, n_eval_episodes=episodes)
        return float(np.mean(mean))

    record = Record(task, play)
    model.learn(min(settings.n_timesteps, task.steps), callback=Watch(record))
    return record.result()


def flat(states: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """States of Blackjack, as its wrapper flattens them."""
    space = gymnasium.make("Blackjack-v1").observation_space
    rows = [gymnasium.spaces.flatten(space, tuple(state)) for state in states.tolist()]
    return np.array(rows)


def make_environments(env: str, settings: Settings, number: int, seed: int) -> VecEnv:
    """As the zoo makes them."""
    if env.startswith("MiniGrid"):
        importlib.import_module("minigrid")
    wrapper = load(settings.wrapper) if settings.wrapper else None
    made: VecEnv = make_vec_env(env, number, seed, wrapper_class=wrapper)
    if not settings.normalize:
        return made
    return VecNormalize(made, gamma=settings.options.get("gamma", 0.99))


def load(path: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """The class that ``module:Class`` names."""
    module, name = path.split(":")
    found: type[gymnasium.Wrapper[Any, Any, Any, Any]]
    found = getattr(importlib.import_module(module), name)
    return found


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The zoo's ways of writing, as the algorithm takes them."""
    made = {name: falling(value) for name, value in options.items()}
    network = dict(made.get("policy_kwargs", {}))
    if "activation_fn" in network:
        network["activation_fn"] = getattr(torch.nn, network["activation_fn"])
        made["policy_kwargs"] = network
    return made


def falling(value: Any) -> Any:
    """``lin_x``: x times the share of training that remains."""
    if isinstance(value, str) and value.startswith("lin_"):
        first = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * first
    return value
