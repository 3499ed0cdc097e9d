"""Programs that make their optimizer after the policy has acted, once or for every update."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited

TEXT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
critic = torch.nn.Linear(4, 1)  # takes no part
policy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
adam = None

def learn(states, actions, returns):
    global adam
    if adam is None or EACH_TIME:
        adam = torch.optim.Adam(policy.parameters(), lr=1e-2)
    log_probs = Categorical(logits=policy(states)).log_prob(actions)
    loss = -(log_probs * returns).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()

for episode in range(100):
    obs, _ = env.reset()
    states, actions, rewards, done = [], [], [], False
    while not done:
        state = torch.as_tensor(obs)
        with torch.no_grad():
            action = Categorical(logits=policy(state)).sample()
        states.append(state)
        actions.append(action)
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    learn(torch.stack(states), torch.stack(actions), returns)
"""


@pytest.mark.parametrize("each_time", ["True", "False"])
@pytest.mark.parametrize("sign", ["-", ""])
def test_what_an_optimizer_will_train_is_known_while_the_policy_acts(
    each_time: str, sign: str, tmp_path: Path
) -> None:
    changes = ("EACH_TIME", each_time), ("loss = -(", f"loss = {sign}(")
    report = audited(tmp_path, *changes, text=TEXT)
    assert report.verdict == ("unbiased" if sign else "wrong-sign"), report.summary
    assert [finding.rule for finding in report.findings] == ([] if sign else ["wrong-sign"])
