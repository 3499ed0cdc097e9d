"""Mistakes in the arguments of the linear operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from tests.ops.linear_definition import Case, V


def message(call: Callable[[], Any], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_errors_name_the_argument_and_the_remedy() -> None:
    case = Case(23)
    hidden, weight, token = case.inputs
    assert message(lambda: el.linear_log_prob(hidden, weight.t(), token), ShapeError) == (
        "`hidden`: got 8 features, expected D = 37, the width of weight [8, 37]; pass the hidden "
        "states that the last layer multiplies; the weight is [V, D]"
    )
    assert message(lambda: el.linear_log_prob(hidden, weight.float(), token), InvalidTypeError) == (
        "`weight`: got dtype float32, expected float64, the dtype of hidden; convert one of them, "
        "for instance with weight.to(hidden.dtype)"
    )
    assert message(lambda: el.linear_log_prob(hidden, weight, token + V), InvalidValueError) == (
        f"`token`: got a maximum of {int(token.max()) + V}, expected indices in [0, 37), or "
        "ignore_index = -100; weight has V = 37 rows, one for each token"
    )
    assert message(
        lambda: el.linear_log_prob(hidden, weight, token, temperature=0.0), InvalidValueError
    ) == ("`temperature`: got 0, expected a finite number > 0; choose a positive one")
    mask = case.mask()
    mask[3, token[3]] = False
    assert message(
        lambda: el.linear_log_prob(hidden, weight, token, mask=mask), InvalidValueError
    ) == (
        f"`token`: got token {int(token[3])} in row 3, which its mask forbids, expected tokens "
        "that the mask allows; an illegal token has probability 0: correct the mask, or set the "
        "token to ignore_index"
    )
    assert message(
        lambda: el.linear_reinforce_loss(hidden, weight, token, case.advantage[:, None]), ShapeError
    ) == (
        "`advantage`: got shape [23, 1], expected [23], one number for each token; reshape it; "
        "nothing is broadcast silently"
    )
    assert (
        message(
            # unwrapped: the checks of annotations during tests would come first
            lambda: inspect.unwrap(el.linear_reinforce_loss)(
                hidden, weight, token, case.advantage, reduction="average"
            ),
            InvalidValueError,
        )
        == "`reduction`: got 'average', expected 'mean', 'sum', 'sequence' or 'none'; "
        "choose one of them"
    )
    assert message(lambda: el.linear_log_prob(hidden, weight[0], token), ShapeError) == (
        "`weight`: got shape [8], expected hidden [*batch, D] and weight [V, D] with V >= 1; the "
        "unembedding has one row per token of the vocabulary"
    )
    assert message(
        lambda: el.linear_log_prob(hidden, weight, token, mask=case.mask().to_sparse()),
        InvalidTypeError,
    ) == (
        "`mask`: got layout torch.sparse_coo, expected a dense or a CSR tensor; "
        "call .to_sparse_csr()"
    )
    clipped = (hidden, weight, token, case.advantage, case.advantage)
    assert message(
        lambda: inspect.unwrap(el.linear_clipped_policy_loss)(*clipped, kl_estimator="k4"),
        InvalidValueError,
    ) == ("`kl_estimator`: got 'k4', expected 'k1', 'k2', 'k3' or 'exact'; choose one of them")
    assert message(
        lambda: el.linear_clipped_policy_loss(*clipped, clip=(1.2, 0.2)), InvalidValueError
    ) == (
        "`clip`: got (1.2, 0.2), expected (ε₋, ε₊) with 0 <= ε₋ <= 1 and ε₊ >= 0; pass how far the "
        "ratio may leave 1, below and above"
    )
    assert message(
        lambda: el.linear_clipped_policy_loss(*clipped, kl_coef=0.1), InvalidValueError
    ) == (
        "`kl_coef`: got 0.1 without ref_log_prob, expected the reference's log-probabilities; pass "
        "ref_log_prob, or leave kl_coef at 0"
    )
