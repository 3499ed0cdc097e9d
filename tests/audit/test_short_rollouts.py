"""Actor-critics whose rollouts are so short that several rules may explain them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.test_second_update import CRITIC, audit
from tests.audit.writing import audit_here

# Values after the last step of an episode, rewards bootstrapped once a rollout, mean over it.
_SEVERAL_STEPS = """returns, target = [], None
    for t in reversed(range(2)):
        if target is None or ends[t]:
            target = (1 - stops[t]) * next_values[t].detach()
        target = rewards[t] + GAMMA * target
        returns.insert(0, target)
    target = torch.stack(returns)"""
_ONE_STEP = "target = rewards + GAMMA * (1 - stops) * next_values.detach()"


def test_of_several_rules_that_explain_two_steps_none_with_a_fault_is_named(tmp_path: Path) -> None:
    report = audit(
        tmp_path,
        CRITIC,
        ("range(4)", "range(2)"),
        (_ONE_STEP, _SEVERAL_STEPS),
        ("range(2):\n        critic", "range(1):\n        critic"),
        ("* advantage).sum()", "* advantage).mean()"),
        max_paths=10,  # of the smallest probe
    )
    assert report.verdict == "convention", report.text()
    assert not report.findings, report.text()


def test_the_last_step_counts_where_the_reset_comes_before_its_update(tmp_path: Path) -> None:
    report = audit(
        tmp_path,
        CRITIC,
        ("range(4)", "range(1)"),
        ("range(2):\n        critic", "range(1):\n        critic"),
    )
    assert report.verdict == "convention", report.text()
    assert report.exhaustive
    assert report.rule == "1 × generalised advantage (λ = 0) (γ = 0.9)"


def test_a_bootstrapped_return_needs_no_baseline(tmp_path: Path) -> None:
    report = audit(tmp_path, CRITIC, ("(target - values).detach()", "target.detach()"))
    assert report.verdict == "convention", report.text()
    assert report.rule.startswith("1 × λ-return (λ = 0)")


@pytest.mark.parametrize(
    ("advantages", "scaled"),
    [
        ("(target - target.mean())", ", centred"),
        ("((target - target.mean()) / (target.std() + 1e-8))", ", whitened"),
    ],
)
def test_a_bootstrapped_return_is_scaled(tmp_path: Path, advantages: str, scaled: str) -> None:
    """Without a baseline of the state, but with a constant that the batch gives."""
    change = ("(target - values).detach()", f"{advantages}.detach()")
    report = audit(tmp_path, CRITIC, change)
    assert report.verdict == "convention", report.text()
    assert report.rule.startswith("1 × λ-return (λ = 0)"), report.rule
    assert scaled in report.rule
    report = audit(tmp_path, CRITIC, change, (" * (1 - stops)", ""))
    assert [f.rule for f in report.findings] == ["bootstrapped-after-termination"], report.text()


_ON_AND_ON = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.98
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for episode in range(1000):
    steps = []
    obs = torch.as_tensor(env.reset()[0])
    for _ in range(6):
        policy = Categorical(logits=actor(obs))
        action = policy.sample()
        following, reward, terminated, truncated, _ = env.step(action.item())
        following = torch.as_tensor(following)
        goes_on = 0.0 if ENDS else 1.0
        steps.append((obs, following, policy.log_prob(action), reward / 100.0, goes_on))
        obs = following
    seen, after, log_probs, rewards, goes_on = (list(each) for each in zip(*steps))
    values, later = critic(torch.stack(seen))[:, 0], critic(torch.stack(after))[:, 0]
    targets = torch.tensor(rewards) + GAMMA * (later * torch.tensor(goes_on)).detach()
    loss = -(torch.stack(log_probs) * (targets - values).detach()).mean()
    loss = loss + (targets - values).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("ends", "found"),
    [("terminated or truncated", ["truncation-as-termination"]), ("terminated", [])],
)
def test_what_steps_on_behind_an_end_is_judged(ends: str, found: list[str], tmp_path: Path) -> None:
    """Nothing is earned there, whatever the audit gives: that moves no weight."""
    (tmp_path / "program.py").write_text(_ON_AND_ON.replace("ENDS", ends), encoding="utf-8")
    report = audit_here(tmp_path / "program.py", 300)
    assert [finding.rule for finding in report.findings] == found, report.text()
    assert report.verdict == ("biased" if found else "convention")
