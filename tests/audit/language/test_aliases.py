"""The names of other projects: each stands for one field, and the how-to lists them all."""

from __future__ import annotations

import itertools
from dataclasses import fields
from pathlib import Path

import pytest
from torch import Tensor

import eligibility as el
from eligibility.audit.language.aliases import ADVANTAGES, ALIASES, field_of, table
from eligibility.audit.language.token_batch import TokenBatch

HOW_TO = Path(__file__).parents[3] / "docs" / "how_to" / "audit_a_token_loss.md"


def test_every_name_stands_for_one_field() -> None:
    names = [*itertools.chain(*ALIASES.values()), *ALIASES, *ADVANTAGES]
    assert len(names) == len(set(names))
    assert set(ALIASES) <= {field.name for field in fields(TokenBatch)}


def test_the_how_to_has_the_table() -> None:
    assert table() in HOW_TO.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "beside", "field"),
    [
        ("attention_mask", ("per_token_logps",), "mask"),
        ("attention_mask", ("input_ids",), "sequence_mask"),
        ("logits", ("labels",), "logits"),
        ("logits", ("input_ids",), "sequence_logits"),
        ("old_logprobs", ("logprobs",), "old_log_probs"),
        ("old_logprobs", ("logprobs", "proximal_logprobs"), "rollout_log_probs"),
        ("group", (), None),  # in trainers mostly a group of processes
    ],
)
def test_a_name_means_what_its_function_does(
    name: str, beside: tuple[str, ...], field: str | None
) -> None:
    assert field_of(name, beside) == field


def test_areals_decoupled_loss_is_corrected_by_the_rollout_s_ratio() -> None:
    def loss(
        logprobs: Tensor,
        proximal_logprobs: Tensor,
        old_logprobs: Tensor,
        advantages: Tensor,
        loss_mask: Tensor,
    ) -> Tensor:
        behaviour = (proximal_logprobs - old_logprobs).exp()
        terms = (logprobs - proximal_logprobs).exp() * behaviour * advantages[:, None]
        return -(terms * loss_mask).sum() / len(loss_mask)

    report = el.audit_token_loss(loss, behaviour="rollout", max_paths=600)
    assert [c.name for c in report.conventions] == ["token-ratio"]
