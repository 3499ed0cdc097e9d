"""Programs whose batches are so long that numbers of their text are made small."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from tests.audit.writing import PROGRAM

# As a parser of dataclasses needs it, an annotation is a type.
_MODULE = """
STEPS: int = 512
PART = 64
assert __annotations__ == {"STEPS": int}
"""
_LONG = """
import random
import gymnasium as gym
import torch
from settings import PART, STEPS
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    log_probs, credit = [], []
    while len(credit) < STEPS:
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        credit += [CREDIT for t in range(len(rewards))]
    USED
    log_probs, credit = torch.stack(log_probs), torch.tensor(credit)
    loss = -(log_probs * credit).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("credit", "used", "verdict", "made"),
    [
        ("sum(rewards[t:])", "pass", "unbiased", "made small, so that a batch can be read: "
         "512 is 6 at settings.py:2"),
        ("rewards[t]", "assert random.sample(range(len(credit)), PART)", "biased",
         "made small, so that a batch can be read: 512 is 6 at settings.py:2, "
         "64 is 6 at settings.py:3"),
    ],
)  # fmt: skip
def test_a_long_batch_is_read_as_a_short_one(
    credit: str, used: str, verdict: str, made: str, tmp_path: Path
) -> None:
    """The second could not draw 64 of six."""
    (tmp_path / "settings.py").write_text(_MODULE, encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(_LONG.replace("CREDIT", credit).replace("USED", used), encoding="utf-8")
    report = el.audit_script(script)
    assert report.verdict == verdict, report.text()
    assert report.exhaustive
    assert made in report.notes, report.notes
    assert [fault.rule for fault in report.faults] == ["immediate-reward"] * (verdict == "biased")


def test_numbers_of_a_program_with_short_batches_stay(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    assert not any("made small" in note for note in el.audit_script(script).notes)
