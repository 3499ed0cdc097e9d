"""Programs that add a constant to the probability before its logarithm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audited
from tests.audit.zoo.inspection import audit_program
from tests.audit.zoo.mutations import mutants

STACKED = "log_probs = torch.stack(log_probs)"
EACH_STEP = "log_probs.append(dist.log_prob(action))"
ONLINE = """
import gymnasium as gym
import torch

env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
for _ in range(100):
    obs, done = torch.as_tensor(env.reset()[0]), False
    while not done:
        probs = actor(obs).softmax(-1)
        action = torch.multinomial(probs, 1).item()
        after, reward, terminated, truncated, _ = env.step(action)
        after, done = torch.as_tensor(after), terminated or truncated
        with torch.no_grad():
            target = reward + 0.9 * critic(after) * (1 - terminated)
        delta = target - critic(obs)
        loss = (delta**2 - torch.log(probs[action] + 1e-6) * delta.detach()).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        obs = after
"""


@pytest.mark.parametrize("offset", ["1e-3", "1e-5", "1e-7"])
def test_an_offset_of_any_size_is_measured(tmp_path: Path, offset: str) -> None:
    """The last of them was once taken for an entropy with the wrong sign."""
    scored = f"log_probs.append(torch.log(dist.probs[action] + {offset}))"
    report = audited(tmp_path, (EACH_STEP, scored))
    assert (report.verdict, report.findings) == ("convention", ()), report.text()
    bias = {choice.name: choice.bias for choice in report.conventions}["offset-logarithm"]
    assert bias is not None
    assert 0.0 < bias < float(offset)
    assert f"ln(π + {float(offset):.2g})" in report.rule


def test_the_probability_itself_is_no_logarithm_with_a_large_offset() -> None:
    wrong = next(each for each in mutants() if each.name == "numpy_sampling/probability")
    report = audit_program(wrong)
    assert [fault.rule for fault in report.faults] == [*wrong.expected], report.text()


def test_an_offset_hides_no_fault(tmp_path: Path) -> None:
    """The rule next to it is read as ever."""
    scored = "log_probs.append(torch.log(dist.probs[action] + 1e-5))"
    report = audited(tmp_path, (EACH_STEP, scored), ("reversed(rewards)", "rewards"))
    assert report.verdict == "biased", report.text()
    wrong = audited(tmp_path, (EACH_STEP, scored), ("-(gamma_t", "(gamma_t"))
    assert [finding.rule for finding in wrong.faults] == ["wrong-sign"], wrong.text()


def test_later_updates_have_the_offset_too(tmp_path: Path) -> None:
    """Each action is an update of its own, by the critic's advantage."""
    report = audited(tmp_path, text=ONLINE)
    assert (report.verdict, report.findings) == ("convention", ()), report.text()
    assert "offset-logarithm" in [choice.name for choice in report.conventions]
    assert not any("second update" in note for note in report.notes)
