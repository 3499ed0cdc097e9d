"""What the audit of a loss over tokens says, and what it refuses."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.audit.language.token_batch import TokenBatch
from eligibility.errors import InvalidTypeError, InvalidValueError

FEW = 600


def of_answers(batch: TokenBatch) -> Tensor:
    return (batch.log_probs * batch.mask).sum(1)


def reinforce(batch: TokenBatch) -> Tensor:
    return -(of_answers(batch) * batch.rewards).mean()


def k3(batch: TokenBatch) -> Tensor:
    delta = batch.ref_log_probs - batch.log_probs
    return ((delta.exp() - delta - 1) * batch.mask).sum(1).mean()


def test_reinforce_is_unbiased() -> None:
    report = el.audit_token_loss(reinforce, max_paths=FEW)
    assert report.ok()
    assert report.residual < 1e-14
    assert dict(report.components) == pytest.approx({"reward": 1.0})
    assert report.probability == pytest.approx(1.0)


def test_k3_in_the_loss_is_the_forward_kl() -> None:
    report = el.audit_token_loss(lambda batch: reinforce(batch) + 0.25 * k3(batch), max_paths=FEW)
    assert report.verdict == "biased"
    assert [finding.rule for finding in report.findings] == ["kl-forward"]
    assert dict(report.components) == pytest.approx({"reward": 1.0, "kl-forward": -0.25})


def k1(batch: TokenBatch) -> Tensor:
    return ((batch.log_probs - batch.ref_log_probs) * batch.mask).sum(1).mean()


def test_a_loss_with_a_fault_is_not_unbiased_though_the_reward_has_its_gradient() -> None:
    report = el.audit_token_loss(lambda batch: reinforce(batch) + 0.25 * k1(batch), max_paths=FEW)
    assert report.residual < 1e-14
    assert [finding.rule for finding in report.findings] == ["kl-without-gradient"]
    assert (report.verdict, report.exit_status) == ("biased", 1)
    assert report.summary == report.findings[0].means


def test_a_gradient_that_is_rounding_alone_is_none() -> None:
    def one_ratio_for_the_batch(batch: TokenBatch) -> Tensor:
        groups = batch.rewards.view(-1, batch.group_size)
        advantages = (groups - groups.mean(1, keepdim=True)).flatten()
        ratio = ((batch.log_probs - batch.old_log_probs) * batch.mask).sum().exp()
        return -(ratio * advantages).mean()  # advantages add up to 0, or to 1e-17

    report = el.audit_token_loss(one_ratio_for_the_batch, max_paths=FEW)
    assert (report.verdict, report.exit_status) == ("no-gradient", 1)
    assert [finding.rule for finding in report.findings] == ["no-gradient"]
    assert set(report.invariances.values()) == {0.0}


def test_a_small_gradient_is_one() -> None:
    report = el.audit_token_loss(lambda batch: 1e-10 * reinforce(batch), max_paths=FEW)
    assert report.verdict == "unbiased"
    assert dict(report.components) == pytest.approx({"reward": 1e-10})


def leave_one_out(batch: TokenBatch) -> Tensor:
    groups = batch.rewards.view(-1, batch.group_size)
    advantages = (groups - groups.flip(1)).flatten()[:, None]
    return -(batch.log_probs * advantages * batch.mask).sum() / batch.mask.sum()


@pytest.mark.parametrize(
    ("micro_batch", "divisor"), [(2, "micro-batch-mean"), (None, "mean-over-time")]
)
def test_a_masked_mean_is_that_of_what_is_called_together(
    micro_batch: int | None, divisor: str
) -> None:
    report = el.audit_token_loss(leave_one_out, micro_batch=micro_batch, max_paths=FEW)
    biases = {c.name: c.bias for c in report.conventions}
    assert biases == {divisor: pytest.approx(report.residual), "centred": 0.0}


@pytest.mark.parametrize("group_means", [False, True])
@pytest.mark.parametrize("correction", [0, 1])
def test_whitening_over_the_tokens_of_the_batch_is_a_scale_of_the_batch(
    group_means: bool, correction: int
) -> None:
    def reinforce_plus_plus(batch: TokenBatch) -> Tensor:
        groups = batch.rewards.view(-1, batch.group_size)
        rewards = groups - groups.mean(1, keepdim=True) if group_means else groups
        each = rewards.flatten()[:, None].expand_as(batch.mask)
        tokens = each[batch.mask > 0]
        advantages = (each - tokens.mean()) / (tokens.var(correction=correction) + 1e-8).sqrt()
        return -(batch.log_probs * advantages * batch.mask).sum(1).mean()

    report = el.audit_token_loss(reinforce_plus_plus, max_paths=FEW)
    biases = {c.name: c.bias for c in report.conventions}
    assert report.verdict == "convention"
    assert set(biases) == {"batch-scaled", "centred", "groups-mixed"}
    assert biases["batch-scaled"] == pytest.approx(report.residual, rel=1e-6)


def test_a_forgotten_mask_shows() -> None:
    report = el.audit_token_loss(
        lambda batch: -(batch.log_probs.sum(1) * batch.rewards).mean(), max_paths=FEW
    )
    assert [finding.rule for finding in report.findings] == ["padding-counted"]
    assert report.invariances["padding"] > 0.1


def test_what_verl_calls_things_is_filled_by_name() -> None:
    def policy_loss(
        old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor
    ) -> tuple[Tensor, float]:
        ratio = (log_prob - old_log_prob).exp()
        each = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return (each * response_mask).sum() / response_mask.sum(), 0.0

    def outcome_advantage(
        token_level_rewards: Tensor, response_mask: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        scores = token_level_rewards.sum(-1)
        means = torch.stack([scores[index == row].mean() for row in index])
        advantages = (scores - means)[:, None] * response_mask
        return advantages, advantages

    report = el.audit_token_loss(policy_loss, advantage=outcome_advantage, max_paths=FEW)
    assert report.verdict == "convention"
    assert {c.name for c in report.conventions} == {"mean-over-time", "centred"}


def test_a_partial_and_a_module_are_losses_too() -> None:
    def loss(log_probs: Tensor, rewards: Tensor, mask: Tensor, scale: float) -> Tensor:
        return -scale * ((log_probs * mask).sum(1) * rewards).sum()

    class Loss(torch.nn.Module):
        def forward(self, log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
            return -(log_probs * advantages[:, None] * mask).sum()

    for given in (functools.partial(loss, scale=0.5), Loss()):
        assert el.audit_token_loss(given, max_paths=FEW).verdict == "unbiased"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"length": 0},
            "`length`: got 0, expected an integer of at least 1; pass one",
        ),
        (
            {"behaviour": "greedy"},
            "`behaviour`: got 'greedy', expected one of policy, old, rollout, top-k, top-p, min-p, "
            "repetition-penalty; pass one of these names",
        ),
        (
            {"length": 6, "vocabulary": 3},
            "the probe: got 520289282 batches to run (132128768 without the order within groups), "
            "expected at most max_paths=3000; pass a smaller length, vocabulary, group_size or "
            "number of prompts, or more max_paths",
        ),
        (
            {"pad_to": 2},
            "`pad_to`: got 2, expected at least the answers' length 3; omit it to pad to the "
            "longest answer of each batch",
        ),
        (
            {"temperature": 0.0},
            "`temperature`: got 0.0, expected a positive number; omit it to use 1.0",
        ),
        (
            {"micro_batch": 0},
            "`micro_batch`: got 0, expected a number of rows of at least 1; omit it",
        ),
        (
            {"max_paths": 0},
            "`max_paths`: got 0, expected a positive number; omit it to use the default",
        ),
    ],
)
def test_sizes_out_of_their_domain_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        el.audit_token_loss(reinforce, **options)
    assert str(error.value) == message


def unknown_parameter(log_probs: Tensor, horizon: int) -> Tensor:
    return log_probs.sum() * horizon


def no_scalar(batch: TokenBatch) -> Tensor:
    return batch.log_probs


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            unknown_parameter,
            "parameter `horizon` of `unknown_parameter`: got a name that the audit does not know, "
            "expected one of tokens, mask, lengths, logits, log_probs, old_log_probs, "
            "rollout_log_probs, ref_log_probs, ref_logits, rewards, token_rewards, prompt, ended, "
            "prompt_tokens, prompt_mask, sequence_tokens, sequence_mask, sequence_logits, "
            "answer_mask, hidden, unembedding, group_size, max_length, temperature, "
            "advantages, or another project's name for one of these; give it a value: "
            "functools.partial(unknown_parameter, horizon=…)",
        ),
        (
            no_scalar,
            "the result of `loss`: got a tensor of shape [4, 3], expected a scalar tensor, or a "
            "tuple (loss, metrics); return the mean or the sum over the batch",
        ),
        (
            "grpo",
            "`loss`: got 'grpo', expected a function; pass the function or the module that returns "
            "the loss",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(loss: Callable[..., Tensor], message: str) -> None:
    with pytest.raises(InvalidTypeError) as error:
        el.audit_token_loss(loss)
    assert str(error.value) == message


def with_ratio(batch: TokenBatch) -> Tensor:
    log_ratio = ((batch.log_probs - batch.rollout_log_probs) * batch.mask).sum(1)
    return -(log_ratio.exp() * batch.rewards).mean()


def at_the_temperature(batch: TokenBatch) -> Tensor:
    rows = (batch.logits / batch.temperature).log_softmax(-1)
    log_probs = rows.gather(-1, batch.tokens[..., None])[..., 0]
    return -((log_probs * batch.mask).sum(1) * batch.rewards).mean()


@pytest.mark.parametrize(
    ("loss", "options", "verdict", "rules"),
    [
        (reinforce, {"temperature": 0.7}, "biased", ["behaviour-not-scored"]),
        (at_the_temperature, {"temperature": 0.7}, "unbiased", []),
        (reinforce, {"behaviour": "top-p"}, "biased", ["behaviour-not-scored"]),
        (reinforce, {"behaviour": "old"}, "biased", ["off-policy-uncorrected"]),
        (with_ratio, {"temperature": 0.7}, "unbiased", []),
        (with_ratio, {"behaviour": "old"}, "unbiased", []),
        (with_ratio, {"behaviour": "rollout"}, "unbiased", []),
    ],
)
def test_what_is_drawn_must_be_what_is_scored(
    loss: Callable[..., Tensor], options: dict[str, Any], verdict: str, rules: list[str]
) -> None:
    report = el.audit_token_loss(loss, max_paths=FEW, **options)
    assert report.verdict == verdict
    assert [finding.rule for finding in report.findings] == rules


@pytest.mark.parametrize(
    "options",
    [{"behaviour": "top-p"}, {"behaviour": "repetition-penalty"}, {"temperature": 0.7}],
    ids=str,
)
def test_the_bias_of_the_draw_is_no_convention_s(options: dict[str, Any]) -> None:
    on_policy = el.audit_token_loss(leave_one_out, max_paths=FEW)
    report = el.audit_token_loss(leave_one_out, max_paths=FEW, **options)
    assert [finding.rule for finding in report.findings] == ["behaviour-not-scored"]
    assert abs(report.residual - on_policy.residual) > 1e-3
    biases = {c.name: c.bias for c in report.conventions}
    assert biases == {c.name: pytest.approx(c.bias) for c in on_policy.conventions}


def test_what_a_sampler_cuts_off_is_no_number_out_of_range() -> None:
    report = el.audit_token_loss(with_ratio, behaviour="top-p", max_paths=FEW)
    assert report.verdict != "unbiased"  # answers that are never drawn cannot be corrected for
    assert "non-finite-gradient" not in [finding.rule for finding in report.findings]


def test_both_probabilities_of_a_token_are_shown() -> None:
    (finding,) = el.audit_token_loss(reinforce, temperature=0.7, max_paths=FEW).findings
    shown = re.match(r"a token of probability ([\d.]+) is drawn with ([\d.]+);", finding.evidence)
    assert shown
    scored, drawn = (float(number) for number in shown.groups())
    odds, sharper = scored / (1 - scored), drawn / (1 - drawn)  # two tokens can be drawn
    assert math.log(sharper) == pytest.approx(math.log(odds) / 0.7, rel=0.02)


def with_critic(batch: TokenBatch, value: Tensor) -> Tensor:
    """PPO's first update without a discount: the divergence in the reward, minus a value."""
    divergence = (batch.log_probs - batch.ref_log_probs).detach() * batch.mask
    later = divergence.flip(1).cumsum(1).flip(1)
    advantages = batch.rewards[:, None] - 0.3 * later - value
    return -(batch.log_probs * advantages * batch.mask).sum() / batch.mask.sum()


def of_the_state(batch: TokenBatch) -> Tensor:
    earlier = batch.tokens.cumsum(1) - batch.tokens
    return (1.0 + batch.prompt[:, None] + 0.7 * earlier).sin()


def test_a_critic_is_a_baseline_of_each_state() -> None:
    """What the divisor makes of it is left out of the divergence's bias."""
    report = el.audit_token_loss(lambda b: with_critic(b, of_the_state(b)), max_paths=FEW)
    without = el.audit_token_loss(lambda b: with_critic(b, b.log_probs.detach() * 0), max_paths=FEW)
    assert report.verdict == without.verdict == "convention"
    assert {c.name for c in report.conventions} == {c.name for c in without.conventions} | {
        "baseline"
    }
    bias = {c.name: c.bias for c in report.conventions}
    assert bias["baseline"] == 0.0
    assert bias["kl-in-reward"] == pytest.approx(
        {c.name: c.bias for c in without.conventions}["kl-in-reward"]
    )
    assert dict(report.components) == pytest.approx(dict(without.components))
    assert "+ 0.075 × k1 in the reward, from each token on; minus a baseline" in report.rule


@pytest.mark.parametrize(
    ("discount", "trace", "named"),
    [
        (1.0, 0.9, {"gae"}),
        (0.9, 1.0, {"discounted-by-token", "baseline"}),
        (1.0, 1.0, {"baseline"}),
    ],
)
def test_generalised_advantages_of_tokens(discount: float, trace: float, named: set[str]) -> None:
    """By their recursion, Schulman et al. 2016; the probe's rewards come with the last token."""

    def loss(batch: TokenBatch) -> Tensor:
        values = of_the_state(batch) * batch.mask
        divergence = (batch.log_probs - batch.ref_log_probs).detach()
        rewards = batch.token_rewards - 0.3 * divergence * batch.mask
        following = torch.cat([values[:, 1:], torch.zeros(len(values), 1)], 1)
        errors = (rewards + discount * following - values) * batch.mask
        advantages, rest = torch.zeros_like(values), torch.zeros(len(values))
        for t in reversed(range(values.shape[1])):
            advantages[:, t] = rest = errors[:, t] + discount * trace * rest
        return -(batch.log_probs * advantages * batch.mask).sum() / batch.mask.sum()

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert report.verdict == "convention", report.text()
    assert {c.name for c in report.conventions} == {"mean-over-time", "kl-in-reward", *named}
    assert "+ 0.075 × k1 in the reward, from each token on" in report.rule
    if discount * trace < 1:
        assert f"× {discount * trace:.6g} for each token after it" in report.rule


def test_a_value_that_knows_the_token_is_no_baseline() -> None:
    report = el.audit_token_loss(
        lambda b: with_critic(b, of_the_state(b) + 0.2 * b.tokens * b.prompt[:, None]),
        max_paths=FEW,
    )
    assert report.verdict == "unexplained"


def test_a_fault_stands_on_its_line() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        delta = batch.ref_log_probs - batch.log_probs
        kl = delta.exp() - delta - 1  # here
        gains = batch.log_probs * batch.rewards[:, None]
        return ((0.1 * kl - gains) * batch.mask).sum(1).mean()

    (finding,) = el.audit_token_loss(loss, max_paths=FEW).findings
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert (finding.file, lines[finding.line - 1].strip()) == (
        __file__,
        "kl = delta.exp() - delta - 1  # here",
    )
