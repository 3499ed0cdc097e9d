"""Losses over prompt and answer together, as a model's logits come: shifts, masks, prompts."""

from __future__ import annotations

import pytest
from torch import Tensor

import eligibility as el
from eligibility.audit.language.token_batch import TokenBatch

FEW = 600


def scored(batch: TokenBatch, shift: int, mask: Tensor) -> Tensor:
    """REINFORCE on whole sequences, whose logits are taken ``shift`` places before their tokens."""
    width = batch.sequence_tokens.shape[1] - shift
    rows = batch.sequence_logits[:, :width].log_softmax(-1)
    taken = rows.gather(-1, batch.sequence_tokens[:, shift:, None])[..., 0]
    return -((taken * mask[:, shift:]).sum(1) * batch.rewards).mean()


def test_logits_that_are_shifted_once_are_the_answers_own() -> None:
    report = el.audit_token_loss(lambda batch: scored(batch, 1, batch.answer_mask), max_paths=FEW)
    assert (report.verdict, report.findings) == ("unbiased", ())


@pytest.mark.parametrize("shift", [0, 2])
def test_another_shift_scores_another_token(shift: int) -> None:
    report = el.audit_token_loss(
        lambda batch: scored(batch, shift, batch.answer_mask), max_paths=FEW
    )
    assert report.findings[0].rule == "scored-other-action"


def test_a_prompt_that_is_trained_on_shows() -> None:
    def loss(batch: TokenBatch) -> Tensor:
        return scored(batch, 1, batch.sequence_mask)

    report = el.audit_token_loss(loss, max_paths=FEW)
    assert (report.verdict, [f.rule for f in report.findings]) == ("biased", ["prompt-scored"])
    assert report.residual < 1e-12  # at the logits of the answers all is well


def test_whole_sequences_are_filled_by_name() -> None:
    def loss(
        logits: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        assistant_masks: Tensor,
        rewards: Tensor,
    ) -> Tensor:
        assert logits.shape[:2] == input_ids.shape == attention_mask.shape
        rows = logits[:, :-1].log_softmax(-1).gather(-1, input_ids[:, 1:, None])[..., 0]
        return -((rows * assistant_masks[:, 1:]).sum(1) * rewards).mean()

    assert el.audit_token_loss(loss, max_paths=FEW).verdict == "unbiased"
