"""Vector environments: what happens to the action that is given after the end of an episode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here, line_of

PROGRAM = """
import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch.distributions import Categorical

GAMMA, STEPS = 0.9, 3
envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")], autoreset_mode=AutoresetMode.{mode})
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
obs, _ = envs.reset(seed=1)
while True:
    log_probs, rewards, dones, valid = [], [], [], []
    done = np.zeros(1, dtype=bool)
    for _ in range(STEPS):
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        valid.append(torch.as_tensor(1.0 - {skipped}))
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        done = terminated | truncated
        {after}
        log_probs.append(dist.log_prob(action))
        rewards.append(torch.as_tensor(reward))
        dones.append(torch.as_tensor(1.0 * done))
    returns, running = [], torch.zeros(1)
    for reward, ended in zip(reversed(rewards), reversed(dones)):
        running = reward + GAMMA * running * (1 - ended)
        returns.insert(0, running)
    loss = -(torch.stack(valid) * torch.stack(log_probs) * torch.stack(returns)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RESET = "if done.any(): obs, _ = envs.reset(options={'reset_mask': done})"


def write(folder: Path, mode: str, skipped: str = "0 * done", after: str = "pass") -> Path:
    path = folder / "train.py"
    text = PROGRAM.format(mode=mode, skipped=skipped, after=after)
    path.write_text(text, encoding="utf-8")
    return path


def test_an_action_that_was_ignored_and_reinforced_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, "NEXT_STEP")
    report = audit_here(path, max_paths=40)
    assert report.verdict == "biased", report.text()
    (finding,) = report.findings
    assert finding.rule == "autoreset-step-trained-on"
    assert finding.line == line_of(path, "loss =")


@pytest.mark.parametrize(
    ("mode", "skipped", "after"),
    [
        ("NEXT_STEP", "done", "pass"),
        ("SAME_STEP", "0 * done", "pass"),
        ("DISABLED", "0 * done", RESET),
    ],
)
def test_every_mode_is_fine_without_that_step(
    tmp_path: Path, mode: str, skipped: str, after: str
) -> None:
    report = audit_here(write(tmp_path, mode, skipped, after), max_paths=40)
    assert not report.findings, report.text()
    assert report.verdict == "convention"
    assert {"gamma-t-dropped"} <= {convention.name for convention in report.conventions}
