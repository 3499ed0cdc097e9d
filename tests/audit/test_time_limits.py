"""A critic with dropout has other values at each step, so that any value would fit a time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el

_PROGRAM = """
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
actor, critic = (
    nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, n)) for n in (2, 1)
)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for episode in range(1000):
    scores, values, rewards = [], [], []
    state, _ = env.reset()
    terminated = truncated = False
    while not (terminated or truncated):
        shown = torch.tensor(state, dtype=torch.float32)
        policy = Categorical(logits=actor(shown))
        values.append(critic(shown)[0])
        action = policy.sample()
        scores.append(policy.log_prob(action))
        state, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
    following = LAST
    advantages, advantage = [], 0.0
    for reward, value in zip(reversed(rewards), reversed(values)):
        advantage = reward + 0.99 * following - value.detach() + 0.99 * 0.95 * advantage
        following = value.detach()
        advantages.insert(0, advantage)
    advantages, scores = torch.stack(advantages), torch.stack(scores)
    returns = advantages + torch.stack(values).detach()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    loss = -(advantages * scores).sum() + (returns - torch.stack(values)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_BOOTSTRAPPED = "critic(torch.tensor(state, dtype=torch.float32))[0].detach() * (not terminated)"


@pytest.mark.parametrize(("last", "faults"), [("0.0", 1), (_BOOTSTRAPPED, 0)])
def test_a_value_at_the_limit_is_missed_by_what_is_seen_there(
    last: str, faults: int, tmp_path: Path
) -> None:
    text = _PROGRAM.replace("LAST", last)
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    report = el.audit_script(tmp_path / "train.py")
    found = [finding.rule for finding in report.findings if finding.severity == "fault"]
    assert found == faults * ["truncation-as-termination"]
    assert report.verdict == ("biased" if faults else "convention")
