"""Small programs for the tests: one agent in plain style, with its parts to be exchanged."""

from __future__ import annotations

import runpy
from pathlib import Path

from eligibility.audit.examine import examine
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.source import read_source
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner

PROGRAM = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.9
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(1000):
    obs, _ = env.reset()
    log_probs, rewards, done = [], [], False
    while not done:
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + GAMMA * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    log_probs = torch.stack(log_probs)
    gamma_t = GAMMA ** torch.arange(len(returns))
    loss = -(gamma_t * log_probs * returns).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LOSS = "loss = -(gamma_t * log_probs * returns).sum()"


def write_program(folder: Path, old: str = "", new: str = "") -> Path:
    """The program, with one part exchanged, as a file."""
    assert old in PROGRAM
    path = folder / "program.py"
    path.write_text(PROGRAM.replace(old, new) if old else PROGRAM, encoding="utf-8")
    return path


def audit_here(path: Path, max_paths: int, samples: int = 12) -> AuditReport:
    """The audit of a script in this process, which has loaded already what scripts import."""
    source = read_source(path)
    return examine(
        CallableRunner(lambda: runpy.run_path(str(path), run_name="__main__"), source.four_tuple),
        max_paths,
        samples,
        lambda what, done, expected: None,
        lambda observed: AuditedProgram(observed, source, str(path), source.constants(())),
    )


def audited(
    folder: Path,
    *changes: tuple[str, str],
    text: str = PROGRAM,
    max_paths: int = 60,
    samples: int = 12,
) -> AuditReport:
    """The audit of a program after the changes."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return audit_here(path, max_paths, samples)


def line_of_source(path: str, text: str) -> int:
    """The same for the file of a module."""
    return line_of(Path(path), text)


def line_of(path: Path, text: str) -> int:
    """Number of the first line that contains ``text``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
