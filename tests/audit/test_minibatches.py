"""Batches that are cut into shuffled parts, each whitened and with an optimizer step of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here

_SHUFFLED = """
import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
obs, _ = env.reset()
for batch in range(1000):
    observations, actions, rewards, ends = [], [], [], []
    for step in range(6):
        obs = torch.as_tensor(obs, dtype=torch.float32)
        with torch.no_grad():
            action = Categorical(logits=net(obs)).sample()
        observations.append(obs)
        actions.append(action)
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        ends.append(terminated or truncated)
        if ends[-1]:
            obs, _ = env.reset()
    returns, running = [], 0.0
    for reward, end in zip(reversed(rewards), reversed(ends)):
        running = reward + 0.9 * running * KEPT
        returns.insert(0, running)
    observations, actions = torch.stack(observations), torch.stack(actions)
    returns = torch.tensor(returns)
    with torch.no_grad():
        old = Categorical(logits=net(observations)).log_prob(actions)
    for epoch in range(2):
        order = np.random.permutation(6)
        for part in (order[:3], order[3:]):
            dist = Categorical(logits=net(observations[part]))
            ratio = (dist.log_prob(actions[part]) - old[part]).exp()
            credit = returns[part]
            credit = (credit - credit.mean()) / (credit.std() + 1e-8)
            loss = -torch.min(ratio * credit, ratio.clamp(0.8, 1.2) * credit).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
"""


@pytest.mark.parametrize(
    ("kept", "verdict", "faults"),
    [
        ("(1 - end)", "convention", []),
        ("1", "biased", ["return-carried-over-episodes"]),
    ],
)
def test_what_is_done_to_each_minibatch_is_read_from_its_own_step(
    kept: str, verdict: str, faults: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_SHUFFLED.replace("KEPT", kept), encoding="utf-8")
    report = audit_here(program, 40, samples=60)
    assert report.verdict == verdict, report.text()
    assert [finding.rule for finding in report.faults] == faults
    assert "whitened" in report.rule
    assert report.rule.endswith("in each minibatch")


_OF_EPISODES = """
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    observations, actions, returns = [], [], []
    for episode in range(2):
        obs, done, rewards = torch.as_tensor(env.reset()[0]), False, []
        while not done:
            with torch.no_grad():
                action = Categorical(logits=net(obs)).sample()
            observations.append(obs)
            actions.append(action)
            obs, reward, terminated, truncated, _ = env.step(action.item())
            obs, done = torch.as_tensor(obs), terminated or truncated
            rewards.append(reward)
        returns += torch.tensor(rewards).flip(0).cumsum(0).flip(0).tolist()[::ORDER]
    observations, actions = torch.stack(observations), torch.stack(actions)
    returns = torch.tensor(returns)
    with torch.no_grad():
        old = Categorical(logits=net(observations)).log_prob(actions)
    for epoch in range(2):
        for part in torch.randperm(len(actions)).split(4):
            dist = Categorical(logits=net(observations[part]))
            ratio = (dist.log_prob(actions[part]) - old[part]).exp()
            loss = -(ratio * returns[part]).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
"""


@pytest.mark.parametrize(("order", "verdict"), [("1", "convention"), ("-1", "biased")])
def test_minibatches_of_whole_episodes_are_pieces_of_several_lengths(
    order: str, verdict: str, tmp_path: Path
) -> None:
    """The mean over a last piece of one step counts that step as much as four others."""
    text = _OF_EPISODES.replace("ORDER", order)
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    report = audit_here(path, 60)
    assert report.verdict == verdict, report.text()
    assert "mean over time, in each minibatch" in report.rule
    assert [finding.rule for finding in report.faults] == (
        ["reversed-returns"] if verdict == "biased" else []
    )


SEVERAL = """
import random

import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    log_probs, returns = [], []
    for episode in range(2):
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        returns += [sum(0.9**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    log_probs, returns = torch.stack(log_probs), torch.tensor(returns)
    ORDER
    loss = -(log_probsBOTH * returns[order]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ORDERS = (
    "order = torch.randperm(len(returns))",
    "order = np.random.default_rng(0).permutation(len(returns))",
    "order = list(range(len(returns)))\n    random.shuffle(order)",
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("both", "rules"), [("[order]", []), ("", ["shuffled-apart"])])
def test_what_is_shuffled_must_be_shuffled_together(
    order: str, both: str, rules: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(SEVERAL.replace("ORDER", order).replace("BOTH", both), encoding="utf-8")
    report = audit_here(path, 60, 40)
    assert [fault.rule for fault in report.faults] == rules, report.text()
    assert rules or report.verdict == "convention", report.text()
