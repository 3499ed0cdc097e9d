"""Faults in styles that the zoo does not have: the finding is on the line that a reader points at.

Each program is folders and files as people write them; ``# fault`` marks the line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eligibility as el

MAIN = """
import gymnasium as gym
import torch
from torch import nn
from {module} import Learner

env = gym.make("CartPole-v1")
learner = Learner(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)),
                  nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
for _ in range(50):
    state, _ = env.reset()
    over = False
    while not over:
        state = torch.as_tensor(state, dtype=torch.float32)
        dist = torch.distributions.Categorical(logits=learner.pi(state))
        action = dist.sample()
        following, reward, terminated, truncated, _ = env.step(action.item())
        over = terminated or truncated
        learner.see(state, dist.log_prob(action), reward, following, over)
        state = following
    learner.end()
"""
# The critic learns first, by a squared error of the same advantages.
STEP_BY_STEP = """
import time

import torch
import torch.nn.functional as F


class Learner:
    def __init__(self, pi, v):
        self.pi, self.v = pi, v
        self.actor = torch.optim.Adam(pi.parameters(), lr=1e-3)
        self.critic = torch.optim.Adam(v.parameters(), lr=1e-3)

    def see(self, state, log_prob, reward, following, done):
        now = time.time()  # differs between any two runs, and follows nothing
        value = self.v(state)
        ahead = self.v(torch.as_tensor(following, dtype=torch.float32))
        mask = 1 - int(done)
        self.latest = {"value": value, "reward": reward}
        goal = reward + 0.9 * ahead.detach() * mask  # fault
        critic_loss = F.smooth_l1_loss(value, goal)
        self.critic.zero_grad()
        critic_loss.backward()
        actor_loss = -((goal - value).detach() * log_prob).sum()
        self.actor.zero_grad()
        actor_loss.backward()
        self.critic.step()
        self.actor.step()

    def end(self):
        pass
"""
SPREAD = """
import torch


class Learner:
    def __init__(self, pi, v):
        self.pi, self.v = pi, v
        self.actor = torch.optim.Adam(pi.parameters(), lr=1e-3)
        self.critic = torch.optim.Adam(v.parameters(), lr=1e-3)
        self.seen = []

    def see(self, state, log_prob, reward, following, done):
        self.seen.append((log_prob, self.v(state), reward))

    def end(self):
        log_probs, values, rewards = zip(*self.seen)
        self.seen = []
        goals = []
        for reward in reversed(rewards):
            goals.insert(0, reward + 0.9 * (goals[0] if goals else 0.0))
        advantage = torch.tensor(goals)[:, None] - torch.stack(values)
        critic_loss = advantage.pow(2).mean()
        self.critic.zero_grad()
        critic_loss.backward()
        self.critic.step()
        actor_loss = (-torch.stack(log_probs) * advantage.detach()).mean()  # fault
        self.actor.zero_grad()
        actor_loss.backward()
        self.actor.step()
"""
FORWARDS = """
import torch


class Learner:
    def __init__(self, pi, v):
        self.pi, self.rewards, self.scores = pi, [], []
        self.optimizer = torch.optim.Adam(pi.parameters(), lr=1e-3)

    def see(self, state, log_prob, reward, following, done):
        self.rewards.append(0.0 if done else reward)  # fault
        self.scores.append(log_prob)

    def end(self):
        total, loss = 0.0, 0.0
        for score, reward in zip(self.scores[::-1], self.rewards[::-1]):
            total = reward + 0.9 * total
            loss = loss - score * total
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.rewards, self.scores = [], []
"""
UNSURE = """
import torch


class Learner:
    def __init__(self, pi, v):
        self.pi, self.states, self.scores, self.rewards = pi, [], [], []
        self.optimizer = torch.optim.Adam(pi.parameters(), lr=1e-3)

    def see(self, state, log_prob, reward, following, done):
        self.states.append(state)
        self.scores.append(log_prob)
        self.rewards.append(reward)

    def end(self):
        total, goals = 0.0, []
        for reward in reversed(self.rewards):
            total = reward + 0.9 * total
            goals.insert(0, total)
        actor_loss = -(torch.stack(self.scores) * torch.tensor(goals)).sum()
        log_policy = torch.log_softmax(self.pi(torch.stack(self.states)), dim=1)
        entropy = (log_policy * log_policy.exp()).sum()
        loss = actor_loss - 0.1 * entropy  # fault
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.pi.parameters(), 5.0)
        self.optimizer.step()
        self.states, self.scores, self.rewards = [], [], []
"""
# The values behind an episode's end are left out before any reward meets them.
MASKED = """
import torch


class Learner:
    def __init__(self, pi, v):
        self.pi, self.v, self.seen = pi, v, []
        self.actor = torch.optim.Adam(pi.parameters(), lr=1e-3)
        self.critic = torch.optim.Adam(v.parameters(), lr=1e-3)

    def see(self, state, log_prob, reward, following, done):
        self.seen.append((state, log_prob, reward, torch.tensor(following), float(done)))

    def end(self):
        states, log_probs, rewards, following, over = zip(*self.seen)
        self.seen = []
        rewards, over = torch.tensor([rewards, over])
        values = self.v(torch.stack(states)).squeeze(-1)
        ahead = self.v(torch.stack(following)).squeeze(-1).detach()
        ahead = ahead * (1.0 - over)  # fault
        errors = rewards + 0.9 * ahead - values
        loss = -(torch.stack(log_probs) * errors.detach()).sum() + errors.pow(2).sum()
        self.actor.zero_grad()
        self.critic.zero_grad()
        loss.backward()
        self.actor.step()
        self.critic.step()
"""
# An unexplained gradient: where the first number is that no reward-to-go has.
FILLED = """
import numpy as np
import torch


class Learner:
    def __init__(self, pi, v):
        self.pi, self.v, self.seen = pi, v, []
        self.actor = torch.optim.Adam(pi.parameters(), lr=1e-3)
        self.critic = torch.optim.Adam(v.parameters(), lr=1e-2)

    def see(self, state, log_prob, reward, following, done):
        self.seen.append((state, log_prob, reward))

    def end(self):
        states, log_probs, rewards = zip(*self.seen)
        self.seen, goals = [], np.zeros(len(rewards))
        for t in reversed(range(len(rewards))):
            goals[t] = rewards[t] + (0.9 * goals[t + 1] if t + 1 < len(rewards) else 0.0)
        goals = torch.tensor(goals, dtype=torch.float)
        states = torch.stack(states)
        value_loss = (self.v(states).squeeze(-1) - goals).pow(2).mean()
        self.critic.zero_grad()
        value_loss.backward()
        self.critic.step()
        with torch.no_grad():
            values = self.v(states)
        advantages = goals - values  # fault
        loss = -(torch.stack(log_probs) * advantages).sum()
        self.actor.zero_grad()
        loss.backward()
        self.actor.step()
"""
FIELD = [
    ("unexplained or broadcast", FILLED),
    ("entropy-sign", UNSURE),
    ("truncation-as-termination", STEP_BY_STEP),
    ("truncation-as-termination", MASKED),
    ("broadcast", SPREAD),
    ("last-reward-dropped", FORWARDS),
    ("bootstrapped-after-termination", STEP_BY_STEP.replace(" * mask ", " ")),
]


@pytest.mark.parametrize(("rules", "text"), FIELD, ids=[rules for rules, _ in FIELD])
def test_the_line_of_a_module_is_blamed(rules: str, text: str, tmp_path: Path) -> None:
    module = tmp_path / "learner.py"
    module.write_text(text)
    (tmp_path / "main.py").write_text(MAIN.format(module="learner"))
    report = el.audit_script(tmp_path / "main.py")
    found = next(finding for finding in report.findings if finding.rule in rules.split(" or "))
    assert (found.file, found.line) == (str(module), _marked(text)), report.text()


CELLS = (
    "import gymnasium as gym\nimport torch\n",
    """
net = torch.nn.Linear(4, 2)
adam = torch.optim.Adam(net.parameters())
""",
    """
def weigh(scores, numbers):
    return -(torch.stack(scores) * numbers).sum()
""",
    """
env = gym.make("CartPole-v1")
for _ in range(50):
    state, _ = env.reset()
    over, scores, rewards = False, [], []
    while not over:
        dist = torch.distributions.Categorical(logits=net(torch.as_tensor(state)))
        action = dist.sample()
        state, reward, terminated, truncated, _ = env.step(action.item())
        scores.append(dist.log_prob(action))
        rewards.append(reward)
        over = terminated or truncated
    steps = range(len(rewards))
    numbers = [sum(0.9**k * r for k, r in enumerate(rewards[t + 1 :])) for t in steps]  # fault
    loss = weigh(scores, torch.tensor(numbers))
    adam.zero_grad()
    loss.backward()
    adam.step()
""",
)


def test_the_line_of_a_cell_is_blamed(tmp_path: Path) -> None:
    book = tmp_path / "lesson.ipynb"
    kind = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [kind | {"source": text} for text in CELLS]
    book.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    report = el.audit_script(book)
    found = next(finding for finding in report.findings if finding.rule == "shifted-rewards")
    assert (found.file.rpartition("#")[2], found.line) == ("cell-4", _marked(CELLS[3]))


def _marked(text: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if "# fault" in line)
