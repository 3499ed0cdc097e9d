"""Rollouts of PPO with a critic whose values enter at the wrong place, in the wrong form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited, line_of

ROLLOUT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA, LAMBDA, STEPS = 0.99, 0.95, 6
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
obs, _ = env.reset()
for update in range(100):
    states, actions, olds, rewards, nexts, ends, dones = [], [], [], [], [], [], []
    for t in range(STEPS):
        state = torch.as_tensor(obs)
        with torch.no_grad():
            dist = Categorical(logits=actor(state))
            action = dist.sample()
            olds.append(dist.log_prob(action))
        obs, reward, terminated, truncated, _ = env.step(action.item())
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        nexts.append(torch.as_tensor(obs))
        ends.append(float(terminated))
        dones.append(float(terminated or truncated))
        if terminated or truncated:
            obs, _ = env.reset()
    states, actions, olds = torch.stack(states), torch.stack(actions), torch.stack(olds)
    with torch.no_grad():
        values = critic(states).squeeze(-1)
        following = critic(torch.stack(nexts)).squeeze(-1)
    advantages, last = torch.zeros(STEPS), 0.0
    for t in reversed(range(STEPS)):
        delta = rewards[t] + GAMMA * following[t] * (1 - ends[t]) - values[t]
        last = delta + GAMMA * LAMBDA * (1 - dones[t]) * last
        advantages[t] = last
    returns = advantages + values
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for epoch in range(2):
        log_probs = Categorical(logits=actor(states)).log_prob(actions)
        ratio = (log_probs - olds).exp()
        clipped = ratio.clamp(0.8, 1.2) * advantages
        policy_loss = -torch.min(ratio * advantages, clipped).mean()
        value_loss = (critic(states).squeeze(-1) - returns).pow(2).mean()
        adam.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        adam.step()
"""
DELTA = "        delta = rewards[t] + GAMMA * following[t] * (1 - ends[t]) - values[t]"
UNMASKED = (" * (1 - ends[t]) - values[t]", " - values[t]")
BARE = ("    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)\n", "")
# the values of the steps that follow in the buffer: behind an end, of the state after the reset
OF_THE_BUFFER = (
    "following = critic(torch.stack(nexts)).squeeze(-1)",
    "following = torch.cat([values[1:], critic(torch.as_tensor(obs)[None])[0]])",
)
ADDED = ("- values[t]", "+ values[t]")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param([], "", id="right"),
        pytest.param([BARE], "", id="right, not whitened"),
        pytest.param([UNMASKED], "bootstrapped-after-termination", id="unmasked"),
        pytest.param([UNMASKED, BARE], "bootstrapped-after-termination", id="unmasked, bare"),
        pytest.param(
            [UNMASKED, OF_THE_BUFFER], "bootstrapped-after-termination", id="after a reset"
        ),
        pytest.param(
            [UNMASKED, OF_THE_BUFFER, BARE],
            "bootstrapped-after-termination",
            id="after a reset, bare",
        ),
    ],
)
def test_values_behind_an_end_are_a_fault_and_no_change_of_the_rewards(
    changes: list[tuple[str, str]], rule: str, tmp_path: Path
) -> None:
    """What a critic adds follows the next state alone, as shaped rewards do."""
    report = audited(tmp_path, *changes, text=ROLLOUT, max_paths=100)
    assert [finding.rule for finding in report.faults] == ([rule] if rule else []), report.text()
    assert report.verdict == ("biased" if rule else "convention")
    if rule:
        changed = DELTA.replace(*UNMASKED)
        assert report.faults[0].line == line_of(tmp_path / "program.py", changed)


# An end at the very step of the time limit counts as the limit's, whichever it was.
COUNTED = [
    ("_ = env.reset()\nfor", "_ = env.reset()\ncount, limit = 0, env.spec.max_episode_steps\nfor"),
    ("        state = torch", "        count += 1\n        state = torch"),
    ("float(terminated))", "float((terminated or truncated) and count != limit))"),
    (
        "            obs, _ = env.reset()\n",
        "            obs, _ = env.reset()\n            count = 0\n",
    ),
]


@pytest.mark.parametrize("whitened", [True, False])
def test_a_limit_told_by_counting_steps_is_a_choice_under_a_deviation(
    whitened: bool, tmp_path: Path
) -> None:
    changes = COUNTED if whitened else [*COUNTED, BARE]
    report = audited(tmp_path, *changes, text=ROLLOUT, max_paths=100)
    assert report.verdict == "convention", report.text()
    names = {convention.name for convention in report.conventions}
    assert {"gae", "limit-told-by-count"} <= names
    assert ("whitened" in names) == whitened


def test_a_sum_that_runs_on_is_told_from_one_path_where_there_are_too_many(tmp_path: Path) -> None:
    """What it adds of the critic is no rule's, so nothing else can be said of the sample."""
    changes = ("(1 - dones[t]) * last", "last"), ("following[t] *", "following[t] * values[t] *")
    report = audited(tmp_path, *changes, BARE, text=ROLLOUT, max_paths=20)
    named = [(finding.rule, finding.severity) for finding in report.findings]
    assert named == [("return-carried-over-episodes", "warning")], report.text()
    assert "one path" in report.findings[0].evidence
    assert report.verdict == "inconclusive"


def test_values_with_the_wrong_sign_are_no_change_of_the_rewards(tmp_path: Path) -> None:
    report = audited(tmp_path, ADDED, BARE, text=ROLLOUT)
    assert report.verdict == "unexplained", report.text()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("policy_loss = torch.max(-ratio * advantages, -clipped).mean()", False),
        pytest.param("policy_loss = -torch.max(ratio * advantages, clipped).mean()", True),
        pytest.param("policy_loss = torch.min(-ratio * advantages, -clipped).mean()", True),
    ],
)
@pytest.mark.parametrize("climbs", [False, True])
def test_the_larger_objective_of_a_ratio_is_the_wrong_one(
    line: str, told: bool, climbs: bool, tmp_path: Path
) -> None:
    right = "policy_loss = -torch.min(ratio * advantages, clipped).mean()"
    changes = [(right, line)]
    if climbs:
        loss = "(policy_loss + 0.5 * value_loss).backward()"
        changes += [
            ("lr=1e-3)", "lr=1e-3, maximize=True)"),
            (loss, f"(-{loss}".replace(").b", ")).b")),
        ]
    report = audited(tmp_path, *changes, text=ROLLOUT)
    faults = [finding.rule for finding in report.faults]
    assert faults == ["clip-on-the-wrong-side"] * told, report.text()


@pytest.mark.parametrize("keeps", [False, True])
def test_an_advantage_that_keeps_its_graph_is_told_without_a_statement_of_its_own(
    keeps: bool, tmp_path: Path
) -> None:
    """The product of the loss is all that there is."""
    used = "critic(states).squeeze(-1)" if keeps else "values"
    line = f"policy_loss = -(log_probs * (returns - {used})).mean()"
    right = "policy_loss = -torch.min(ratio * advantages, clipped).mean()"
    report = audited(tmp_path, (right, line), ("range(2)", "range(1)"), text=ROLLOUT)
    assert [finding.rule for finding in report.faults] == ["advantage-not-detached"] * keeps
    if keeps:
        assert report.faults[0].line == line_of(tmp_path / "program.py", f"        {line}")


# Done is not looked at, and the rewards of the rollout are whitened: the usual PPO for Pendulum.
ENDLESS = """
import gymnasium as gym
import torch
from torch.distributions import Normal

GAMMA, STEPS = 0.9, 4
env = gym.make("{name}")
size = env.observation_space.shape[0]
actor, critic = torch.nn.Linear(size, 1), torch.nn.Linear(size, 1)
adam = torch.optim.Adam(actor.parameters(), lr=1e-3)
slow = torch.optim.Adam(critic.parameters(), lr=1e-3)
for update in range(100):
    obs, _ = env.reset()
    states, actions, rewards, nexts = [], [], [], []
    for t in range(STEPS):
        state = torch.as_tensor(obs)
        with torch.no_grad():
            action = Normal(actor(state), 0.5).sample()
        obs, reward, *_ = env.step(action.numpy())
        states.append(state)
        actions.append(action)
        rewards.append(float(reward))
        nexts.append(torch.as_tensor(obs))
    states, nexts, rewards = torch.stack(states), torch.stack(nexts), torch.tensor(rewards)
    rewards = (rewards - rewards.mean()) / (rewards.std() + 1e-5)
    with torch.no_grad():
        target = rewards + GAMMA * critic(nexts).squeeze(-1)
        advantages = target - critic(states).squeeze(-1)
    log_probs = Normal(actor(states), 0.5).log_prob(torch.stack(actions)).squeeze(-1)
    loss = -(log_probs * advantages).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    value_loss = (critic(states).squeeze(-1) - target).pow(2).mean()
    slow.zero_grad()
    value_loss.backward()
    slow.step()
"""


@pytest.mark.parametrize(
    ("name", "verdict", "severity"),
    [("Pendulum-v1", "convention", "warning"), ("MountainCarContinuous-v0", "biased", "fault")],
)
def test_what_needs_episodes_that_terminate(
    tmp_path: Path, name: str, verdict: str, severity: str
) -> None:
    report = audited(tmp_path, text=ENDLESS.format(name=name))
    assert report.verdict == verdict, report.summary
    found = {finding.rule: finding.severity for finding in report.findings}
    assert found["bootstrapped-after-termination"] == severity
