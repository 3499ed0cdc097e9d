"""Programs whose environment is a class of their own, derived from nothing of gymnasium's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here, line_of

CORRIDOR = """
import random
import numpy as np
import torch
from torch.distributions import Categorical

class Corridor:
    WORDS = ["left", "right"]

    def __init__(self):
        self.done = False
        self.reset()

    def reset(self):
        self.place, self.done = random.randint(1, 3), False
        return {first}

    def step(self, action):
        self.place += {moves}[action]
        self.done = self.place in (0, 4)
        return {after}

    def seen(self):
        return {seen}
"""
AGENT = """
env = Corridor()
net = {net}
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(500):
    {begin} = env.reset()
    done, cut, log_probs, rewards = False, False, [], []
    while not {ended}:
        dist = Categorical(logits=net(torch.as_tensor(obs{dtype})))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        {unpacked} = env.step({acted})
        rewards.append(reward)
    returns = [sum(rewards[t:]) for t in range(len(rewards))]
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RIGHT = "-sum(l * g for l, g in zip(log_probs, returns))"
WRONG = "-torch.stack(log_probs).mean() * sum(returns)"
EMBEDDED = "torch.nn.Sequential(torch.nn.Embedding(5, 8), torch.nn.Linear(8, 2))"
LINEAR = "torch.nn.Linear(5, 2)"
THREE = {
    "moves": "(-1, 1)",
    "acted": "action.item()",
    "first": "self.seen()",
    "after": "self.seen(), float(self.place == 4), self.done",
    "seen": "self.place",
    "net": EMBEDDED,
    "begin": "obs",
    "ended": "done",
    "dtype": "",
    "unpacked": "obs, reward, done",
    "loss": RIGHT,
}
ONE_HOT = {
    "seen": "np.eye(5)[self.place].astype(np.float32)",
    "after": "self.seen(), 1.0 * self.done, self.done, {}",
    "unpacked": "obs, reward, done, _",
    "net": LINEAR,
}
GYMNASIUM = {
    "first": "self.seen(), {}",
    "after": "self.seen(), 1.0, self.done, False, {}",
    "begin": "obs, _",
    "unpacked": "obs, reward, done, cut, _",
    "ended": "(done or cut)",
}
CELLS = {
    "seen": "(self.place, 1)",
    "net": "torch.nn.Sequential(torch.nn.Embedding(5, 8), torch.nn.Flatten(0), "
    "torch.nn.Linear(16, 2))",
}
LISTED = {"seen": "[float(self.place), 1.0]", "net": "torch.nn.Linear(2, 2)"}
LISTED |= {"dtype": ", dtype=torch.float32"}
TENSOR = {"seen": "torch.nn.functional.one_hot(torch.tensor(self.place), 5).float()"}
TENSOR |= {"net": LINEAR}
WORDS = {"moves": "{'left': -1, 'right': 1}", "acted": "Corridor.WORDS[action.item()]"}
ZERO_OR_ONE = {"after": "self.seen(), 1.0, int(self.done), {}", "unpacked": "obs, reward, done, _"}
ATTRIBUTE = {"ended": "env.done"}
FORMS = {
    "a number": {},
    "four values of an array": ONE_HOT,
    "five values": GYMNASIUM,
    "a tuple of numbers": CELLS,
    "a list": LISTED,
    "a tensor": TENSOR,
    "words as actions": WORDS,
    "an end that is 0 or 1": ZERO_OR_ONE,
    "an attribute that says the end": ATTRIBUTE,
}


def _written(folder: Path, changed: dict[str, str], head: str = CORRIDOR) -> Path:
    parts, text = THREE | changed, head + AGENT
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_the_probe_answers_in_the_form_of_the_class(form: str, tmp_path: Path) -> None:
    report = audit_here(_written(tmp_path, FORMS[form]), 60)
    assert report.verdict in ("unbiased", "convention"), report
    assert report.exhaustive
    assert "reward-to-go" in report.rule
    assert any("the program's own class Corridor" in note for note in report.notes)


@pytest.mark.parametrize("form", ["a number", "four values of an array"])
def test_a_fault_is_named_on_its_line(form: str, tmp_path: Path) -> None:
    path = _written(tmp_path, FORMS[form] | {"loss": WRONG})
    report = audit_here(path, 60)
    assert report.verdict == "biased", report
    assert [f.rule for f in report.faults] == ["mean-log-prob-times-sum-of-returns"]
    assert report.faults[0].line == line_of(path, "loss = ")


@pytest.mark.parametrize("made_in", ["__init__", "reset"])
def test_a_class_around_an_environment_of_gymnasium_stays(made_in: str, tmp_path: Path) -> None:
    head = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

class Corridor:
    def __init__(self):
        self.env = {__init__}

    def reset(self):
        self.env = self.env or {reset}
        return self.env.reset()[0]

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, 2.0 * reward, terminated or truncated
"""
    made = {"__init__": "None", "reset": "None"} | {made_in: 'gym.make("CartPole-v1")'}
    changed = made | {"net": "torch.nn.Linear(4, 2)", "dtype": ", dtype=torch.float32"}
    report = audit_here(_written(tmp_path, changed, head), 60)
    assert "2 ×" in report.rule, report


@pytest.mark.parametrize(
    ("after", "unpacked"),
    [
        ("self.seen(), 1.0", "obs, reward"),
        ("1.0, self.seen(), self.done", "reward, obs, done"),
        ("self.seen(), self.done, 1.0", "obs, done, reward"),
    ],
)
def test_a_step_that_is_no_transition_is_refused(after: str, unpacked: str, tmp_path: Path) -> None:
    changed = ATTRIBUTE | {"after": after, "unpacked": unpacked}
    report = audit_here(_written(tmp_path, changed), 60)
    assert report.verdict == "inconclusive"
    assert "before it creates an environment" in report.summary
