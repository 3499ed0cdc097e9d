"""A recurrent policy and critic: values of all states so far are a baseline, and hide no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here

PROGRAM = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
memory, head = torch.nn.GRU(4, 3, batch_first=True), torch.nn.Linear(3, 2)
recall, critic = torch.nn.GRU(4, 3, batch_first=True), torch.nn.Linear(3, 1)
parts = torch.nn.ModuleList([memory, head, recall, critic])
opt = torch.optim.Adam(parts.parameters())
while True:
    obs, _ = env.reset()
    seen, actions, rewards, hidden, done = [], [], [], None, False
    while not done:
        seen.append(torch.as_tensor(obs, dtype=torch.float32))
        with torch.no_grad():
            out, hidden = memory(seen[-1][None, None], hidden)
            action = Categorical(logits=head(out)[0, 0]).sample()
        obs, reward, terminated, truncated, _ = env.step(action.item())
        actions.append(action)
        rewards.append(float(reward))
        done = terminated or truncated
    batch = torch.stack(seen)[None]
    values = critic(recall(batch)[0])[0, :, 0]
    returns, running = torch.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + 0.9 * running
        returns[t] = running
    dist = Categorical(logits=head(memory(batch)[0])[0])
    log_probs = dist.log_prob(torch.stack(actions))
    loss = -(log_probs * (returns - values.detach())).sum() + (returns - values).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAULTS = {
    "returns in reversed order": ("in reversed(range(len(rewards)))", "in range(len(rewards))"),
    "the immediate reward": ("rewards[t] + 0.9 * running", "rewards[t]"),
    "the advantage keeps its graph": ("values.detach()", "values"),
}


def test_a_recurrent_critic_is_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    report = audit_here(path, 100)
    assert not report.findings, report.text()
    assert {c.name for c in report.conventions} == {"baseline", "gamma-t-dropped"}
    assert report.updates == 2
    assert "V(s₀, …, s_t)" in report.rule


@pytest.mark.parametrize("fault", FAULTS)
def test_a_recurrent_critic_hides_no_fault(fault: str, tmp_path: Path) -> None:
    old, new = FAULTS[fault]
    assert PROGRAM.count(old) == 1
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace(old, new), encoding="utf-8")
    report = audit_here(path, 100)
    assert report.exit_status != 0, report.text()


def test_one_sum_of_advantages_for_all_actions_is_named(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    loss = "(log_probs * (returns - values.detach())).sum() +"
    assert PROGRAM.count(loss) == 1
    summed = loss.replace("log_probs", "log_probs.sum()")
    path.write_text(PROGRAM.replace(loss, summed), encoding="utf-8")
    report = audit_here(path, 100)
    rules = [finding.rule for finding in report.faults]
    assert rules == ["mean-log-prob-times-sum-of-returns"], report.text()


GAUSSIAN = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
memory, mean = torch.nn.GRU(3, 3, batch_first=True), torch.nn.Linear(3, 1)
recall, critic = torch.nn.GRU(3, 3, batch_first=True), torch.nn.Linear(3, 1)
opt = torch.optim.Adam(torch.nn.ModuleList([memory, mean, recall, critic]).parameters())
while True:
    obs, _ = env.reset()
    hidden = recalled = None
    log_probs, values, rewards, done = [], [], [], False
    while not done:
        state = torch.as_tensor(obs, dtype=torch.float32)[None, None]
        out, hidden = memory(state, hidden)
        law = Normal(mean(out)[0, 0], 0.5)
        action = law.sample()
        obs, reward, terminated, truncated, _ = env.step(action.numpy())
        out, recalled = recall(state, recalled)
        log_probs.append(law.log_prob(action).sum())
        values.append(critic(out)[0, 0, 0])
        rewards.append(float(reward))
        done = terminated or truncated
    advantages, carried, after = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values)):
        carried = reward + 0.9 * after - value.item() + 0.9 * 0.8 * carried
        after = value.item()
        advantages.insert(0, carried)
    advantages = torch.tensor(advantages)
    returns = advantages + torch.stack(values).detach()
    loss = -(torch.stack(log_probs) * advantages).sum()
    loss = loss + (torch.stack(values) - returns).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_recurrent_gaussian_with_a_recurrent_critic_is_read(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(GAUSSIAN, encoding="utf-8")
    report = audit_here(path, 100)
    assert [finding.rule for finding in report.faults] == ["truncation-as-termination"]
    assert "generalised advantage (λ = 0.8) (γ = 0.9)" in report.rule
