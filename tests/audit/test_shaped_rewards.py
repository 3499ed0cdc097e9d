"""A number of the next state that is added to each reward, whose returns are whitened."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el

_PROGRAM = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("MountainCar-v0")
body = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU())
actor, critic = torch.nn.Linear(16, 3), torch.nn.Linear(16, 1)
optimizer = torch.optim.Adam([*body.parameters(), *actor.parameters(), *critic.parameters()])
for episode in range(1000):
    state, _ = env.reset()
    scores, values, rewards = [], [], []
    done = False
    while not done:
        hidden = body(torch.as_tensor(state))
        policy = Categorical(logits=actor(hidden))
        action = policy.sample()
        scores.append(policy.log_prob(action))
        values.append(critic(hidden)[0])
        state, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward + 3.0 * abs(state[0]))
        done = terminated or truncated
    returns, total = [], 0.0
    for reward in REVERSED:
        total = reward + 0.98 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-3)
    loss = -(torch.stack(scores) * (returns BASELINE)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("baseline", ["", "- torch.stack(values).detach()"])
@pytest.mark.parametrize(
    ("order", "verdict"), [("reversed(rewards)", "convention"), ("rewards", "unexplained")]
)
def test_a_number_of_the_next_state_is_told_through_a_deviation(
    order: str, verdict: str, baseline: str, tmp_path: Path
) -> None:
    text = _PROGRAM.replace("REVERSED", order).replace("BASELINE", baseline)
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    report = el.audit_script(tmp_path / "train.py")
    assert report.verdict == verdict, report.summary
    assert ("reward-changed" in [each.name for each in report.conventions]) == (order != "rewards")
    assert "(γ = 0.98)" in report.rule or order == "rewards"
    assert ("minus V(s)" in report.rule) == bool(baseline and order != "rewards")
