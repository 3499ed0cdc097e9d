"""A softmax of a batch along its steps, and softmaxes that run along other dimensions rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited, line_of

TEXT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")

class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = torch.nn.Linear(1, 2)
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x):
        numbers = x.unsqueeze(-1)
        shares = torch.softmax(self.keys(numbers), -2)  # two heads, over the four numbers
        return self.head((shares * numbers).sum(-2))

net = Policy()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(1000):
    obs, _ = env.reset()
    seen, actions, rewards, done = [], [], [], False
    while not done:
        with torch.no_grad():
            probs = torch.softmax(net(torch.as_tensor(obs)) / 1.0, 0)
        action = Categorical(probs).sample().item()
        seen.append(torch.as_tensor(obs))
        actions.append(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        done = terminated or truncated
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    probs = torch.softmax(net(torch.stack(seen)), -1)
    log_probs = probs.gather(1, torch.tensor(actions)[:, None]).log()[:, 0]
    loss = -(log_probs * returns).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ACTIONS = "torch.softmax(net(torch.stack(seen)), -1)"
STEPS = "torch.softmax(net(torch.stack(seen)), 0)"
TEMPERED = ("/ 1.0, 0)", "/ 0.5, 0)")


def test_a_softmax_along_other_dimensions_of_a_network_is_right(tmp_path: Path) -> None:
    report = audited(tmp_path, text=TEXT)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary


@pytest.mark.parametrize(
    ("changes", "rule", "place"),
    [
        ([(ACTIONS, STEPS)], "softmax-over-steps", STEPS),
        ([TEMPERED], "behaviour-not-scored", "Categorical(probs)"),
        ([TEMPERED, (ACTIONS, STEPS)], "softmax-over-steps", STEPS),
    ],
)
def test_a_softmax_along_the_steps_is_named(
    changes: list[tuple[str, str]], rule: str, place: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, *changes, text=TEXT)
    assert [finding.rule for finding in report.findings] == [rule], report.summary
    assert report.findings[0].line == line_of(tmp_path / "program.py", place)
    assert report.verdict == "biased"
