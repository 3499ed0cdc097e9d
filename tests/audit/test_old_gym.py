"""Programs for gym before gymnasium: their wrappers, and their vectors of environments."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.execution import execute
from tests.audit.writing import PROGRAM as PLAIN
from tests.audit.writing import audit_here

PROGRAM = """
import gym
import torch
from torch.distributions import Categorical

GAMMA, STEPS = 0.9, 3


def one():
    env = gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))
    env.seed(1)
    env.action_space.seed(1)
    return env


envs = {made}
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
{shown} = envs.reset()
while True:
    log_probs, rewards, dones = [], [], []
    for _ in range(STEPS):
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        {stepped} = envs.step(action.numpy())
        log_probs.append(dist.log_prob(action))
        rewards.append(torch.as_tensor(reward))
        dones.append(torch.as_tensor(1.0 * ({ended})))
    returns, running = [], torch.zeros(1)
    for reward, ended in zip(reversed(rewards), reversed(dones)):
        running = reward + GAMMA * running * {kept}
        returns.insert(0, running)
    loss = -(torch.stack(log_probs) * torch.stack(returns)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FOUR = {"shown": "obs", "stepped": "obs, reward, done, infos", "ended": "done"}
FIVE = {
    "shown": "obs, _",
    "stepped": "obs, reward, terminated, truncated, infos",
    "ended": "terminated | truncated",
}
ENDS = "(1 - ended)"


def write(folder: Path, made: str, kept: str, values: dict[str, str]) -> Path:
    path = folder / "train.py"
    path.write_text(PROGRAM.format(made=made, kept=kept, **values), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("made", "values"),
    [
        ("gym.vector.make('CartPole-v1', num_envs=1, asynchronous=False)", FOUR),
        ("gym.vector.SyncVectorEnv([one])", FOUR),
        ("gym.vector.SyncVectorEnv([lambda: gym.make('CartPole-v1')])", FIVE),
    ],
)
def test_an_environment_that_has_ended_is_reset_in_the_same_step(
    tmp_path: Path, made: str, values: dict[str, str]
) -> None:
    report = audit_here(write(tmp_path, made, ENDS, values), max_paths=40)
    assert (report.verdict, report.findings) == ("convention", ()), report.text()


def test_a_fault_in_a_vector_of_the_old_gym_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, "gym.vector.make('CartPole-v1')", "1", FOUR)
    report = audit_here(path, max_paths=40)
    assert [fault.rule for fault in report.faults] == ["return-carried-over-episodes"]


def test_a_vector_has_four_values_and_shows_the_last_observation() -> None:
    def program() -> None:
        gym: Any = importlib.import_module("gym")
        halve = type("Halve", (gym.RewardWrapper,), {"reward": halved})
        envs = gym.vector.make("Pendulum-v1", 2, wrappers=halve)
        assert isinstance(envs, gym.Env)  # as every wrapper asks
        assert gym.Wrapper(envs).unwrapped is envs
        assert envs.reset().shape == (2, 3)
        envs.step_async(np.zeros((2, 1)))
        observations, rewards, dones, infos = envs.step_wait()
        while not dones[1]:
            observations, rewards, dones, infos = envs.step(np.zeros((2, 1)))
        assert observations.shape == (2, 3)
        assert rewards.shape == dones.shape == (2,)
        assert infos[1]["terminal_observation"].shape == (3,)

    run(program)


def test_a_vector_tells_what_each_environment_said_last() -> None:
    def program() -> None:
        gym: Any = importlib.import_module("gym")
        counted = gym.wrappers.RecordEpisodeStatistics
        envs = gym.vector.SyncVectorEnv([lambda: counted(gym.make("Pendulum-v1"))] * 2)
        envs.reset()
        infos: dict[str, Any] = {}
        while "final_info" not in infos:
            *_, infos = envs.step(np.zeros((2, 1)))
        ended = [said for said in infos["final_info"] if said is not None]
        assert len(ended) == infos["_final_info"].sum() > 0
        assert np.isfinite(ended[0]["episode"]["r"])

    run(program, four_tuple=False)


def test_wrappers_take_and_return_four_values() -> None:
    def program() -> None:
        gym: Any = importlib.import_module("gym")
        monitor = importlib.import_module("gym.wrappers").Monitor
        twice = type(
            "Twice", (gym.ObservationWrapper,), {"observation": lambda self, seen: 2 * seen}
        )
        plain = gym.make("Pendulum-v1")
        first = plain.reset()
        env = gym.wrappers.ClipAction(monitor(plain, "videos", force=True))
        env = gym.wrappers.TransformObservation(twice(env), lambda seen: seen + 1)
        assert env.seed(3) == [3]
        assert np.allclose(env.reset(), 2 * first + 1)
        observation, _, done, info = env.step(np.array([99.0]))
        assert observation.shape == (3,)
        assert (done, info) == (False, {})

    run(program)
    assert "__getattr__" not in vars(gymnasium.Wrapper)


def halved(self: Any, reward: float) -> float:
    return reward / 2


def doubled(self: Any, seen: Any) -> Any:
    return 2 * seen


def run(program: Any, four_tuple: bool = True) -> None:
    trace = execute(program, Job((), SIZES[0]), four_tuple=four_tuple)
    assert (trace.outcome, trace.detail) == ("finished", "")


def test_names_that_gymnasium_once_called_experimental_are_found(tmp_path: Path) -> None:
    name = "RecordEpisodeStatisticsV0"
    made = (
        f'from gymnasium.experimental.wrappers import {name}\nenv = {name}(gym.make("CartPole-v1"))'
    )
    path = tmp_path / "program.py"
    path.write_text(PLAIN.replace('env = gym.make("CartPole-v1")', made), encoding="utf-8")
    report = audit_here(path, 100)
    assert report.verdict == "unbiased", report.text()
    with pytest.raises(ImportError):
        importlib.import_module("gymnasium.experimental.wrappers")
