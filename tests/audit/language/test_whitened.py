"""Advantages that are whitened together with a divergence, and with a critic's values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.audit.language.token_batch import TokenBatch
from eligibility.audit.reporting.report import AuditReport


def penalised(batch: TokenBatch, beta: float, attached: bool = False) -> Tensor:
    """[B, T] the rewards of tokens, less the log-ratio to the reference."""
    log_probs = batch.log_probs if attached else batch.log_probs.detach()
    return (batch.token_rewards - beta * (log_probs - batch.ref_log_probs)) * batch.mask


def whitened(values: Tensor, mask: Tensor, correction: float) -> Tensor:
    mean = (values * mask).sum() / mask.sum()
    variance = ((values - mean) ** 2 * mask).sum() / (mask.sum() - correction)
    return (values - mean) / (variance.sqrt() + 1e-6)


def reinforce_plus_plus(batch: TokenBatch, beta: float, attached: bool = False) -> Tensor:
    rewards = penalised(batch, beta, attached)
    returns = (rewards * batch.mask).flip(1).cumsum(1).flip(1)
    gain = whitened(returns, batch.mask, 0.0)
    return -(batch.log_probs * gain * batch.mask).sum(1).mean()


def proximal(batch: TokenBatch, lam: float) -> Tensor:
    mask, rewards = batch.mask, penalised(batch, 0.1)
    logits = batch.logits.detach()
    values = (0.3 * logits[..., 0].tanh() + 0.5 * logits[..., 1].sin()) * mask
    ahead = torch.cat([values[:, 1:], torch.zeros(len(values), 1)], 1)
    errors, gains = rewards + ahead - values, []
    for t in reversed(range(mask.shape[1])):
        gains.insert(0, errors[:, t] + (lam * gains[0] if gains else 0.0))
    gain = whitened(torch.stack(gains, 1), mask, 1.0)
    return -(batch.log_probs * gain * mask).sum() / mask.sum()


def audited(loss: object) -> AuditReport:
    return el.audit_token_loss(loss, prompts=1, max_paths=200)  # type: ignore[arg-type]


def test_a_divergence_in_whitened_rewards_has_its_name() -> None:
    report = audited(lambda batch: reinforce_plus_plus(batch, 0.1))
    assert (report.verdict, report.findings) == ("convention", ()), report.summary
    names = {convention.name for convention in report.conventions}
    assert {"batch-scaled", "kl-in-reward"} <= names
    assert "0.05 × k1 in the reward, from each token on" in report.rule


def test_its_sign_is_read_and_a_gradient_through_it_does_not_pass() -> None:
    report = audited(lambda batch: reinforce_plus_plus(batch, -0.1))
    assert [finding.rule for finding in report.findings] == ["kl-sign"], report.summary
    report = audited(lambda batch: reinforce_plus_plus(batch, 0.1, attached=True))
    assert report.verdict in ("biased", "unexplained"), report.rule


@pytest.mark.parametrize("lam", [0.95, 1.0])
def test_generalised_advantages_of_penalised_rewards_are_read_whitened(lam: float) -> None:
    report = audited(lambda batch: proximal(batch, lam))
    assert (report.verdict, report.findings) == ("convention", ()), report.summary
    names = {convention.name for convention in report.conventions}
    assert {"batch-scaled", "kl-in-reward", "mean-over-time"} <= names
    assert ("gae" in names) == (lam < 1.0)


def test_the_one_group_of_a_batch_is_called_a_group() -> None:
    """Its mean and its deviation are the batch's as well."""

    def loss(batch: TokenBatch) -> Tensor:
        gains = penalised(batch, 0.1).sum(1)
        gains = (gains - gains.mean()) / (gains.std() + 1e-4)
        return -(batch.log_probs * gains[:, None] * batch.mask).sum() / batch.mask.sum()

    report = el.audit_token_loss(loss, prompts=1, group_size=3, max_paths=200)
    assert (report.verdict, report.findings) == ("convention", ()), report.summary
    assert {"whitened", "kl-in-reward"} <= {each.name for each in report.conventions}
    assert "(reward − mean of the group) / (deviation of the group" in report.rule
