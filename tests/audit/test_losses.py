"""Lines found by the shape of a program: each line that is found is marked in the text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from eligibility.audit.judgement import clues
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
PRODUCT = """
def objective(states):
    log_probs = scores(states) * returns  # here
    return log_probs.mean()  # from
"""
INPLACE = """
epdlogp = np.vstack(dlogps)
epdlogp *= returns  # here
grad = policy_backward(inputs, epdlogp)  # from
"""
NO_PRODUCT = """
log_probs = scores(states)
loss = log_probs.mean()  # from here
"""
MOVED = """
old = log_probs[:-1]
returns = torch.tensor(gs[1:] + [0.0])  # here
loss = -(log_probs * returns).sum()  # from
"""
ROLLED = """
returns = np.roll(returns, -1)  # here
loss = -(log_probs * returns).sum()  # from
"""
SHORTENED = """
for log_prob, delta in zip(log_probs[:-1], deltas):  # here
    loss += log_prob * delta  # from
"""
REVERSED = """
for t in range(n)[::-1]:
    returns.appendleft(gamma * last + rewards[t])  # from
for log_prob, value in zip(log_probs, reversed(returns)):  # here
    loss = loss - log_prob * value
"""
APPENDED = """
for t in range(n)[::-1]:
    returns.append(gamma * last + rewards[t])  # from here
for log_prob, value in zip(log_probs, reversed(returns)):
    loss = loss - log_prob * value
"""
FLIPPED = """
returns = rewards.flip(0).cumsum(0)  # here
"""
FORWARD = """
for reward in reward_list:  # here
    running = reward + gamma * running
    returns.append(running)
loss = -(log_probs * returns).sum()  # from
"""
FORWARD_BY_LIST = """
for t in range(n):  # here
    last = returns[-1] if returns else 0
    returns.append(gamma * last + rewards[t])
loss = -(log_probs * returns).sum()  # from
"""
DIVIDED = """
std = log_std.exp()
advantages = (scores - scores.mean()) / scores.std()  # here
loss = -(log_probs * advantages).sum()  # from
"""
NEXT_VALUE = """
delta = rewards[t] + args.gamma * nextvalues[t] - values[t]  # here
loss = -(log_probs * delta).sum()  # from
"""
NO_GRAD = """
def act(obs):
    with torch.no_grad():
        return policy(obs)

def objective(states):
    with torch.no_grad():  # here
        logits = policy(states)
    return -logits.log_softmax(-1).mean()  # from
"""
KEPT = """
for iteration in range(9):
    batch = [] if iteration == 0 else batch  # here
"""
REPEATED = """
def train(batch):
    loss.backward()  # from

while True:
    batch = rollout()
    for _ in range(3):
        train(batch)  # here
"""
LOOPED = """
def train(batch):
    for _ in range(3):
        loss.backward()  # from

for _ in range(3):
    train(batch)
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
    "product before": (PRODUCT, clues.product_line),
    "product in place": (INPLACE, clues.product_line),
    "no product": (NO_PRODUCT, clues.product_line),
    "moved": (MOVED, clues.rolled_line),
    "rolled": (ROLLED, clues.rolled_line),
    "shortened": (SHORTENED, clues.shortened_line),
    "forward": (FORWARD, clues.forward_sum_line),
    "forward, by the list's last": (FORWARD_BY_LIST, clues.forward_sum_line),
    "reversed after it was in order": (REVERSED, lambda s, n: clues.reversing_line(s, n, 0)),
    "reversed to be in order": (APPENDED, lambda s, n: clues.reversing_line(s, n, 0)),
    "flipped": (FLIPPED, lambda s, n: clues.reversing_line(s, n, 9)),
    "divided": (DIVIDED, clues.divided_line),
    "next value": (NEXT_VALUE, clues.next_value_line),
    "no_grad": (NO_GRAD, clues.ungraded_line),
    "no no_grad": (PRODUCT.replace("# here", ""), clues.ungraded_line),
    "kept on a condition": (KEPT, lambda source, line: clues.kept_choice_line(source)),
    "made anew": ("batch = []", lambda source, line: clues.kept_choice_line(source)),
    "repeated call": (REPEATED, clues.repeated_call_line),
    "repeated within": (LOOPED, clues.repeated_call_line),
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


@pytest.mark.parametrize(
    ("line", "passes"), [(3, True), (4, True), (5, True), (6, False), (7, False)]
)
def test_a_line_that_only_takes_along(line: int, passes: bool) -> None:
    text = (
        "\nwhile True:\n    obs, reward = env.step(action)\n    obs, rewards = zip(*steps)\n"
        "    rewards.append(reward)\n    total = reward + total\nrewards.append(0.0)\n"
    )
    source = Source(Path("program.py"), ast.parse(text), tuple(text.splitlines()))
    assert clues.passes_on(source, line) == passes


def test_the_sign_is_given_where_the_gradient_is() -> None:
    source = Source(Path("program.py"), ast.parse(AUTOGRAD), ())
    assert AUTOGRAD.splitlines()[find_loss(source, 0).signed - 1].strip() == "p.grad = -g"


@pytest.mark.parametrize("anew", [True, False])
def test_a_sum_that_its_loop_sets_back_may_forget(anew: bool) -> None:
    text = (
        "for t in range(n)[::-1]:\n    if reward[t]:\n"
        f"        {'running' if anew else 'other'} = 0\n    running = reward[t] + 0.9 * running\n"
    )
    source = Source(Path("program.py"), ast.parse(text), tuple(text.splitlines()))
    assert clues.starts_anew(source, 4) == anew
