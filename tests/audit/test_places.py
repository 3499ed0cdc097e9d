"""Faults are placed by what the numbers of a statement follow, whatever the program calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.zoo.inspection import audit_program
from tests.audit.zoo.styles import STYLES, Program, untagged

# No name in it tells what it holds.
PROGRAM = """
import gymnasium
import torch

q = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
z = torch.optim.Adam(q.parameters())
w = gymnasium.make("CartPole-v1")
for _ in range(9):
    a, b, done = [], [], False
    x, _ = w.reset()
    while not done:
        d = torch.distributions.Categorical(logits=q(torch.as_tensor(x, dtype=torch.float32)))
        u = d.sample()
        x, y, e, f, _ = w.step(u.item())
        done = e or f
        a.append(d.log_prob(u))
        b.append(y)
    c, m = [], 0.0
    for y in b[::-1]:
        m = y + 0.9 * m
        c.insert(0, m)
    v = torch.tensor(c)
    k = torch.stack(a)
    n = 0.9 ** torch.arange(len(c))
    h = -(n * k * v).sum()
    z.zero_grad()
    h.backward()
    z.step()
"""
FAULTS = {
    "rewards-so-far": ("for y in b[::-1]:\n        m = y + 0.9 * m\n        c.insert(0, m)",
                       "for y in b:\n        m = y + 0.9 * m\n        c.append(m)",
                       "m = y + 0.9 * m"),
    "reversed-returns": ("c.insert(0, m)", "c.append(m)", "c.append(m)"),
    "immediate-reward": ("m = y + 0.9 * m", "m = y", "m = y"),
    "integer-returns": ("v = torch.tensor(c)", "v = torch.tensor(c).long()", ".long()"),
    "no-gradient": ("k = torch.stack(a)", "k = torch.tensor(a, requires_grad=True)", "k = torch"),
    "broadcast": ("n * k * v)", "k * v[:, None])", "h = -"),
    "wrong-sign": ("h = -(", "h = (", "h = ("),
    "mean-log-prob-times-sum-of-returns": (
        "(n * k * v).sum()", "k.mean() * v.sum()", "h = -k.mean()"
    ),
    "shifted-rewards": ("v = torch.tensor(c)", "v = torch.tensor(c).roll(-1); v[-1] = 0.0",
                        ".roll(-1)"),
}  # fmt: skip


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_found_where_names_tell_nothing(rule: str) -> None:
    old, new, line = FAULTS[rule]
    assert PROGRAM.count(old) == 1
    text = PROGRAM.replace(old, new)
    report = audit_program(Program(rule, STYLES[0], text))
    found = next(finding for finding in report.findings if finding.rule == rule)
    assert Path(found.file).name == "program.py"
    assert line in text.splitlines()[found.line - 1]


def test_a_critic_that_looks_at_the_policy_is_no_attached_advantage() -> None:
    """Its gradient moves with every tensor of the policy, as that of an attached advantage does."""
    style = next(style for style in STYLES if style.name == "actor_critic")
    text = untagged(style.text).replace(
        "values = critic(states)", "values = critic(torch.cat([states, actor(states).detach()], 1))"
    )
    text = text.replace(
        "critic = nn.Sequential(nn.Linear(4,", "critic = nn.Sequential(nn.Linear(6,"
    )
    report = audit_program(Program("looking", style, text))
    assert report.verdict == "inconclusive", report.text()
    assert [(f.rule, f.severity) for f in report.findings] == [
        ("advantage-not-detached", "warning")
    ]
    attached = text.replace("values.detach()", "values")
    report = audit_program(Program("attached", style, attached))
    assert report.verdict == "biased"
    assert [f.rule for f in report.faults] == ["advantage-not-detached"]


def test_the_program_without_a_fault_is_acquitted() -> None:
    assert audit_program(Program("clean", STYLES[0], PROGRAM)).verdict == "unbiased"
