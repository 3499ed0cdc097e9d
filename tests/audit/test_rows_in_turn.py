"""Minibatches that are drawn with replacement, as many programs of PPO draw them."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.job import SIZES, Job
from eligibility.audit.running.runner import ScriptRunner
from eligibility.audit.trace import UNREAD, Trace

_PROGRAM = """
import random

import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(actor.parameters())
generator = np.random.default_rng(0)
for episode in range(1000):
    states, actions, old, rewards = [], [], [], []
    state, _ = env.reset()
    over = False
    while not over:
        shown = torch.tensor(state, dtype=torch.float32)
        with torch.no_grad():
            policy = Categorical(logits=actor(shown))
            action = policy.sample()
        states.append(shown)
        actions.append(action)
        old.append(policy.log_prob(action))
        state, reward, terminated, truncated, _ = env.step(action.item())
        over = terminated or truncated
        rewards.append(reward)
    returns = torch.tensor([sum(rewards[t:END]) for t in range(len(rewards))]).float()
    states, actions, old, n = torch.stack(states), torch.stack(actions), torch.stack(old), len(old)
    for epoch in range(3):
        rows = ROWS
        ratio = (Categorical(logits=actor(states[rows])).log_prob(actions[rows]) - old[rows]).exp()
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * returns[rows], clipped * returns[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

_READ = f"{UNREAD} several whole numbers at once"
_ACTING = """
import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical

envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
actor = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(actor.parameters())
state, _ = envs.reset()
while True:
    scores, rewards = [], []
    for t in range(2):
        policy = Categorical(logits=actor(torch.tensor(state, dtype=torch.float32)))
        DRAWN
        scores.append(policy.log_prob(action))
        state, reward, *_ = envs.step(action.numpy())
        rewards.append(torch.tensor(reward, dtype=torch.float32))
    loss = -(sum(scores) * sum(rewards)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("rows", ["np.random.randint(0, n, n)", "torch.randint(n, (n,))"])
def test_rows_drawn_with_replacement_mean_the_batch(rows: str, tmp_path: Path) -> None:
    report = _audit(tmp_path, rows, "None")
    assert (report.verdict, report.faults) == ("convention", ())


@pytest.mark.parametrize("rows", ["generator.integers(n, size=n)", "random.sample(range(n), n)"])
def test_a_fault_in_minibatches_drawn_with_replacement_is_found(rows: str, tmp_path: Path) -> None:
    report = _audit(tmp_path, rows, "t + 1")
    assert [fault.rule for fault in report.faults] == ["immediate-reward"]


def _audit(folder: Path, rows: str, end: str) -> el.AuditReport:
    text = _PROGRAM.replace("ROWS", rows).replace("END", end)
    (folder / "train.py").write_text(text, encoding="utf-8")
    return el.audit_script(folder / "train.py")


def test_numbers_that_a_program_acts_on_are_no_rows(tmp_path: Path) -> None:
    """Two environments and two actions: the second step's numbers might be rows of the first."""
    drawn = "action = torch.tensor(np.random.randint(0, 2, 2)) if t else policy.sample()"
    assert _READ not in _run(tmp_path, "action = policy.sample()").notes
    assert _READ in _run(tmp_path, drawn).notes


def _run(folder: Path, drawn: str) -> Trace:
    (folder / "train.py").write_text(_ACTING.replace("DRAWN", drawn), encoding="utf-8")
    with ScriptRunner(folder / "train.py", (), 60.0, 4096, four_tuple=False) as runner:
        return runner.run(Job((), SIZES[0]))
