"""Faults that trainers had, as small as they can be written: each has its name."""

from __future__ import annotations

import pytest
from torch import Tensor

import eligibility as el
from eligibility.audit.language.token_batch import TokenBatch
from tests.audit.language.zoo.parts import leave_one_out

FEW = 600


def loss_of(batch: TokenBatch, advantages: Tensor) -> Tensor:
    """REINFORCE with advantages [B] or [B, T]."""
    weights = advantages if advantages.ndim == 2 else advantages[:, None]
    return -(batch.log_probs * weights * batch.mask).sum(1).mean()


@pytest.mark.parametrize("scaled", [False, True])
def test_a_statistic_of_groups_along_the_wrong_axis_is_a_broadcast(scaled: bool) -> None:
    def loss(batch: TokenBatch) -> Tensor:
        groups = batch.rewards.view(-1, batch.group_size)
        advantages = groups - groups.mean(1)  # [P, G] - [P]
        if scaled:
            advantages = advantages / (advantages**2).mean(1).sqrt().clamp(min=1e-8)
        return loss_of(batch, advantages.flatten())

    report = el.audit_token_loss(loss, max_paths=FEW)
    (finding,) = report.findings
    assert finding.rule == "broadcast"
    assert finding.severity == ("fault" if scaled else "warning")  # with as many groups as answers
    assert (report.verdict, report.residual > 0.01) == (
        ("biased", True) if scaled else ("unbiased", False)
    )


@pytest.mark.parametrize("scaled", [False, True])
def test_rewards_read_as_if_prompts_came_by_turns_are_those_of_other_answers(scaled: bool) -> None:
    def loss(batch: TokenBatch) -> Tensor:
        groups = batch.rewards.view(batch.group_size, -1).T  # they lie side by side
        advantages = groups - groups.mean(1, keepdim=True)
        if scaled:
            advantages = advantages / (groups.std(1, keepdim=True) + 1e-6)
        return loss_of(batch, advantages.flatten())

    report = el.audit_token_loss(loss, max_paths=FEW)
    (finding,) = report.findings
    assert finding.rule == "reward-of-another-answer"
    assert finding.line == loss.__code__.co_firstlineno + 1
    assert finding.severity == ("fault" if scaled else "warning")  # two of four keep their own
    assert report.verdict == ("biased" if scaled else "unbiased")


def test_a_divergence_of_the_padding_in_the_returns_is_padding_that_counts() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        kl = (batch.log_probs - batch.ref_log_probs).detach()  # no mask
        credit = (batch.token_rewards - 0.3 * kl).flip(1).cumsum(1).flip(1)
        return loss_of(batch, credit)

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert report.verdict == "biased"
    assert [finding.rule for finding in report.findings] == ["padding-counted"]
    assert report.findings[0].evidence.startswith(
        "changing the values on the padding changes the gradient"
    )
    assert report.invariances["padding"] > 0.01


def test_two_divisors_have_two_names() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        advantages = leave_one_out(batch.rewards, batch.group_size)
        terms = batch.log_probs * advantages[:, None] * batch.mask
        return -(terms.sum(1) / batch.lengths / batch.mask.shape[1]).sum()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert report.verdict == "convention"
    biased = {convention.name for convention in report.conventions if convention.bias}
    assert biased == {"mean-over-each-episode", "padded-width"}


def test_a_mask_that_is_cut_at_the_wrong_side_counts_less_where_an_answer_is_the_longest() -> None:
    """As where a mask of whole sequences is shifted like the logits, and not like the tokens."""

    def loss(batch: TokenBatch) -> Tensor:
        terms = (batch.log_probs * batch.rewards[:, None] * batch.mask).sum(1)
        count = batch.mask[:, :-1].sum(1)
        return -(terms / count.clamp(min=1.0) * (count > 0)).mean()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert (report.verdict, report.findings) == ("convention", ())
    assert {each.name for each in report.conventions} == {"mean-over-each-episode"}
    assert "length of the answer without the last column" in report.rule


def test_the_ratio_times_k2_is_no_divergence_s_gradient_and_has_a_name() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        ratio = (batch.log_probs - batch.log_probs.detach()).exp()
        k2 = (batch.log_probs - batch.ref_log_probs) ** 2 / 2
        return loss_of(batch, batch.rewards) + 0.3 * (ratio * k2 * batch.mask).sum(1).mean()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert report.verdict == "convention"
    assert [c.name for c in report.conventions] == ["squared-log-ratio"]


def test_k3_with_its_ratio_upside_down_is_no_kl_and_has_a_name() -> None:
    """E[(π/ref − 1) ∇log π] is half of the gradient of Σ π²/ref, the χ² divergence but for 1."""

    def loss(batch: TokenBatch) -> Tensor:
        difference = batch.log_probs - batch.ref_log_probs
        k3 = difference.exp() - difference - 1
        return loss_of(batch, batch.rewards) + 0.3 * (k3 * batch.mask).sum(1).mean()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert (report.verdict, report.findings) == ("convention", ())
    assert [c.name for c in report.conventions if c.bias] == ["chi-squared"]


def test_a_dropped_token_is_seen_where_nothing_else_is_explained() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        odd = batch.rewards + batch.rewards**3 * batch.lengths**0.5
        kept = batch.mask.clone()
        kept[:, 0] = 0.0
        return -(batch.log_probs * kept * odd[:, None]).sum()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert [f.rule for f in report.findings] == ["first-token-dropped"], report.summary
    assert report.verdict == "biased"


@pytest.mark.parametrize("whole", [False, True])
def test_a_ratio_to_the_reference_is_none_to_the_policy_that_drew(whole: bool) -> None:
    def loss(batch: TokenBatch) -> Tensor:
        log_ratio = (batch.log_probs - batch.ref_log_probs) * batch.mask
        ratio = log_ratio.sum(1).exp() if whole else (log_ratio.exp() * batch.mask).sum(1)
        return -(ratio * leave_one_out(batch.rewards, batch.group_size)).mean()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert report.verdict == "biased"
    (finding,) = report.findings
    assert finding.rule == "old-log-prob-stale"
    assert finding.line == loss.__code__.co_firstlineno + 3


def test_in_a_formula_a_sum_that_is_divided_stands_in_brackets() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        credit = batch.rewards - 0.5 * batch.rewards.mean()
        return -(batch.log_probs * credit[:, None] * batch.mask).sum() / batch.mask.sum()

    rule = el.audit_token_loss(loss, max_paths=FEW).rule
    start, end = "weight of a token = (", " × mean of the batch) / tokens of the batch"
    assert rule.startswith(start), rule
    assert rule.endswith(end), rule
