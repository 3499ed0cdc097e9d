"""Returns that are compared with those of the other episodes at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here

PROGRAM = """
import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical

GAMMA, EPISODES, LONGEST = 0.9, 3, 3
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
while True:
    log_probs, returns = [], np.full((EPISODES, LONGEST), np.nan)
    for episode in range(EPISODES):
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            log_probs.append(((episode, len(rewards)), dist.log_prob(action)))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        running = 0.0
        for t in reversed(range(len(rewards))):
            running = rewards[t] + GAMMA * running
            returns[episode, t] = running
    there = ~np.isnan(returns)
    count = np.maximum(there.sum(0), 1)
    centred = np.where(there, returns - np.where(there, returns, 0.0).sum(0) / count, 0.0)
    deviation = np.sqrt((centred**2).sum(0) / count)
    padded = returns - np.nan_to_num(returns).mean(0)
    credit = CREDIT
    loss = -sum(log_prob * credit[place] for place, log_prob in log_probs)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("credit", "name", "among"),
    [
        ("centred", "centred", ""),
        ("centred / (deviation + 1e-2)", "whitened", ""),
        ("padded", "centred", ", with 0 for episodes that have ended"),
    ],
)
def test_the_mean_and_the_deviation_at_each_time_are_a_convention(
    credit: str, name: str, among: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("CREDIT", credit), encoding="utf-8")
    report = audit_here(path, max_paths=60)
    assert (report.verdict, report.findings) == ("convention", ()), report.text()
    assert {name, "gamma-t-dropped"} == {convention.name for convention in report.conventions}
    assert report.rule.endswith(f"{name} at each time{among}")
