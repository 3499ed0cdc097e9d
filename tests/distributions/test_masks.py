"""Illegal actions: never sampled, probability and gradient exactly 0, loud when they are chosen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

import eligibility as el

FAMILY = ["Categorical", "OneHotCategorical", "Multinomial"]
MASK = torch.tensor([[True, True, False, True], [False, True, True, False]])


def make(name: str, by: str) -> tuple[Distribution, Tensor]:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    at = (raw.exp() if by == "probs" else raw).requires_grad_()
    count = {"total_count": 3} if name == "Multinomial" else {}
    return getattr(el, name)(**count, **{by: at}, mask=MASK), at


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_masked_policies_equal_those_over_the_legal_actions_alone(name: str, by: str) -> None:
    dist, at = make(name, by)
    torch.manual_seed(0)
    value = dist.sample((50,))
    assert torch.equal(dist.probs[~MASK], torch.zeros(3, dtype=at.dtype))
    results = {"log_prob": dist.log_prob(value).sum(0), "entropy": dist.entropy()}
    if name != "Multinomial":
        results["kl"] = kl_divergence(
            dist, getattr(el, name)(probs=torch.ones(2, 4).double(), mask=MASK)
        )
    for row in range(2):
        legal = MASK[row]
        count = {"total_count": 3} if name == "Multinomial" else {}
        alone = getattr(el, name)(**count, **{by: at[row, legal]})
        if name == "Categorical":
            chosen = (legal.cumsum(0) - 1)[value[:, row]]
        else:
            chosen = value[:, row, legal]
        expected = {"log_prob": alone.log_prob(chosen).sum(0), "entropy": alone.entropy()}
        if name != "Multinomial":
            uniform = getattr(el, name)(probs=torch.ones(int(legal.sum())).double())
            expected["kl"] = kl_divergence(alone, uniform)
        for quantity, result in results.items():
            torch.testing.assert_close(result[row], expected[quantity])
            (ours,) = torch.autograd.grad(result[row], at, retain_graph=True)
            (theirs,) = torch.autograd.grad(expected[quantity], at, retain_graph=True)
            torch.testing.assert_close(ours, theirs)
            assert torch.equal(ours[~MASK], torch.zeros(3, dtype=at.dtype))


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_masked_eligibilities_are_the_gradients(name: str, by: str) -> None:
    dist, at = make(name, by)
    value = dist.sample()
    (slope,) = torch.autograd.grad(dist.log_prob(value).sum(), at)
    legal = dist.eligibility(value)[by][MASK]
    torch.testing.assert_close(legal, slope[MASK])


@pytest.mark.parametrize("by", ["probs", "logits"])
def test_choosing_an_illegal_action_is_an_error(by: str) -> None:
    dist, _ = make("Categorical", by)
    with pytest.raises(el.errors.InvalidValueError) as caught:
        dist.log_prob(torch.tensor([0, 3]))
    assert str(caught.value) == (
        "`value`: got the index 3 in row [1], which the mask forbids, expected indices that the "
        "mask allows; sample from the masked distribution, or give the row the weight 0"
    )
    counts, _ = make("Multinomial", by)
    with pytest.raises(el.errors.InvalidValueError) as caught:
        counts.log_prob(torch.tensor([[1, 1, 1, 0], [0, 3, 0, 0]]))
    assert str(caught.value) == (
        "`value`: got a count > 0 of a category that the mask forbids, expected counts of 0 there; "
        "sample from the masked distribution"
    )


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_a_row_without_a_legal_action_is_an_error(name: str, by: str) -> None:
    mask = torch.tensor([[True, False], [False, False]])
    with pytest.raises(el.errors.InvalidValueError) as caught:
        getattr(el, name)(**{by: torch.ones(2, 2)}, mask=mask)
    assert str(caught.value) == (
        "`mask`: got a row without a legal action in row [1], expected at least one True in each "
        "row; remove the row, or allow one action"
    )


def test_one_mask_serves_all_rows_and_survives_expand() -> None:
    mask = torch.tensor([True, False, True])
    dist = el.Categorical(logits=torch.zeros(2, 3), mask=mask).expand((4, 2))
    assert torch.equal(dist.probs, torch.tensor([0.5, 0.0, 0.5]).expand(4, 2, 3))
    with pytest.raises(el.errors.InvalidValueError):
        dist.log_prob(torch.ones(4, 2, dtype=torch.long))


def test_masked_padding_does_not_reach_the_network() -> None:
    """A weight of 0 on a legal placeholder keeps everything finite, in the loss and below it."""
    logits = torch.randn(2, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    dist = el.Categorical(logits=logits, mask=MASK)
    weight = torch.tensor([1.0, 0.0])
    loss = -(weight * dist.log_prob(torch.tensor([0, 1]))).sum()
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope.isfinite().all()
    assert torch.equal(slope[1], torch.zeros(4))
