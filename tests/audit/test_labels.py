"""Bernoulli policies by hand, with the action as the label of a binary cross-entropy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited, line_of

TEXT = """
import gymnasium as gym
import torch
import torch.nn.functional as F

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
adam = torch.optim.Adam(net.parameters(), 1e-3)
for episode in range(300):
    obs, _ = env.reset()
    shares, labels, rewards, done = [], [], [], False
    while not done:
        share = torch.sigmoid(net(torch.as_tensor(obs)))
        action = torch.bernoulli(share.detach())
        shares.append(share)
        labels.append(action)
        obs, reward, terminated, truncated, _ = env.step(int(action))
        rewards.append(reward)
        done = terminated or truncated
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    shares, labels = torch.cat(shares), torch.cat(labels)
    loss = (F.binary_cross_entropy(shares, labels, reduction="none") * returns).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


@pytest.mark.parametrize(("label", "verdict"), [("labels", "unbiased"), ("1 - labels", "biased")])
def test_a_flipped_label_scores_the_other_action(label: str, verdict: str, tmp_path: Path) -> None:
    report = audited(tmp_path, ("(shares, labels,", f"(shares, {label},"), text=TEXT)
    assert report.verdict == verdict, report.summary
    rules = [finding.rule for finding in report.findings]
    assert rules == (["scored-other-action"] if verdict == "biased" else [])
    if rules:
        assert "label flipped" in report.findings[0].evidence
        assert report.findings[0].line == line_of(tmp_path / "program.py", "share = ")
