"""Lines found by the shape of a program: each line that is found is marked in the text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from eligibility.audit.judgement import source_patterns
from eligibility.audit.judgement.losses import find_loss
from eligibility.audit.judgement.pointers import action_line, scored_line
from eligibility.audit.judgement.source import Source

METHOD = """
class Learner:
    def loss(self, batch):
        policy_loss = -(self.log_prob(batch) * batch.returns).sum()  # here
        value_loss = self.error(batch)
        return policy_loss + 0.5 * value_loss

    def step(self, batch):
        loss = self.loss(batch) / 2
        loss.backward()  # from
"""
DICTIONARY = """
def objective(batch):
    log_probs = score(batch)
    return -(log_probs * batch.returns).sum()  # here

def training_step(batch):
    loss = objective(batch)
    return {"seen": len(batch), "loss": loss}

def fit():
    output = training_step(batch)
    output["loss"].backward()  # from
"""
UNPACKED = """
def compute(batch):
    loss = -(log_probs * returns).sum()  # here
    return entropy, loss

entropy, loss = compute(batch)
loss.backward()  # from
"""
SUM = """
pg_loss = -(advantages * ratio).mean()  # here
loss = pg_loss - 0.01 * entropy + v_loss * 0.5
loss.backward()  # from
"""
AUTOGRAD = """
def objective(params):
    return (log_prob(params) * returns).sum()  # here

value = objective(params)
for p, g in zip(params, torch.autograd.grad(value, params)):
    p.grad = -g
opt.step()
"""
TRANSFORM = """
def objective(params):
    return (log_prob(params) * returns).sum()  # here

update = torch.func.grad(objective)(params)
"""
BY_HAND = """
scores = np.vstack(dlogps)
grad = policy_backward(inputs, epdlogp)  # here
for k, v in model.items():
    v.grad = torch.from_numpy(-grad[k])
optimizer.step()
"""
STEP_ONLY = """
fill(model)
optimizer.step()  # here
"""
FAILED = """
loss = -(log_probs * returns).sum()  # here
loss.backward()
optimizer.step()
"""
NO_MOVED = """
old = log_probs[:-1]
returns = torch.tensor(gs[1:] + [0.0])  # here
loss = -(log_probs * returns).sum()  # from
"""
SHORTENED = """
for log_prob, delta in zip(log_probs[:-1], deltas):  # here
    loss += log_prob * delta  # from
"""
MERGED = """
obs, reward, terminated, truncated, _ = env.step(action)
over = terminated or truncated
stops.append(float(terminated or truncated))  # here
while not over:
    pass
"""
NOT_MERGED = """
obs, reward, terminated, truncated, _ = env.step(action)
done = terminated or truncated
target = reward + gamma * critic(obs) * (1 - done)
if done:
    reset()
"""
RENAMED = """
obs, reward, terminated, truncated, _ = env.step(action)
over = terminated or truncated
target = reward + gamma * critic(obs) * (1 - over)
done = over
while not done:
    pass
"""
KEPT = """
for iteration in range(9):
    batch = [] if iteration == 0 else batch  # here
"""
CHOSEN = """
def act(state):
    weights = net(state)
    return torch.argmax(weights).item()  # here

action = act(state)
clipped = np.clip(action, -1, 1)
env.step(clipped)
"""
STACKED = """
dlogps.append(action - prob)  # here
epdlogp = np.vstack(dlogps)
epdlogp *= returns
grad = policy_backward(inputs, epdlogp)  # from
"""


def built(source: Source, line: int) -> int:
    return find_loss(source, line).built


def ended(source: Source, line: int) -> int:
    return source_patterns.written("truncation-as-termination", source)


CASES: dict[str, tuple[str, Callable[[Source, int], int]]] = {
    "in a method": (METHOD, built),
    "under a key of what is returned": (DICTIONARY, built),
    "at a place of what is returned": (UNPACKED, built),
    "the policy's part of a sum": (SUM, built),
    "autograd.grad": (AUTOGRAD, built),
    "torch.func.grad": (TRANSFORM, built),
    "by hand": (BY_HAND, built),
    "a step alone": (STEP_ONLY, built),
    "a backward that failed": (FAILED, built),
    "no gradient at all": ("print(1)", built),
    "shortened": (SHORTENED, source_patterns.shortened_line),
    "flags merged for learning": (MERGED, ended),
    "flags merged for the loop": (NOT_MERGED, ended),
    "flags merged for the loop under another name": (RENAMED, ended),
    "kept on a condition": (KEPT, lambda source, line: source_patterns.kept_choice_line(source)),
    "replaced": ("batch = []", lambda source, line: source_patterns.kept_choice_line(source)),
    "chosen where it is returned": (CHOSEN, lambda source, line: action_line(source)),
    "stacked scores": (STACKED, scored_line),
}


@pytest.mark.parametrize("case", CASES)
def test_the_marked_line_is_found(case: str) -> None:
    text, find = CASES[case]
    lines = text.splitlines()
    marked = {
        mark: number
        for number, row in enumerate(lines, 1)
        for mark in ("here", "from")
        if mark in row.partition("# ")[2].split()
    }
    source = Source(Path("program.py"), ast.parse(text), tuple(lines))
    assert find(source, marked.get("from", 0)) == marked.get("here", 0)


def test_the_sign_is_given_where_the_gradient_is() -> None:
    source = Source(Path("program.py"), ast.parse(AUTOGRAD), ())
    assert AUTOGRAD.splitlines()[find_loss(source, 0).signed - 1].strip() == "p.grad = -g"
