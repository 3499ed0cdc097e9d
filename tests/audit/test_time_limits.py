"""Time limits that are hard to tell: by a critic's noise, or by a number in the program's text."""

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

_ONE_STEP = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make(MADE)
seen = env.observation_space
size = seen.n if hasattr(seen, "n") else seen.shape[0]

def features(state):
    if hasattr(seen, "n"):
        return torch.nn.functional.one_hot(torch.tensor(int(state)), size).float()
    return torch.as_tensor(state)

actor, critic = torch.nn.Linear(size, int(env.action_space.n)), torch.nn.Linear(size, 1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for episode in range(1000):
    state, _ = env.reset()
    done = False
    while not done:
        policy, value = Categorical(logits=actor(features(state))), critic(features(state))[0]
        action = policy.sample()
        state, reward, terminated, truncated, _ = env.step(action.item())
        done = terminated or truncated
        target = reward + 0.9 * critic(features(state))[0].detach() * (not done)
        loss = -policy.log_prob(action) * (target - value).detach() + (target - value).square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


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


_COUNTED = """
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v0")
actor, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for episode in range(1000):
    state, done, steps = torch.as_tensor(env.reset()[0]), False, 0
    while not done:
        policy = Categorical(logits=actor(state))
        action = policy.sample()
        after, reward, terminated, truncated, _ = env.step(action.item())
        after, done, steps = torch.as_tensor(after), terminated or truncated, steps + 1
        goes_on = not done or steps == LIMIT
        with torch.no_grad():
            target = reward + 0.99 * goes_on * critic(after)
        error = target - critic(state)
        loss = (error**2 - policy.log_prob(action) * error.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = after
"""


@pytest.mark.parametrize(("limit", "verdict"), [("200", "convention"), ("150", "biased")])
def test_a_count_of_steps_is_compared_with_the_limit_of_its_own_environment(
    limit: str, verdict: str, tmp_path: Path
) -> None:
    """That of CartPole-v0 is 200 steps; the probe's is another one."""
    (tmp_path / "train.py").write_text(_COUNTED.replace("LIMIT", limit), encoding="utf-8")
    report = el.audit_script(tmp_path / "train.py")
    assert report.verdict == verdict, report.text()
    assert any("200 is 3 at train.py:17" in note for note in report.notes) == (limit == "200")


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ('"CartPole-v1"', "biased"),
        ('"CliffWalking-v1"', "convention"),  # registered without a time limit: none is missed
        ('"CliffWalking-v1", max_episode_steps=200', "biased"),
    ],
)
def test_a_limit_is_missed_only_where_there_is_one(made: str, verdict: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_ONE_STEP.replace("MADE", made), encoding="utf-8")
    report = el.audit_script(tmp_path / "train.py")
    assert report.verdict == verdict, report.summary
    found = [finding.rule for finding in report.faults]
    assert found == ["truncation-as-termination"] * (verdict == "biased")
