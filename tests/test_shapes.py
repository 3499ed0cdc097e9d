"""The checks that every layer shares: each error in full, and what passes untouched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from eligibility import shapes
from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError, ShapeError

NAN, INF = float("nan"), float("inf")
NO_BROADCAST = "must come last; nothing is broadcast silently"

REFUSED: list[tuple[Callable[[], None], type[EligibilityError], str]] = [
    (
        lambda: shapes.check_probs(torch.tensor([1, 2])),
        InvalidTypeError,
        "`probs`: got dtype int64, expected a floating-point dtype; "
        "convert it, for instance with probs.float()",
    ),
    (
        lambda: shapes.check_probs(torch.tensor(0.5)),
        ShapeError,
        "`probs`: got shape [], expected [*batch, K] with K >= 1; "
        "put the categories on the last axis",
    ),
    (
        lambda: shapes.check_probs(torch.tensor([0.5, -0.25])),
        InvalidValueError,
        "`probs`: got a minimum of -0.25, expected non-negative probabilities; "
        "pass unnormalised log-probabilities as logits instead",
    ),
    (
        lambda: shapes.check_probs(torch.tensor([[0.5, 0.5], [0.0, 0.0]])),
        InvalidValueError,
        "`probs`: got a row whose entries are all zero, expected at least one positive "
        "probability in each row; remove the row, or allow one category",
    ),
    (
        lambda: shapes.check_probs(torch.tensor([0.5, NAN])),
        InvalidValueError,
        "`probs`: got NaN, expected numbers; "
        "find where the NaN arises, for instance 0 · inf or 0 / 0",
    ),
    (
        lambda: shapes.check_probs(torch.tensor([0.5, INF])),
        InvalidValueError,
        "`probs`: got inf, expected finite numbers; find where it overflows",
    ),
    (
        lambda: shapes.check_logits(torch.tensor([0.0, NAN]), "scores"),
        InvalidValueError,
        "`scores`: got NaN, expected numbers; "
        "find where the NaN arises, for instance 0 · inf or 0 / 0",
    ),
    (
        lambda: shapes.check_logits(torch.tensor([0.0, INF])),
        InvalidValueError,
        "`logits`: got inf, expected finite numbers; find where it overflows",
    ),
    (
        lambda: shapes.check_logits(torch.tensor([-INF, -INF])),
        InvalidValueError,
        "`logits`: got a row whose entries are all -inf, expected at least one finite logit in "
        "each row; remove the row, or allow one category",
    ),
    (
        lambda: shapes.check_unit_interval(torch.tensor([0.5, 1.5])),
        InvalidValueError,
        "`probs`: got values from 0.5 to 1.5, expected probabilities in [0, 1]; "
        "pass log-odds as logits instead",
    ),
    (
        lambda: shapes.check_log_odds(torch.tensor(NAN)),
        InvalidValueError,
        "`logits`: got NaN, expected numbers; "
        "find where the NaN arises, for instance 0 · inf or 0 / 0",
    ),
    (
        lambda: shapes.check_action(torch.tensor([0, 7]), 5),
        InvalidValueError,
        "`action`: got a maximum of 7, expected indices in [0, 5); "
        "there are K = 5 categories, counted from 0",
    ),
    (
        lambda: shapes.check_action(torch.tensor(-1), 5),
        InvalidValueError,
        "`action`: got a minimum of -1, expected indices in [0, 5); "
        "there are K = 5 categories, counted from 0",
    ),
    (
        lambda: shapes.check_action(torch.tensor(1.0), 5),
        InvalidTypeError,
        "`action`: got dtype float32, expected an integer dtype; "
        "pass indices, for instance action.long()",
    ),
    (
        lambda: shapes.check_counts(torch.tensor([[1, 1], [2, 1]]), 2),
        InvalidValueError,
        "`counts`: got a sum of 3 in row [1], expected counts that sum to total_count = 2; "
        "correct the counts, or the total count",
    ),
    (
        lambda: shapes.check_counts(torch.tensor([1, 1]), torch.tensor(3)),
        InvalidValueError,
        "`counts`: got a sum of 2, expected counts that sum to total_count = 3; "
        "correct the counts, or the total count",
    ),
    (
        lambda: shapes.check_whole(torch.tensor(1.5)),
        InvalidValueError,
        "`value`: got numbers that are not whole, expected whole numbers; pass counts",
    ),
    (
        lambda: shapes.check_whole(torch.tensor(-1.0)),
        InvalidValueError,
        "`value`: got a minimum of -1, expected numbers >= 0; pass counts",
    ),
    (
        lambda: shapes.check_whole(torch.tensor(6.0), maximum=torch.tensor([5.0])),
        InvalidValueError,
        "`value`: got a maximum of 6, expected numbers of at most 5; "
        "no outcome can exceed the number of trials",
    ),
    (
        lambda: shapes.check_dtype(torch.ones(2), "mask", "boolean"),
        InvalidTypeError,
        "`mask`: got dtype float32, expected dtype bool; convert it, for instance with mask != 0; "
        "True means allowed",
    ),
    (
        lambda: shapes.check_not_negative(torch.tensor([2.0, -1.0]), "counts"),
        InvalidValueError,
        "`counts`: got a minimum of -1, expected numbers >= 0; pass counts",
    ),
    (
        lambda: shapes.check_sample_shape(torch.zeros(3), torch.Size([3, 1]), torch.Size()),
        ShapeError,
        "`value`: got shape [3], expected [*samples, 3, 1]; "
        f"batch shape [3, 1] and event shape [] {NO_BROADCAST}",
    ),
    (
        lambda: shapes.check_sample_shape(torch.zeros(3, 1), torch.Size([3]), torch.Size()),
        ShapeError,
        "`value`: got shape [3, 1], expected [*samples, 3]; "
        f"batch shape [3] and event shape [] {NO_BROADCAST}",
    ),
]


@pytest.mark.parametrize(("check", "error_type", "message"), REFUSED)
def test_refuses_with_the_whole_message(
    check: Callable[[], None], error_type: type[EligibilityError], message: str
) -> None:
    with pytest.raises(error_type) as caught:
        check()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("check", "tensor"),
    [
        (shapes.check_probs, torch.tensor([69.0, 0.0, 1e-30])),
        (shapes.check_logits, torch.tensor([[-INF, 3.0], [1e4, -1e4]])),
        (shapes.check_unit_interval, torch.tensor([0.0, 1.0])),
        (shapes.check_log_odds, torch.tensor([-INF, INF, 0.0])),
        (shapes.check_whole, torch.tensor([0.0, 7.0])),
    ],
)
def test_accepts_the_edges_of_the_domain_untouched(
    check: Callable[[Tensor], None], tensor: Tensor
) -> None:
    before = tensor.clone()
    check(tensor)
    assert torch.equal(tensor, before)


def test_empty_actions_are_fine() -> None:
    shapes.check_action(torch.empty(0, dtype=torch.long), 5)


def test_samples_lead_and_one_event_serves_the_whole_batch() -> None:
    shapes.check_sample_shape(torch.zeros(7, 2, 3), torch.Size([2]), torch.Size([3]))
    shapes.check_sample_shape(torch.zeros(3), torch.Size([2]), torch.Size([3]))
    shapes.check_sample_shape(torch.tensor(0.0), torch.Size([2]), torch.Size())
