"""Programs that play before they train: an evaluation with drawn actions, or a random agent."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.reporting.report import AuditReport

TEXT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
kept = []

def episode():
    obs, _ = env.reset()
    log_probs, rewards, done = [], [], False
    while not done:
        dist = Categorical(logits=policy(torch.as_tensor(obs)))
        action = dist.sample()
        obs, reward, terminated, truncated, _ = env.step(action.item())
        log_probs.append(dist.log_prob(action))
        rewards.append(reward)
        done = terminated or truncated
    return log_probs, rewards

def at_random():
    env.reset()
    done = False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        done = terminated or truncated

for _ in range(3):
    with torch.no_grad():
        PLAY
for _ in range(100):
    log_probs, rewards = episode()
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(log_probs) * WEIGHT).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
# The same, where the batch's actions are scored together, by states that were kept.
TOGETHER = (
    ("action = dist.sample()", "action, before = dist.sample(), torch.as_tensor(obs)"),
    ("dist.log_prob(action)", "(before, action)"),
    ("    log_probs, rewards =", "    with torch.no_grad():\n        batch, rewards ="),
    ("torch.stack(log_probs)", "Categorical(logits=policy(states)).log_prob(actions)"),
    (
        "    returns =",
        "    states, actions = (torch.stack(part) for part in zip(*batch))\n    returns =",
    ),
)


def report_of(folder: Path, play: str, weight: str, *changes: tuple[str, str]) -> AuditReport:
    path, text = folder / "program.py", TEXT.replace("PLAY", play).replace("WEIGHT", weight)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return el.audit_script(path)


def left_out(report: AuditReport) -> bool:
    return any(note.startswith("left out: ") for note in report.notes)


@pytest.mark.parametrize("play", ["episode()", "at_random()"])
@pytest.mark.parametrize("weight", ["(returns - returns.mean())", "returns.sum()[None]"])
def test_what_is_played_before_the_training_is_left_out(
    play: str, weight: str, tmp_path: Path
) -> None:
    report, plain = report_of(tmp_path, play, weight), report_of(tmp_path, "pass", weight)
    assert (report.verdict, report.rule) == (plain.verdict, plain.rule)
    assert [each.rule for each in report.findings] == [each.rule for each in plain.findings]
    assert report.residual == pytest.approx(plain.residual)
    assert left_out(report)
    assert not left_out(plain)


def test_what_is_played_first_counts_where_its_rewards_move_the_gradient(tmp_path: Path) -> None:
    report = report_of(tmp_path, "kept.append(episode()[1])", "(returns - sum(kept[0]))")
    assert not left_out(report)


def test_it_is_left_out_where_the_actions_of_a_batch_are_scored_together(tmp_path: Path) -> None:
    report = report_of(tmp_path, "episode()", "returns.sum()[None]", *TOGETHER)
    assert [finding.rule for finding in report.findings] == ["broadcast"], report.text()
    assert left_out(report)
