"""The mistakes of a user: each says what was got, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributions import kl_divergence

import eligibility as el
from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError, ShapeError

POLICY = el.Categorical(logits=torch.zeros(2, 3))
ONE_HOT = el.OneHotCategorical(logits=torch.zeros(3, 3))
COUNTS = el.Multinomial(4, logits=torch.zeros(2, 3))
COINS = el.Binomial(4, probs=torch.full((2,), 0.5))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: el.Categorical(),
            InvalidValueError,
            "`probs` and `logits`: got neither, expected exactly one of them; "
            "pass probs= or logits=",
        ),
        (
            lambda: el.Bernoulli(probs=0.5, logits=0.0),
            InvalidValueError,
            "`probs` and `logits`: got both, expected exactly one of them; pass probs= or logits=",
        ),
        (
            lambda: el.Categorical(logits=torch.zeros(3, dtype=torch.long)),
            InvalidTypeError,
            "`logits`: got dtype int64, expected a floating-point dtype; "
            "convert it, for instance with logits.float()",
        ),
        (
            lambda: el.Categorical(probs=[0.2, 0.8]),
            InvalidTypeError,
            "`probs`: got an object of type list, expected a tensor; "
            "wrap it, for instance with torch.tensor(probs)",
        ),
        (
            lambda: POLICY.log_prob(2),
            InvalidTypeError,
            "`value`: got an object of type int, expected a tensor; "
            "wrap it, for instance with torch.tensor(value)",
        ),
        (
            lambda: el.Categorical(probs=torch.tensor(0.5)),
            ShapeError,
            "`probs`: got shape [], expected [*batch, K] with K >= 1; "
            "put the categories on the last axis",
        ),
        (
            lambda: el.Categorical(probs=torch.tensor([0.5, -0.5, 1.0])),
            InvalidValueError,
            "`probs`: got a minimum of -0.5, expected non-negative probabilities; "
            "pass unnormalised log-probabilities as logits instead",
        ),
        (
            lambda: el.Categorical(probs=torch.zeros(3)),
            InvalidValueError,
            "`probs`: got a row whose entries are all zero, expected at least one positive "
            "probability in each row; remove the row, or allow one category",
        ),
        (
            lambda: el.Categorical(probs=torch.full((4,), 3e38)),
            InvalidValueError,
            "`probs`: got a row that cannot be normalised, expected numbers whose sum is finite; "
            "divide the weights by their maximum",
        ),
        (
            lambda: el.Categorical(logits=torch.tensor([0.0, float("nan")])),
            InvalidValueError,
            "`logits`: got NaN, expected numbers; "
            "find where the NaN arises, for instance 0 · inf or 0 / 0",
        ),
        (
            lambda: el.Categorical(logits=torch.full((2, 3), -torch.inf)),
            InvalidValueError,
            "`logits`: got a row whose entries are all -inf, expected at least one finite logit in "
            "each row; remove the row, or allow one category",
        ),
        (
            lambda: el.Bernoulli(probs=torch.tensor([0.5, 1.5])),
            InvalidValueError,
            "`probs`: got values from 0.5 to 1.5, expected probabilities in [0, 1]; "
            "pass log-odds as logits instead",
        ),
        (
            lambda: el.Binomial(-1, probs=0.5),
            InvalidValueError,
            "`total_count`: got a minimum of -1, expected numbers >= 0; pass counts",
        ),
        (
            lambda: el.Binomial(torch.ones(2, 1), probs=torch.full((2,), 0.5)),
            ShapeError,
            "`total_count`: got shape [2, 1], expected [2], the shape of probs, or a number; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            lambda: el.Multinomial(torch.tensor([1, 2, 3]), logits=torch.zeros(2, 3)),
            ShapeError,
            "`total_count`: got shape [3], expected [2], the batch shape, or a number; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            lambda: POLICY.log_prob(torch.tensor([[0], [1]])),
            ShapeError,
            "`value`: got shape [2, 1], expected [*samples, 2]; batch shape [2] and event shape [] "
            "must come last; nothing is broadcast silently",
        ),
        (
            lambda: el.Categorical(logits=torch.zeros(2, 1, 3)).log_prob(torch.tensor([0, 1])),
            ShapeError,
            "`value`: got shape [2], expected [*samples, 2, 1]; batch shape [2, 1] and event "
            "shape [] must come last; nothing is broadcast silently",
        ),
        (
            lambda: POLICY.log_prob(torch.tensor([0.0, 1.0])),
            InvalidTypeError,
            "`value`: got dtype float32, expected an integer dtype; "
            "pass indices, for instance value.long()",
        ),
        (
            lambda: POLICY.log_prob(torch.tensor([0, 3])),
            InvalidValueError,
            "`value`: got a maximum of 3, expected indices in [0, 3); "
            "there are K = 3 categories, counted from 0",
        ),
        (
            lambda: POLICY.log_prob(torch.tensor([-1, 0])),
            InvalidValueError,
            "`value`: got a minimum of -1, expected indices in [0, 3); "
            "there are K = 3 categories, counted from 0",
        ),
        (
            lambda: ONE_HOT.log_prob(torch.tensor([1, 0, 0])),
            ShapeError,
            "`value`: got shape [3], expected [*samples, 3, 3]; "
            "pass vectors for OneHotCategorical, not indices; nothing is broadcast silently",
        ),
        (
            lambda: ONE_HOT.log_prob(torch.ones(3, 3)),
            InvalidValueError,
            "`value`: got a sum of 3 in row [0], expected counts that sum to total_count = 1; "
            "correct the counts, or the total count",
        ),
        (
            lambda: COUNTS.log_prob(torch.tensor([[2, 1, 1], [1, 1, 1]])),
            InvalidValueError,
            "`value`: got a sum of 3 in row [1], expected counts that sum to total_count = 4; "
            "correct the counts, or the total count",
        ),
        (
            lambda: COINS.log_prob(torch.tensor([0, 5])),
            InvalidValueError,
            "`value`: got a maximum of 5, expected numbers of at most 4; "
            "no outcome can exceed the number of trials",
        ),
        (
            lambda: el.Bernoulli(probs=0.5).log_prob(torch.tensor(0.3)),
            InvalidValueError,
            "`value`: got numbers that are not whole, expected whole numbers; pass counts",
        ),
        (
            lambda: kl_divergence(POLICY, el.Categorical(logits=torch.zeros(2, 4))),
            ShapeError,
            "the distributions of a KL divergence: got 3 and 4 categories, expected the same "
            "number of categories in both; give the missing ones the probability 0",
        ),
        (
            lambda: kl_divergence(POLICY, el.Categorical(logits=torch.zeros(2, 1, 3))),
            ShapeError,
            "the distributions of a KL divergence: got batch and event shapes [2], [] and [2, 1], "
            "[], expected equal shapes, or one distribution for the whole batch; "
            "expand one of them; nothing is broadcast silently",
        ),
    ],
)
def test_mistakes_say_what_to_do(
    call: Callable[[], Any], error: type[EligibilityError], message: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_an_index_out_of_range_is_an_error_without_validation_too() -> None:
    policy = el.Categorical(logits=torch.zeros(2, 3), validate_args=False)
    with pytest.raises(InvalidValueError):
        policy.log_prob(torch.tensor([0, 3]))
    with pytest.raises(ShapeError):
        policy.log_prob(torch.tensor([[0], [1]]))


def test_nothing_is_drawn_from_nan_without_validation_too() -> None:
    bad = torch.tensor([[0.0, 1.0], [float("nan"), 1.0]])
    for dist in (
        el.Categorical(logits=bad, validate_args=False),
        el.Categorical(probs=bad, validate_args=False),
        el.OneHotCategorical(probs=-bad, validate_args=False),
        el.Multinomial(3, probs=bad, validate_args=False),
    ):
        with pytest.raises(InvalidValueError, match="got NaN, expected numbers"):
            dist.sample()


def test_eligibility_is_as_strict_as_log_prob() -> None:
    mask = torch.tensor([True, True, False])
    masked = el.Categorical(logits=torch.zeros(2, 3), mask=mask)
    for dist, value in (
        (ONE_HOT, torch.tensor([1, 0, 0])),
        (COUNTS, torch.ones(2, 3)),
        (COINS, torch.tensor([0, 5])),
        (masked, torch.tensor([0, 2])),
        (POLICY, torch.tensor([0.0, 1.0])),
    ):
        with pytest.raises(EligibilityError) as by_log_prob:
            dist.log_prob(value)
        with pytest.raises(EligibilityError) as by_eligibility:
            el.eligibility(dist, value)
        assert str(by_eligibility.value) == str(by_log_prob.value)


def test_one_value_may_serve_the_whole_batch() -> None:
    assert POLICY.log_prob(torch.tensor(1)).shape == (2,)
    assert COINS.log_prob(torch.tensor(1.0)).shape == (2,)
