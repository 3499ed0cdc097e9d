"""Programs that train on the episodes before the last ones."""

from __future__ import annotations

from pathlib import Path

from tests.audit.writing import audited

DELAYED = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
policy = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
kept = None
for _ in range(100):
    obs, _ = env.reset()
    states, actions, old, rewards, done = [], [], [], [], False
    with torch.no_grad():
        while not done:
            state = torch.as_tensor(obs)
            dist = Categorical(logits=policy(state))
            action = dist.sample()
            states.append(state)
            actions.append(action)
            old.append(dist.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
    batch = states, actions, old, rewards
    if kept is None:
        kept = batch
        continue
    states, actions, old, rewards = kept
    kept = batch
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    new = Categorical(logits=policy(torch.stack(states))).log_prob(torch.stack(actions))
    ratio = (new - torch.stack(old)).exp()
    loss = -torch.min(ratio * returns, ratio.clamp(0.8, 1.2) * returns).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_episodes_of_the_policy_before_are_no_fault_with_a_ratio(tmp_path: Path) -> None:
    """As in asynchronous training, which learns from a batch while the next one is played."""
    report = audited(tmp_path, text=DELAYED)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()
    assert any("with a ratio, on episodes from before the first update" in n for n in report.notes)
    clipped = "torch.min(ratio * returns, ratio.clamp(0.8, 1.2) * returns)"
    assert audited(tmp_path, (clipped, "(new * returns)"), text=DELAYED).faults
