"""Follows names in small texts: each line that is found is marked in the text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from eligibility.audit.judgement.pointers import (
    action_line,
    element_line,
    scored_line,
    subtracted_line,
    update_call,
)
from eligibility.audit.judgement.source import Source

ACT = """
def act(obs):
    probs = net(obs)
    action = (probs > 0.5).float()  # here
    return action.item(), probs

while True:
    action, probs = act(obs)
    obs, reward, done, _ = env.step(action)
"""
DIRECT = """
action = logits.argmax(-1)  # here
obs, reward, done, _ = env.step(np.array(action))
optimizer.step()
"""
SCORED = """
log_probs.append(torch.log(probs[action]))  # here
entropies.append(-(probs * probs.log()).sum())
log_probs = torch.stack(log_probs)
loss = -(log_probs * returns).sum()  # from
"""
ELEMENT = """
first = table[0]
scores = dist.log_prob(action)  # from
log_probs.append(scores[0])  # here
"""
UPDATED = """
def learn():
    loss.backward()  # from

for episode in range(10):
    while not done:
        obs, reward, done, _ = env.step(action)
        learn()  # here
    learn()
"""
AFTER = """
def learn():
    loss.backward()  # from

for episode in range(10):
    while not done:
        obs, reward, done, _ = env.step(action)
    learn()
"""
SUBTRACTED = """
old = policy(states)
old = Categorical(logits=start(states)).log_prob(actions)  # here
ratio = torch.exp(new - old)  # from
"""
INLINE = """
new = policy(states)
ratio = (new - new.detach()).exp()  # from
"""
CASES: dict[str, tuple[str, Callable[[Source, int], int]]] = {
    "action of a function": (ACT, lambda source, line: action_line(source)),
    "action beside the step": (DIRECT, lambda source, line: action_line(source)),
    "no environment": (AFTER.replace("env.step(action)", "env()"), lambda s, line: action_line(s)),
    "what is collected": (SCORED, scored_line),
    "one element": (ELEMENT, element_line),
    "update in the loop of steps": (UPDATED, update_call),
    "update after the loop of steps": (AFTER, update_call),
    "what is subtracted": (SUBTRACTED, subtracted_line),
    "what is subtracted at once": (INLINE, subtracted_line),
}


@pytest.mark.parametrize("case", CASES)
def test_the_marked_line_is_found(case: str) -> None:
    text, find = CASES[case]
    lines = text.splitlines()
    marked = {mark: n for n, row in enumerate(lines, 1) for mark in ("here", "from")
              if row.endswith(f"# {mark}")}  # fmt: skip
    source = Source(Path("program.py"), ast.parse(text), tuple(lines))
    assert find(source, marked.get("from", 0)) == marked.get("here", 0)


@pytest.mark.parametrize(
    ("renewed", "kept"),
    [("self.log_probs = []", 0), ("del self.log_probs[:]", 0), ("log_probs = []", 3)],
)
def test_an_attribute_is_emptied_by_its_own_name_only(renewed: str, kept: int) -> None:
    text = (
        f"class Agent:\n  def act(self):\n    self.log_probs.append(1)\n"
        f"  def update(self):\n    {renewed}\n"
    )
    source = Source(Path("program.py"), ast.parse(text), tuple(text.splitlines()))
    assert source.kept_list_line() == kept
