"""Answers of another policy: the ratio of a loss, and what it does to far ones, are recognised."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.audit.faults import CHOICES
from eligibility.audit.faults.language import INSTEAD
from eligibility.audit.language import conventions
from eligibility.audit.language.regularisers import IN_REWARD, TERMS
from eligibility.audit.language.token_batch import TokenBatch
from eligibility.audit.reporting.report import AuditReport
from tests.audit.language.test_zoo import exact_residual
from tests.audit.language.zoo.off_policy import CORRECTIONS, clipped, of_tokens
from tests.audit.language.zoo.parts import (
    centred,
    k2,
    leave_one_out,
    of_answers,
    of_each_answer,
    raw,
    whitened,
)
from tests.audit.language.zoo.parts import of_tokens as over_tokens
from tests.audit.language.zoo.scoring import PATHS, SIZES

FEW = 600
KINDS = [
    ("old", raw, of_answers, set()),
    ("rollout", centred, over_tokens, {"mean-over-time"}),
    ("old", whitened, of_each_answer, {"mean-over-each-episode", "whitened"}),
    ("rollout", leave_one_out, of_answers, set()),
]
Loss = Callable[[TokenBatch], Tensor]


def loss_of(name: str, number: int) -> Loss:
    """A correction with the credit and the reduction of a kind."""
    _, credit, reduce, _ = KINDS[number]

    def loss(batch: TokenBatch) -> Tensor:
        advantages = credit(batch.rewards, batch.group_size)[:, None]
        return reduce(CORRECTIONS[name].term(batch, advantages) * batch.mask, batch)

    return loss


def audited(name: str, number: int) -> AuditReport:
    return el.audit_token_loss(loss_of(name, number), behaviour=KINDS[number][0], max_paths=FEW)


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, (place + k) % len(KINDS)) for place, name in enumerate(CORRECTIONS) for k in (0, 1)],
)
def test_ratio_and_gate_are_named(name: str, number: int) -> None:
    report = audited(name, number)
    wanted = CORRECTIONS[name]
    names = {convention.name for convention in report.conventions if convention.bias}
    expected = {wanted.ratio, wanted.gate, *KINDS[number][3]} - {"", "sequence-ratio"}
    assert names == expected
    if wanted.ratio:
        assert (report.verdict, report.findings) == ("convention", ())
        assert wanted.ratio in [convention.name for convention in report.conventions]
    else:
        assert [finding.rule for finding in report.findings] == ["off-policy-uncorrected"]


@pytest.mark.parametrize("name", ["CISPO", "IcePop", "masked by answers"])
def test_the_residual_off_policy_is_that_of_a_plain_loop(name: str) -> None:
    arguments = {"loss": loss_of(name, 0)}
    report = el.audit_token_loss(**arguments, **SIZES, behaviour="old", max_paths=PATHS)
    assert report.residual == pytest.approx(exact_residual(arguments, "old"), abs=1e-9)
    assert report.residual > 1e-3


def test_the_bias_of_truncation_alone_is_the_whole_bias_of_truncated_answers() -> None:
    report = audited("truncated answers", 0)
    biases = {c.name: c.bias for c in report.conventions}
    assert biases == {"sequence-ratio": 0.0, "truncated-importance": pytest.approx(report.residual)}
    assert report.residual > 0.01


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("PPO", (0.8, 1.2)), ("clip-higher", (0.8, 1.5)), ("IcePop", (0.75, 1.5))],
)
def test_the_bounds_lie_where_the_report_says(name: str, bounds: tuple[float, float]) -> None:
    rule = el.audit_token_loss(loss_of(name, 0), behaviour="old").rule
    given = re.findall(r"a bound between ([\d.]+) and ([\d.]+)", rule)
    assert len(given) == 2
    for (low, high), bound in zip(given, bounds, strict=True):
        assert float(low) <= bound <= float(high)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CISPO", "truncated where the token-ratio is below 0.75 or above 1.3"),
        ("SAPO", "steepness 1 where the advantage is positive and 1.5 where it is negative"),
        ("vetoed by a token", "masked where the smallest ratio of the answer is below"),
    ],
)
def test_the_rule_tells_what_becomes_of_far_ratios(name: str, said: str) -> None:
    assert said in el.audit_token_loss(loss_of(name, 0), behaviour="old").rule


@pytest.mark.parametrize("weighed", [False, True])
def test_a_divergence_beside_a_clipped_term_is_told_apart(weighed: bool) -> None:
    def loss(batch: TokenBatch) -> Tensor:
        terms = clipped(of_tokens(batch), batch.rewards[:, None])
        if weighed:
            delta = batch.ref_log_probs - batch.log_probs
            terms = terms + 0.3 * of_tokens(batch) * (delta.exp() - delta - 1)
        else:
            terms = terms + k2(batch, batch.log_probs)
        return of_answers(terms * batch.mask, batch)

    report = el.audit_token_loss(loss, behaviour="old", max_paths=FEW)
    assert report.verdict == "convention"
    assert {c.name for c in report.conventions} == {"token-ratio", "clipped", "kl-per-token"}
    assert report.components["kl-states"] < 0
    assert set(report.components) == {"reward", "kl-states"} or weighed


def test_a_ratio_of_the_policy_and_itself_is_named() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        ratio = (batch.log_probs - batch.log_probs.detach()).exp()
        return -(ratio * batch.rewards[:, None] * batch.mask).sum(1).mean()

    report = el.audit_token_loss(loss, behaviour="old", max_paths=FEW)
    assert [finding.rule for finding in report.findings] == ["ratio-always-one"]
    assert report.findings[0].line == loss.__code__.co_firstlineno + 1
    assert el.audit_token_loss(loss, max_paths=FEW).verdict == "unbiased"


def test_a_convention_at_the_temperature_of_the_draw_keeps_its_name() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        rows = (batch.logits / batch.temperature).log_softmax(-1)
        log_probs = rows.gather(-1, batch.tokens[..., None])[..., 0]
        return -(log_probs * batch.rewards[:, None] * batch.mask).sum() / batch.mask.sum()

    report = el.audit_token_loss(loss, temperature=0.7, max_paths=FEW)
    assert report.verdict == "convention"
    assert [c.name for c in report.conventions if c.bias] == ["mean-over-time"]


def test_every_convention_of_a_token_loss_is_known_with_what_to_write_instead() -> None:
    tables = (conventions._OF_DIVISOR, conventions._OF_RATIO, conventions._OF_GATE)
    named = {"whitened", "batch-scaled", "scaled"}
    named |= {name for table in tables for name in table.values()}
    signs = itertools.product([*TERMS, *IN_REWARD], (1.0, -1.0))
    terms = {conventions.convention_of_term(term, sign) for term, sign in signs} - {None}
    assert named | terms <= set(INSTEAD) <= set(CHOICES)


def test_every_convention_says_what_to_write_instead() -> None:
    conventions = [*audited("PPO", 2).conventions, *audited("CISPO", 1).conventions]
    assert all(convention.instead for convention in conventions)
    assert "without clipped: one step per batch" in " ".join(audited("PPO", 2).text().split())


def test_the_larger_of_the_clipped_objectives_is_a_fault() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        ratio = (batch.log_probs - batch.old_log_probs).exp()
        gain = batch.rewards[:, None]
        terms = torch.max(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        return -(terms * batch.mask).sum(1).mean()

    report = el.audit_token_loss(loss, behaviour="old", max_paths=FEW)
    assert [finding.rule for finding in report.findings] == ["clip-on-the-wrong-side"]
    assert report.findings[0].line == loss.__code__.co_firstlineno + 3
    assert report.verdict == "biased"
    assert {c.name for c in report.conventions} == {"token-ratio"}
