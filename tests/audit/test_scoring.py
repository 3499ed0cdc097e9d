"""What a program scored, compared with what it did."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.distributions import Normal

from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.running.runner import CallableRunner
from tests.audit.test_episodes_with_critic import EPISODES, TWO
from tests.audit.writing import audited

_FAULT = "behaviour-not-scored"
_PICKED = (0, 1, 1, 2, 0, 0, 1, 2)  # two starts, two actions, where they led, and two actions


def act_and_score(shift: float, one_by_one: bool) -> None:
    """Two actors and two steps; what is scored lies actor by actor, as PPO flattens a rollout."""
    envs = [gym.make("Pendulum-v1") for _ in range(2)]
    mean = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(mean.parameters(), lr=0.1)
    seen = [env.reset()[0] for env in envs]
    states, actions, rewards = [], [], []
    for _ in range(2):
        shown = torch.as_tensor(np.array(seen), dtype=torch.float32)
        with torch.no_grad():
            parts = shown.split(1) if one_by_one else [shown]
            action = torch.cat([Normal(mean(part), 1.0).sample() for part in parts])
        stepped = [env.step(each.numpy()) for env, each in zip(envs, action, strict=True)]
        seen = [step[0] for step in stepped]
        states.append(shown)
        actions.append(action)
        rewards.append(sum(float(step[1]) for step in stepped))
    by_actor = torch.stack(states).transpose(0, 1).reshape(-1, 3)
    taken = torch.stack(actions).transpose(0, 1).reshape(-1, 1)
    scores = Normal(mean(by_actor) + shift, 1.0).log_prob(taken)
    loss: Any = -scores.sum() * sum(rewards)
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("shift", "rule"), [(0.0, ""), (0.3, _FAULT)])
def test_the_order_of_the_rows_is_no_fault(shift: float, rule: str, one_by_one: bool) -> None:
    runner = CallableRunner(lambda: act_and_score(shift, one_by_one))
    trace = runner.run(Job(_PICKED, SIZES[0]))
    assert (len(trace.scores), len(trace.steps)) == (1, 4)
    assert len({draw.value for draw in trace.draws} - {None}) == 4
    found = compare_scoring(cast("Any", SimpleNamespace(traces=[trace])))
    assert (found.rule if found else "") == rule


SQUASHED = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(1000):
    obs, _ = env.reset()
    log_probs, rewards, done = [], [], False
    while not done:
        dist = Normal(net(torch.as_tensor(obs, dtype=torch.float32)), 0.7)
        u = dist.sample()
        action = torch.tanh(u)
        log_probs.append((SCORE).sum())
        obs, reward, terminated, truncated, _ = env.step(2.0 * action.numpy())
        rewards.append(float(reward))
        done = terminated or truncated
    loss = -torch.stack(log_probs).sum() * sum(rewards)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
VOLUME = "torch.log(1 - action.pow(2) + 1e-6)"


@pytest.mark.parametrize(
    ("score", "rules"),
    [
        ("dist.log_prob(u)", []),
        (f"dist.log_prob(u) - {VOLUME}", []),
        ("dist.log_prob(torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6)))", []),
        ("dist.log_prob(action)", ["transformed-action-scored"]),
        (f"dist.log_prob(action) - {VOLUME}", ["transformed-action-scored"]),
        (f"dist.log_prob(2 * action) - {VOLUME}", ["transformed-action-scored"]),
        ("dist.log_prob(dist.sample())", ["scored-other-action"]),
    ],
)
def test_a_squashed_action_is_scored_by_the_number_that_was_drawn(
    score: str, rules: list[str], tmp_path: Path
) -> None:
    report = audited(tmp_path, ("SCORE", score), text=SQUASHED, max_paths=200)
    assert [fault.rule for fault in report.faults] == rules, report.text()
    assert rules or report.verdict == "unbiased", report.text()


FLIPPED = """
import gymnasium as gym
import numpy as np
import torch

env = gym.make("CartPole-v1")
net = torch.nn.Linear(4, 1)
opt = torch.optim.RMSprop(net.parameters(), lr=0.01)
for episode in range(100):
    obs, _ = env.reset()
    scores, total, done = [], 0.0, False
    while not done:
        p = torch.sigmoid(net(torch.tensor(obs, dtype=torch.float32)))[0]
        right = np.random.uniform() < p.item()
        scores.append(torch.log(1 - p if right else p))
        obs, reward, terminated, truncated, _ = env.step(int(right))
        total += reward
        done = terminated or truncated
    loss = -total * torch.stack(scores).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_flipped_label_is_told_next_to_the_return_of_the_episode(tmp_path: Path) -> None:
    report = audited(tmp_path, text=FLIPPED)
    assert [fault.rule for fault in report.faults] == ["scored-other-action"], report.text()


def test_episodes_that_are_scored_twice_each_have_no_other_actions(tmp_path: Path) -> None:
    wrong = "loss - (log_probs * (advantages - value.detach() ** 2)).sum()"
    twice = (
        "        log_probs = torch",
        "        old = torch.distributions.Categorical(logits=actor(states)).log_prob(actions)\n"
        "        dist = torch.distributions.Categorical(logits=actor(states))\n"
        "        log_probs = dist.log_prob(actions) + 0.0 * old\n"
        "        unused = torch",
    )
    lost = ("loss - (log_probs * advantages).sum()", wrong)
    report = audited(tmp_path, twice, lost, TWO, text=EPISODES)
    assert not report.faults, report.text()


# Rollouts too long to run all of them: the values that stand for a normal number reach no bound.
ROLLOUTS = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
mean, critic = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam([*mean.parameters(), *critic.parameters()])
obs, _ = env.reset()
for update in range(100):
    states, actions, old, rewards, nexts = [], [], [], [], []
    for step in range(8):
        state = torch.as_tensor(obs)
        with torch.no_grad():
            policy = Normal(2.0 * torch.tanh(mean(state)), 0.7)
            action = policy.sample()
            old.append(policy.log_prob(action))
        clipped = action.clamp(-2.0, 2.0)
        obs, reward, terminated, truncated, _ = env.step(clipped.numpy())
        states.append(state)
        actions.append(STORED)
        rewards.append(float(reward))
        nexts.append(torch.as_tensor(obs))
        if terminated or truncated:
            obs, _ = env.reset()
    states, nexts, rewards = torch.stack(states), torch.stack(nexts), torch.tensor(rewards)
    target = rewards + 0.9 * critic(nexts).squeeze(-1).detach()
    values = critic(states).squeeze(-1)
    scores = Normal(2.0 * torch.tanh(mean(states)), 0.7).log_prob(torch.stack(actions))
    ratio = (scores - torch.stack(old)).exp().squeeze(-1)
    advantages = (target - values).detach()
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    loss = loss + (target - values).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("stored", "faults"), [("action", 0), ("clipped", 1)])
def test_numbers_that_are_clipped_before_they_are_scored_are_seen_far_out(
    stored: str, faults: int, tmp_path: Path
) -> None:
    report = audited(tmp_path, text=ROLLOUTS.replace("STORED", stored))
    assert not report.exhaustive
    assert [each.rule for each in report.faults] == ["transformed-action-scored"] * faults
    assert report.verdict == ("biased" if faults else "convention"), report.text()


MASKED = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("Taxi-v4")
net = torch.nn.Embedding(500, 6)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for episode in range(100):
    state, info = env.reset()
    states, actions, rewards, done = [], [], [], False
    while not done:
        legal = torch.as_tensor(info["action_mask"], dtype=torch.bool)
        logits = net(torch.tensor(state)).masked_fill(~legal, -torch.inf)
        states.append(state)
        actions.append(Categorical(logits=logits).sample())
        state, reward, terminated, truncated, info = env.step(actions[-1].item())
        rewards.append(reward)
        done = terminated or truncated
    surprise = torch.nn.functional.cross_entropy(
        net(torch.tensor(states)), torch.stack(actions), reduction="none"
    )
    loss = (surprise * sum(rewards)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_labels_of_a_cross_entropy_are_scored_actions(tmp_path: Path) -> None:
    report = audited(tmp_path, text=MASKED)
    assert [each.rule for each in report.faults] == ["mask-in-acting-only"], report.summary
