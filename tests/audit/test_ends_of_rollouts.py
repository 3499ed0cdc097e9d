"""What follows the last step of a rollout, or of an episode within it, with a critic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited

SAME_STEP = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA, LAMBDA, STEPS = 0.95, 0.9, 3
envs = gym.vector.SyncVectorEnv(
    [lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
)
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
obs, _ = envs.reset(seed=0)
for update in range(100):
    states, actions, rewards, ends = [], [], [], []
    for _ in range(STEPS):
        state = torch.as_tensor(obs, dtype=torch.float32)
        action = Categorical(logits=actor(state)).sample()
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        states.append(state)
        actions.append(action)
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        ends.append(torch.as_tensor(terminated | truncated, dtype=torch.float32))
    states, actions, rewards, ends = map(torch.stack, (states, actions, rewards, ends))
    value = critic(states)[..., 0]
    last = critic(torch.as_tensor(obs, dtype=torch.float32))[..., 0].detach()
    after = torch.cat([value[1:].detach(), last[None]])
    advantages, running = torch.zeros_like(rewards), torch.zeros(2)
    for t in reversed(range(STEPS)):
        delta = rewards[t] + GAMMA * after[t] * (1 - ends[t]) - value[t].detach()
        running = delta + GAMMA * LAMBDA * (1 - ends[t]) * running
        advantages[t] = running
    targets = advantages + value.detach()
    log_probs = Categorical(logits=actor(states)).log_prob(actions)
    loss = -(log_probs * advantages).mean() + 0.5 * (value - targets).pow(2).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
VALUE_ON = ("after[t] * (1 - ends[t])", "after[t]")
SUM_ON = ("LAMBDA * (1 - ends[t])", "LAMBDA")
LATE = ("ends[t]", "ends[min(t + 1, STEPS - 1)]")  # as if they were those before each step
LATE_AND_WHITENED = (
    LATE,
    (
        "    targets =",
        "    whole = advantages.std(correction=0) + 1e-8\n    targets =",
    ),
    ("(log_probs * advantages)", "(log_probs * (advantages - advantages.mean()) / whole)"),
)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ((), "truncation-as-termination"),
        ((VALUE_ON,), "bootstrapped-after-termination"),
        ((SUM_ON,), "return-carried-over-episodes"),
        ((VALUE_ON, SUM_ON), "return-carried-over-episodes"),
        ((LATE,), "return-carried-over-episodes"),
        (LATE_AND_WHITENED, "return-carried-over-episodes"),
    ],
)
def test_an_autoreset_in_the_same_step_needs_both_masks(
    changes: tuple[tuple[str, str], ...], rule: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, *changes, text=SAME_STEP, max_paths=600)
    assert [fault.rule for fault in report.faults] == [rule], report.text()


ROLLOUT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA, STEPS = 0.95, 2
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
obs, _ = env.reset(seed=0)
for update in range(100):
    log_probs, values, rewards = [], [], []
    for _ in range(STEPS):
        state = torch.as_tensor(obs, dtype=torch.float32)
        dist = Categorical(logits=actor(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        values.append(critic(state)[0])
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        following = torch.as_tensor(obs, dtype=torch.float32)
        if terminated or truncated:
            obs, _ = env.reset()
            break
    running = critic(following)[0].detach() * (1 - terminated)
    returns = []
    for reward in reversed(rewards):
        running = reward + GAMMA * running
        returns.insert(0, running)
    returns, values = torch.stack(returns), torch.stack(values)
    loss = -(torch.stack(log_probs) * (returns - values.detach())).sum()
    loss = loss + (returns - values).pow(2).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


@pytest.mark.parametrize(
    ("state", "rules"),
    [("critic(following)[0]", []), ("values[-1]", ["bootstrapped-from-last-state"])],
)
def test_a_rollout_is_continued_by_the_state_that_follows_it(
    state: str, rules: list[str], tmp_path: Path
) -> None:
    text = ROLLOUT.replace("critic(following)[0]", state)
    report = audited(tmp_path, text=text)
    assert [fault.rule for fault in report.faults] == rules, report.text()
    assert rules or report.verdict == "convention", report.text()
