"""The measured credit: M by replays against M by hand, what is read from it, and γ."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eligibility.audit.judgement.credit_shapes import SHAPES
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.measured import Measured, measure
from eligibility.audit.judgement.reading import (
    Reading,
    read,
    reinforce_credit,
    told_by,
)
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import survey
from tests.audit.writing import LOSS, audit_here, write_program
from tests.audit.zoo.inspection import audit_program, running
from tests.audit.zoo.mutations import MUTATIONS, mutants, mutate
from tests.audit.zoo.styles import STYLES, Program
from tests.audit.zoo.variants import variant

STYLE = {style.name: style for style in STYLES}
PROGRAMS = {program.name: program for program in mutants()}
MUTATION = {mutation.name: mutation for mutation in MUTATIONS}


def measured_of(program: Program | None) -> tuple[Measured, Reading | None]:
    """The credit of a program of the zoo, and its reading."""
    assert program is not None
    with running(program) as (runner, _):
        found = measure(survey(runner, 200, 20, lambda what, done, expected: None), runner)
    assert found is not None
    return found, next(iter(read(found)), None)


# differentiated by the graph; by differences; two episodes; with a critic
@pytest.mark.parametrize("style", ["flat", "numpy_sampling", "batch", "actor_critic"])
def test_the_credit_of_a_right_program_is_that_of_reinforce(style: str) -> None:
    found, reading = measured_of(variant(STYLE[style], "as-written", "exact"))
    right = reinforce_credit(found.evidence, 0.9)
    factor = float((found.credit * right).sum() / (right * right).sum())
    np.testing.assert_allclose(found.credit, factor * right, rtol=0.0, atol=1e-8)
    assert found.kind == "linear"
    assert reading is not None
    assert (reading.rule, reading.mean) == ("", "")
    assert reading.dated == pytest.approx(0.9, abs=1e-8)
    assert reading.discount == pytest.approx(0.9, abs=1e-8)


_NUMBERS = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
spread = torch.nn.Parameter(torch.zeros(1))
opt = torch.optim.Adam([*net.parameters(), spread], lr=1e-2)
while True:
    loss = 0.0
    for episode in range(2):
        obs, _ = env.reset()
        log_probs, rewards, done = [], [], False
        while not done:
            dist = Normal(net(torch.as_tensor(obs, dtype=torch.float32)), spread.exp())
            action = dist.sample()
            log_probs.append(dist.log_prob(action).sum())
            obs, reward, terminated, truncated, _ = env.step(action.numpy())
            rewards.append(reward)
            done = terminated or truncated
        for t, log_prob in enumerate(log_probs):
            loss = loss - log_prob * sum(rewards[t:])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_actions_at_their_mean_are_told_apart(tmp_path: Path) -> None:
    """Of most paths they are two thirds."""
    path = tmp_path / "program.py"
    path.write_text(_NUMBERS, encoding="utf-8")
    runner = CallableRunner(lambda: runpy.run_path(str(path), run_name="__main__"))
    base = survey(runner, 6, 6, lambda what, done, expected: None)
    long = [trace for trace in base.traces if len(trace.steps) == 6][:1]
    assert sum(draw.value == draw.loc for draw in long[0].draws) > 1
    found = measure(replace(base, traces=tuple(long)), runner)
    assert found is not None
    np.testing.assert_allclose(found.credit, reinforce_credit(found.evidence, 1.0), atol=1e-8)


def test_the_credit_of_reinforce_by_hand() -> None:
    found, _ = measured_of(variant(STYLE["flat"], "as-written", "exact"))
    assert reinforce_credit(found.evidence, 0.5).tolist() == [
        [1.0, 0.5, 0.25], [0.0, 0.5, 0.25], [0.0, 0.0, 0.25],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("style", "convention", "kind", "mean"),
    [("flat", "centred", "linear", "batch"), ("batch", "whitened", "rescaled", "batch")],
)
def test_what_is_subtracted_is_read(style: str, convention: str, kind: str, mean: str) -> None:
    found, reading = measured_of(variant(STYLE[style], "as-written", convention))
    assert found.kind == kind
    assert reading is not None
    assert (reading.rule, reading.mean) == ("", mean)
    assert reading.beta == pytest.approx(1.0, abs=1e-6)
    assert reading.discount == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize(
    ("style", "mutation", "rule"),
    [
        ("flat", "past-rewards", "rewards-so-far"),
        ("bernoulli", "reversed-returns", "reversed-returns"),
        ("gaussian", "shifted-rewards", "shifted-rewards"),
    ],
)
def test_a_fault_is_a_shape_of_the_credit(style: str, mutation: str, rule: str) -> None:
    _, reading = measured_of(mutate(STYLE[style], MUTATION[mutation]))
    assert reading is not None
    assert reading.rule == rule


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("masked/mask-in-acting-only", set()),  # outside the span: nothing can explain it
        ("masked/cross-entropy", {"returns-unused"}),
        ("actor_critic/integer-returns", {"integer-returns"}),
        ("worker/mean-times-sum", {""}),
        ("batch/carried-over-episodes", {"return-carried-over-episodes"}),
    ],
)
def test_a_credit_says_which_compositions_are_worth_trying(name: str, rules: set[str]) -> None:
    found, _ = measured_of(PROGRAMS[name])
    told = told_by(found, read(found))
    assert told is not None
    assert told.rules == rules
    assert told.coupled == (name == "worker/mean-times-sum")


def test_rewards_that_are_cut_to_integers_are_told_without_a_composition() -> None:
    """Whole episodes' scores less the mean of the others': the catalogue has no such thing."""
    report = audit_program(PROGRAMS["rloo/integer-scores"])
    assert [finding.rule for finding in report.findings] == ["integer-returns"]


def test_a_shape_of_the_credit_is_named_without_a_composition() -> None:
    """The powers of γ are reversed with the returns."""
    report = audit_program(PROGRAMS["functional/reversed-returns"])
    assert [finding.rule for finding in report.findings] == ["reversed-returns"]


def told(folder: Path, *changes: tuple[str, str]) -> AuditReport:
    """The report of the plain program with some of its text exchanged."""
    path = write_program(folder)
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return audit_here(path, 60)


def test_the_discount_is_what_the_program_does(tmp_path: Path) -> None:
    halved = told(
        tmp_path, ("GAMMA = 0.9", "GAMMA = 1.0"), (LOSS, LOSS + "\n    loss = 0.5 * loss")
    )
    assert (halved.verdict, halved.discount) == ("unbiased", 1.0), halved.text()
    assert halved.rule == "0.5 × reward-to-go (γ = 1)"
    assert "γ = 1 (measured: the powers in its weights)" in halved.text(300)
    # a factor is no discount, and neither is a constant that nothing reads
    factor = told(
        tmp_path, ("GAMMA = 0.9", "GAMMA = 1.0"), (LOSS, LOSS.replace("(gamma", "(0.99 * gamma"))
    )
    assert (factor.verdict, factor.discount) == ("unbiased", 1.0)
    unused = told(tmp_path, ("GAMMA = 0.9", "EPS, OTHER, GAMMA = 1e-8, 0.99, 9 / 10"))
    assert (unused.verdict, round(unused.discount, 9)) == ("unbiased", 0.9)


def test_the_report_shows_the_credit_beside_that_of_reinforce(tmp_path: Path) -> None:
    report = told(tmp_path, (LOSS, "loss = -(gamma_t * log_probs * torch.tensor(rewards)).sum()"))
    assert report.verdict == "biased"
    assert report.credit is not None
    given, right = np.array(report.credit.given), np.array(report.credit.reinforce)
    np.testing.assert_allclose(given, np.diag(np.diag(right)), atol=1e-9)
    assert "0.000 (0.900)" in report.text()
    assert "each in units of its largest" in report.html()


def test_every_credit_is_read_from_what_the_rewards_move() -> None:
    """A fault that only the list of credits knows is named wrongly where its credit is measured."""
    read = {rule for rule, _ in SHAPES}
    # A factor on the eligibility, no effect of any reward, and steps have no matrix of their own.
    otherwise = {
        "probability-not-log-probability", "last-step-dropped", "only-last-step", "returns-unused",
        "integer-returns",
    }  # fmt: skip
    missing = {credit.rule for credit in CREDITS} - read
    assert missing == otherwise, "add its matrix to SHAPES of judgement/credit_shapes.py"
