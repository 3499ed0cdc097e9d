"""Generalised advantages of a buffer of steps, whose sum goes on behind the end of an episode."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el

_PROGRAM = """
import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical

STEPS, GAMMA, DECAY = 20, 0.99, 0.95
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)


def learn(states, actions, old, rewards, values, ends, limits, last):
    credit = np.zeros(STEPS)
    seen = [*values[1:], last]
    for t in range(FIRST):
        factor = 1.0
        for k in range(t, FIRST):
            delta = rewards[k] + GAMMA * seen[k] * (1 - ends[k]) - values[k]
            credit[t] += factor * delta
            factor *= GAMMA * DECAY * (1 - STOP)
    states = torch.tensor(np.array(states), dtype=torch.float32)
    credit = torch.tensor(credit, dtype=torch.float32)
    values = torch.tensor(values, dtype=torch.float32)
    for _ in range(2):
        scores = Categorical(logits=actor(states)).log_prob(torch.tensor(actions))
        ratio = (scores - torch.tensor(old)).exp()
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * credit, clipped * credit).mean()
        loss = loss + 0.5 * (credit + values - critic(states)[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


memory, (state, _) = [], env.reset()
for step in range(10_000):
    shown = torch.tensor(state, dtype=torch.float32)
    with torch.no_grad():
        policy, value = Categorical(logits=actor(shown)), critic(shown).item()
    action = policy.sample()
    after, reward, terminated, truncated, _ = env.step(action.item())
    memory.append(
        (state, action.item(), policy.log_prob(action).item(), reward, value, terminated, truncated)
    )
    state = after
    if terminated or truncated:
        state, _ = env.reset()
    if len(memory) == STEPS:
        with torch.no_grad():
            last = critic(torch.tensor(after, dtype=torch.float32)).item()
        learn(*zip(*memory), last)
        memory = []
"""


_VALUE_OF = """def value_of(state):
    return critic(torch.tensor(state, dtype=torch.float32)).item()


"""


def _audit(folder: Path, first: str, stop: str, *changes: tuple[str, str]) -> el.AuditReport:
    text = _PROGRAM.replace("FIRST", first).replace("STOP", stop)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "train.py").write_text(text, encoding="utf-8")
    return el.audit_script(folder / "train.py")


@pytest.mark.parametrize(
    ("first", "stop"),
    [("STEPS - 1", "0"), ("STEPS", "ends[k]")],
    ids=["without the last step", "over limits"],
)
def test_a_sum_that_goes_on_into_the_next_episode(tmp_path: Path, first: str, stop: str) -> None:
    report = _audit(tmp_path, first, stop)
    assert [fault.rule for fault in report.faults] == ["return-carried-over-episodes"], (
        report.text()
    )
    assert "generalised advantage (λ = 0.95) (γ = 0.99)" in report.rule
    assert report.exhaustive


def test_a_sum_that_stops_at_every_end_has_no_fault(tmp_path: Path) -> None:
    last = ("for k in range(t, STEPS):", "for k in range(t, STEPS):\n            shown = nexts[k]")
    report = _audit(
        tmp_path,
        "STEPS",
        "max(ends[k], limits[k])",
        last,
        ("seen[k]", "shown"),
        ("limits, last", "limits, nexts, last"),
        ("terminated, truncated)\n", "terminated, truncated, value_of(after))\n"),
        ("def learn", f"{_VALUE_OF}def learn"),
    )  # fmt: skip
    assert report.verdict == "convention", report.text()
    assert not report.faults


def test_zero_behind_the_last_step_of_a_batch_and_behind_limits(tmp_path: Path) -> None:
    report = _audit(
        tmp_path,
        "STEPS",
        "max(ends[k], limits[k])",
        ("[*values[1:], last]", "[*values[1:], 0.0]"),
        ("(1 - ends[k])", "(1 - max(ends[k], limits[k]))"),
    )
    assert [fault.rule for fault in report.faults] == ["truncation-as-termination"], report.text()
    named = [convention.name for convention in report.conventions]
    assert {"return-cut-at-update", "gae"} <= {*named}
    assert "baseline" not in named
    assert "generalised advantage (λ = 0.95) (γ = 0.99)" in report.rule
