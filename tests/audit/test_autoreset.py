"""Vector environments: what happens to the action that is given after the end of an episode."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from tests.audit.writing import audit_here, line_of

PROGRAM = """
import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch.distributions import Categorical

GAMMA, STEPS = 0.9, 3
envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")], autoreset_mode=AutoresetMode.{mode})
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
obs, _ = envs.reset(seed=1)
while True:
    log_probs, rewards, dones, valid = [], [], [], []
    done = np.zeros(1, dtype=bool)
    for _ in range(STEPS):
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        valid.append(torch.as_tensor(1.0 - {skipped}))
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        done = terminated | truncated
        {after}
        log_probs.append(dist.log_prob(action))
        rewards.append(torch.as_tensor(reward))
        dones.append(torch.as_tensor(1.0 * done))
    returns, running = [], torch.zeros(1)
    for reward, ended in zip(reversed(rewards), reversed(dones)):
        running = reward + GAMMA * running * (1 - ended)
        returns.insert(0, running)
    loss = -(torch.stack(valid) * torch.stack(log_probs) * torch.stack(returns)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PPO = """
import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from torch.distributions import Categorical

STEPS = 6

def net(outputs):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))

envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
actor, critic = net(2), net(1)
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
obs, _ = envs.reset(seed=1)
obs = torch.as_tensor(obs, dtype=torch.float32)
done = torch.zeros(2)
while True:
    states, actions, old, rewards, dones, values = [], [], [], [], [], []
    for _ in range(STEPS):
        with torch.no_grad():
            dist = Categorical(logits=actor(obs))
            action = dist.sample()
            old.append(dist.log_prob(action))
            values.append(critic(obs).flatten())
        states.append(obs)
        actions.append(action)
        dones.append(done)
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        obs = torch.as_tensor(obs, dtype=torch.float32)
        rewards.append(torch.as_tensor(reward))
        done = torch.as_tensor(1.0 * (terminated | truncated))
    values.append(critic(obs).flatten().detach())
    dones.append(done)
    advantages, running = torch.zeros(STEPS, 2), torch.zeros(2)
    for t in reversed(range(STEPS)):
        alive = 1.0 - {alive}
        following = values[t + 1] * (1.0 - dones[t + 1]{last})
        running = rewards[t] + 0.99 * following - values[t] + 0.99 * 0.95 * alive * running
        advantages[t] = running
    flat = [torch.stack(each).flatten(0, 1) for each in (states, actions, old)]
    targets = (advantages + torch.stack(values[:-1])).flatten()
    order = np.random.permutation(STEPS * 2)
    for part in np.split(order, {parts}):
        s, a, o = (each[part] for each in flat)
        advantage = advantages.flatten()[part]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        dist = Categorical(logits=actor(s))
        ratio = (dist.log_prob(a) - o).exp()
        worse = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = -worse.mean() - 0.01 * dist.entropy().mean()
        loss = loss + 0.5 * (critic(s).flatten() - targets[part]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
RESET = "if done.any(): obs, _ = envs.reset(options={'reset_mask': done})"


def write(folder: Path, mode: str, skipped: str = "0 * done", after: str = "pass") -> Path:
    path = folder / "train.py"
    text = PROGRAM.format(mode=mode, skipped=skipped, after=after)
    path.write_text(text, encoding="utf-8")
    return path


def test_an_action_that_was_ignored_and_reinforced_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, "NEXT_STEP")
    report = audit_here(path, max_paths=40)
    assert report.verdict == "biased", report.text()
    (finding,) = report.findings
    assert finding.rule == "autoreset-step-trained-on"
    assert finding.line == line_of(path, "loss =")


@pytest.mark.parametrize(
    ("mode", "skipped", "after"),
    [
        ("NEXT_STEP", "done", "pass"),
        ("SAME_STEP", "0 * done", "pass"),
        ("DISABLED", "0 * done", RESET),
    ],
)
def test_every_mode_is_fine_without_that_step(
    tmp_path: Path, mode: str, skipped: str, after: str
) -> None:
    report = audit_here(write(tmp_path, mode, skipped, after), max_paths=40)
    assert not report.findings, report.text()
    assert report.verdict == "convention"
    assert {"gamma-t-dropped"} <= {convention.name for convention in report.conventions}


def test_minibatches_train_on_that_step_too(tmp_path: Path) -> None:
    """As CleanRL's ppo.py does with its own number of minibatches."""
    path = tmp_path / "train.py"
    path.write_text(PPO.format(alive="dones[t + 1]", last="", parts=2), encoding="utf-8")
    report = audit_here(path, max_paths=60)
    assert {finding.rule for finding in report.findings} == {
        "autoreset-step-trained-on", "truncation-as-termination",
    }, report.text()  # fmt: skip
    assert "in each minibatch" in " ".join(report.text().split())


def test_a_sum_that_goes_on_over_that_step(tmp_path: Path) -> None:
    """An advantage that only leaves out the value behind the batch."""
    path = tmp_path / "train.py"
    last = " * (t == STEPS - 1)"
    path.write_text(PPO.format(alive="0.0", last=last, parts=1), encoding="utf-8")
    report = audit_here(path, max_paths=60)
    assert {finding.rule for finding in report.findings} == {
        "autoreset-step-trained-on", "return-carried-over-episodes",
    }, report.text()  # fmt: skip


TRIED = """
one = gym.make("CartPole-v1")
one.reset(seed=0)
for _ in range(20):
    if any(one.step(one.action_space.sample())[2:4]):
        one.reset()
one.close()
trial = SyncVectorEnv([lambda: gym.make("CartPole-v1")])
trial.reset(seed=0)
for _ in range(20):
    trial.step(trial.action_space.sample())
ACTORS, PARTS = 16, 64
envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ACTORS)
"""


def test_a_long_batch_is_short_though_another_environment_was_tried_out(tmp_path: Path) -> None:
    """Whose number of parts is as small as can be: two steps would leave a sign of a mean."""
    path = tmp_path / "train.py"
    text = PPO.format(alive="dones[t + 1]", last="", parts="PARTS")
    text = text.replace("STEPS = 6", "STEPS = 128")
    for line in PPO.splitlines():
        if line.startswith("envs = "):
            text = text.replace(line, TRIED)
    for old, new in (
        ("torch.zeros(2)", "torch.zeros(ACTORS)"),
        ("torch.zeros(STEPS, 2)", "torch.zeros(STEPS, ACTORS)"),
        ("permutation(STEPS * 2)", "permutation(STEPS * ACTORS)"),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    report = el.audit_script(path, max_paths=60)
    assert {finding.rule for finding in report.findings} == {
        "autoreset-step-trained-on", "truncation-as-termination",
    }, report.text()  # fmt: skip
    assert "left out: the 20 steps that it plays" in " ".join(report.notes)
    assert "64 is 2 at" in " ".join(report.notes), report.notes
