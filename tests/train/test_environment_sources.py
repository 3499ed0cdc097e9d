"""Environments from the user's code: functions, and vector environments of every autoreset mode."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.learner import Reinforce


class Walk(gymnasium.Env[Any, int]):
    """A random walk on 0 to 8: the ends terminate, 12 steps truncate, each step pays its place.

    What is seen is the place, and the number of steps so far.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"place": spaces.Discrete(9), "time": spaces.Box(0, 12, (1,), np.float32)}
        )
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """From 2 to 6."""
        super().reset(seed=seed)
        self._place, self._time = int(self.np_random.integers(2, 7)), 0
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Left or right, and sometimes the other way."""
        step = 1 if action else -1
        self._place += step if self.np_random.random() < 0.8 else -step
        self._time += 1
        over = self._place in (0, 8)
        return self._see(), float(self._place), over, not over and self._time >= 12, {}

    def _see(self) -> dict[str, Any]:
        return {"place": self._place, "time": np.array([self._time], np.float32)}


def rollout(env: Any, number: int = 6) -> dict[str, torch.Tensor]:
    """What a rollout of `number` episodes holds, as far as training uses it."""
    model = Reinforce(env, environments=number, hidden_sizes=(8,), mask_actions=False)
    got = model.shards.collect(model.network, 0)
    alive = got.alive
    return {
        "observations": got.observations[alive],
        "final_observations": got.final_observations,
        "actions": got.actions[alive],
        "rewards": got.rewards[alive],
        "terminated": got.terminated[alive],
        "truncated": got.truncated[alive],
        "alive": alive,
    }


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("vectorized", "number"), [(SyncVectorEnv, 6), (AsyncVectorEnv, 2)], ids=["sync", "async"]
)
def test_a_rollout_is_the_same_in_every_autoreset_mode(
    vectorized: Any, number: int, mode: Any
) -> None:
    wanted = rollout(Walk, number)
    ends = wanted["terminated"] | wanted["truncated"]
    assert int(ends.sum()) == number
    assert not (wanted["terminated"] & wanted["truncated"]).any()
    vector = vectorized([Walk] * number, autoreset_mode=mode)
    try:
        got = rollout(vector, number)
    finally:
        vector.close()
    for name, tensor in wanted.items():
        assert torch.equal(got[name], tensor), name


def test_the_walks_end_in_both_ways() -> None:
    ends = rollout(Walk)
    assert ends["terminated"].any()
    assert ends["truncated"].any()


def test_a_vector_environment_without_copies_is_taken_too() -> None:
    wanted = rollout(Walk)
    for mode in AutoresetMode:
        got = rollout(SyncVectorEnv([Walk] * 6, copy=False, autoreset_mode=mode))
        assert torch.equal(got["final_observations"], wanted["final_observations"])


def test_a_function_learns_evaluates_and_comes_back(tmp_path: Path) -> None:
    model = Reinforce(Walk, environments=8).learn(total_steps=1000)
    assert model.config.env == "Walk"
    before = model.evaluate(10)
    loaded = Reinforce.load(model.save(tmp_path / "model"), env=Walk)
    assert loaded.evaluate(10) == before
    whole = Reinforce(Walk, environments=8).learn(total_steps=2000)
    assert loaded.learn(total_steps=2000).save(tmp_path / "a").read_bytes() == (
        whole.save(tmp_path / "b").read_bytes()
    )


def test_a_vector_environment_learns_evaluates_and_stays_open() -> None:
    vector = SyncVectorEnv([Walk] * 4)
    model = Reinforce(vector).learn(total_steps=500)
    assert model.config.environments == 4
    assert model.evaluate(10).episodes == 10  # in three rollouts
    vector.reset(seed=0)


def test_copies_of_an_environment_are_played_and_never_itself() -> None:
    mine = Walk()
    mine.reset(seed=5)
    mine.marked = True
    place = mine._place
    model = Reinforce(mine, environments=8, seed=2).learn(total_steps=1000)
    assert (model.config.env, mine._place, mine._time) == ("Walk", place, 0)
    assert all(env.marked and env is not mine for env in model.shards.vector.envs)
    again = Reinforce(Walk, environments=8, seed=2).learn(total_steps=1000)
    assert again.progress.mean_return == model.progress.mean_return


def test_an_environment_that_cannot_be_copied_is_made_once_more_by_its_spec() -> None:
    made = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7)
    made.unwrapped.window = open(__file__)  # noqa: SIM115  # cannot be copied
    model = Reinforce(made, environments=4)
    assert model.horizon == 7
    model.shards.prepare()
    ways = model.shards.vector.envs[0].unwrapped.P[0][0]
    assert len(ways) == 1  # it does not slip
    made.unwrapped.window.close()
    plain = Walk()
    plain.window = (number for number in range(3))
    text = "making the environment with `env`: got TypeError: cannot pickle 'generator' object"
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}"):
        Reinforce(plain)


def test_training_goes_on_in_another_environment_of_the_same_spaces(tmp_path: Path) -> None:
    model = Reinforce("FrozenLake-v1", environments=4, baseline="none", seed=1)
    model.learn(total_steps=200)
    weights = [parameter.clone() for parameter in model.network.parameters()]
    model.set_env(gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert model.progress.steps == len(model.recent) == 0
    assert all(map(torch.equal, weights, model.network.parameters()))
    model.learn(total_steps=200)
    assert model.progress.steps >= 200
    loaded = Reinforce.load(model.save(tmp_path / "model"), env="FrozenLake-v1", learning_rate=0.1)
    assert loaded.config.learning_rate == 0.1
    text = (
        "`env`: got one with observations Discrete(500), masked, actions Discrete(6), expected "
        "observations Discrete(16), actions Discrete(4); create a new model for it"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        model.set_env("Taxi-v4")
    assert model.config.env == "FrozenLake-v1"


def make_nothing() -> int:
    """No environment."""
    return 3


def fail() -> Any:
    """Raises."""
    raise RuntimeError("no such device")


@pytest.mark.parametrize(
    ("env", "text"),
    [
        (
            3,
            "`env`: got int, expected an environment, its id, a function that creates one, or a "
            "vector environment; pass a function, such as the environment's class or a lambda",
        ),
        (
            make_nothing,
            "what `env` returned: got int, expected a gymnasium.Env; return a new environment in "
            "each call",
        ),
        (
            fail,
            "making the environment with `env`: got RuntimeError: no such device, expected no "
            "exception; correct the function, or pass one if this was an environment",
        ),
    ],
)
def test_what_makes_no_environments_is_refused(env: Any, text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(env)


def test_the_size_of_a_vector_environment_is_its_own() -> None:
    text = (
        "`environments`: got 5, expected 4, the size of the vector environment in each shard; "
        "omit it"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(SyncVectorEnv([Walk] * 4), environments=5)
    text = (
        "`shards`: got 2 in this process, expected one for a vector environment; pass a function "
        "that creates one environment"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce(SyncVectorEnv([Walk] * 4), shards=2)


def test_a_checkpoint_asks_for_the_users_environment(tmp_path: Path) -> None:
    path = Reinforce(Walk).save(tmp_path / "model")
    text = (
        "`env`: got none, expected the function or vector environment the model was created with: "
        "`load(…, env=…)`; a checkpoint holds weights, not code"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Reinforce.load(path)


OWN = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Own(CartPoleEnv):
    pass

gymnasium.register("Own-v0", Own, max_episode_steps=70)
"""


@pytest.mark.parametrize(("env", "horizon"), [("{}:Own-v0", 70), ("{}.py:Own", 1000)])
def test_an_environment_in_the_working_folder_is_found_by_module_and_by_file(
    env: str, horizon: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"own_{horizon}"
    (tmp_path / f"{module}.py").write_text(OWN, encoding="utf-8")
    path = list(sys.path)
    model = Reinforce(env.format(module), environments=4, steps=1).learn()
    assert model.horizon == horizon
    assert sys.path == path
    loaded = Reinforce.load(
        model.save(tmp_path / "own.safetensors"),
        allow_modules=[module if horizon == 70 else f"{module}.py"],
    )
    assert loaded.evaluate(2).episodes == 2
    gymnasium.registry.pop("Own-v0")


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("absent.py:Own", "No such file or directory"),
        ("here.py:Absent", "module 'here' has no attribute 'Absent'"),
    ],
)
def test_a_file_or_name_that_is_not_there_is_told(
    env: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").write_text("", encoding="utf-8")
    with pytest.raises(InvalidValueError, match=f"(?s)`env`.*{reason}.*file.py:Name"):
        Reinforce(env)
