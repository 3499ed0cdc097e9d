"""Losses that train only on the best answers, as RAFT and ReST do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.audit.language.token_batch import TokenBatch

GROUP = 2


def grouped(batch: TokenBatch) -> Tensor:
    return batch.rewards.view(-1, GROUP)


def best(batch: TokenBatch) -> Tensor:
    return torch.nn.functional.one_hot(grouped(batch).argmax(1), GROUP).double().view(-1)


def centred(batch: TokenBatch) -> Tensor:
    return (grouped(batch) - grouped(batch).mean(1, keepdim=True)).view(-1)


def whitened(batch: TokenBatch) -> Tensor:
    deviation = grouped(batch).std(1, keepdim=True) + 1e-4
    return (centred(batch).view(-1, GROUP) / deviation).view(-1)


def mean_of_tokens(batch: TokenBatch, weights: Tensor) -> Tensor:
    kept = (weights > 0)[:, None] * batch.mask
    return -(batch.log_probs * weights[:, None] * batch.mask).sum() / kept.sum().clamp(min=1)


def sum_of_answers(batch: TokenBatch, weights: Tensor) -> Tensor:
    return -((batch.log_probs * batch.mask).sum(1) * weights).mean()


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (best, "the best of each group"),
        (lambda batch: (centred(batch) > 0).double(), "rewards above their group's mean"),
        (lambda batch: whitened(batch).clamp(min=0), "positive advantages"),
        (lambda batch: (batch.rewards > 0.1).double(), "rewards above a bound"),
    ],
)
@pytest.mark.parametrize("reduced", [mean_of_tokens, sum_of_answers])
def test_a_selection_of_answers_is_a_convention_with_its_name(
    weights: Callable[[TokenBatch], Tensor],
    said: str,
    reduced: Callable[[TokenBatch, Tensor], Tensor],
) -> None:
    report = el.audit_token_loss(
        lambda batch: reduced(batch, weights(batch)), prompts=2, group_size=GROUP
    )
    assert (report.verdict, report.findings) == ("convention", ()), report.summary
    assert "selected-answers" in {convention.name for convention in report.conventions}
    assert said in report.rule
    assert ("a mean of their tokens" in report.rule) == (reduced is mean_of_tokens)


def test_the_worst_answer_and_a_lost_end_are_still_seen() -> None:
    report = el.audit_token_loss(
        lambda batch: -sum_of_answers(batch, best(batch)),
        prompts=1, group_size=GROUP, max_paths=300,
    )  # fmt: skip
    assert report.verdict == "wrong-sign", report.summary
    report = el.audit_token_loss(
        lambda batch: -((batch.log_probs * batch.mask)[:, :-1].sum(1) * best(batch)).mean(),
        prompts=1, group_size=GROUP, max_paths=300,
    )  # fmt: skip
    assert report.verdict in ("biased", "unexplained"), report.rule
