"""The categorical family: Categorical, OneHotCategorical, Multinomial."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Multinomial, OneHotCategorical

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.rules import multinomial

COORDINATES = ["weights", "ambient", "free", "tangent"]

sizes = st.integers(2, 6)


@st.composite
def counts_and_weights(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    categories = draw(sizes)
    counts = draw(st.lists(st.integers(0, 9), min_size=categories, max_size=categories))
    weights = draw(st.lists(st.floats(0.01, 100), min_size=categories, max_size=categories))
    return torch.tensor(counts), torch.tensor(weights, dtype=torch.float64)


def test_the_forum_snippet_to_the_last_printed_digit() -> None:
    """discuss.pytorch.org t/117395: what one prints, and the rule that makes it."""
    probs = torch.tensor([[0.69, 0.1, 0.2, 0.01]], requires_grad=True)
    dist = Categorical(probs=probs)
    log_prob = dist.log_prob(torch.tensor([0]))
    log_prob.retain_grad()
    prob = torch.exp(log_prob)
    prob.retain_grad()
    prob.backward()
    assert str(log_prob.detach()) == "tensor([-0.3711])"
    assert str(prob.detach()) == "tensor([0.6900])"
    assert str(probs.grad) == "tensor([[ 0.3100, -0.6900, -0.6900, -0.6900]])"
    assert str(log_prob.grad) == "tensor([0.6900])"
    assert str(prob.grad) == "tensor([1.])"
    rule = el.eligibility(dist, torch.tensor([0]))["probs"].detach()
    assert str(prob.detach() * rule) == str(probs.grad)


def test_the_forum_snippet_in_exact_fractions() -> None:
    """p₀(1/p₀ − 1) = 31/100 for what was drawn, p₀(−1) = −69/100 for what was not."""
    weights = [Fraction(69, 100), Fraction(1, 10), Fraction(1, 5), Fraction(1, 100)]
    total = sum(weights)
    exact = [(Fraction(k == 0) / w - 1 / total) * weights[0] for k, w in enumerate(weights)]
    assert exact == [Fraction(31, 100)] + [Fraction(-69, 100)] * 3
    rule = multinomial.eligibility_weights(
        torch.tensor([1, 0, 0, 0]), torch.tensor([float(w) for w in weights], dtype=torch.float64)
    )
    torch.testing.assert_close(
        0.69 * rule, torch.tensor([float(e) for e in exact], dtype=torch.float64)
    )


@given(counts_and_weights())
def test_logits_entries_sum_to_zero(drawn: tuple[Tensor, Tensor]) -> None:
    counts, weights = drawn
    eligibility = multinomial.eligibility_logits(counts, weights.log())
    assert abs(float(eligibility.sum())) < 1e-12 * (1 + float(counts.sum()))


@given(counts_and_weights(), st.floats(-50, 50))
def test_logits_may_be_shifted(drawn: tuple[Tensor, Tensor], shift: float) -> None:
    counts, weights = drawn
    torch.testing.assert_close(
        multinomial.eligibility_logits(counts, weights.log() + shift),
        multinomial.eligibility_logits(counts, weights.log()),
        rtol=1e-9,
        atol=1e-9,
    )


@given(counts_and_weights())
def test_weights_are_orthogonal_to_the_eligibility(drawn: tuple[Tensor, Tensor]) -> None:
    counts, weights = drawn
    terms = weights * multinomial.eligibility_weights(counts, weights)
    assert abs(float(terms.sum())) < 1e-12 * (1 + float(terms.abs().sum()))


@given(counts_and_weights())
def test_hundredfold_weights_give_a_hundredth(drawn: tuple[Tensor, Tensor]) -> None:
    counts, weights = drawn
    torch.testing.assert_close(
        multinomial.eligibility_weights(counts, 100 * weights),
        multinomial.eligibility_weights(counts, weights) / 100,
        rtol=1e-12,
        atol=1e-11,
    )


@given(counts_and_weights(), st.randoms())
def test_permuted_categories_permute_the_eligibility(
    drawn: tuple[Tensor, Tensor], random: Random
) -> None:
    counts, weights = drawn
    order = torch.tensor(sorted(range(len(counts)), key=lambda _: random.random()))
    for rule in (multinomial.eligibility_weights, multinomial.eligibility_tangent):
        torch.testing.assert_close(
            rule(counts[order], weights[order]), rule(counts, weights)[order], rtol=1e-9, atol=1e-9
        )


@given(counts_and_weights())
def test_all_coordinates_agree_once_chained_through_softmax(drawn: tuple[Tensor, Tensor]) -> None:
    """∂π_k/∂z_j = π_k([k = j] − π_j); the free ones move π_K = 1 − Σ π along."""
    counts, weights = drawn
    probs = weights / weights.sum()
    jacobian = torch.diag(probs) - torch.outer(probs, probs)
    expected = counts - counts.sum() * probs
    for coordinates in ("weights", "ambient", "tangent", "free"):
        rule = getattr(multinomial, f"eligibility_{coordinates}")(counts, probs)
        chained = rule @ (jacobian[:-1] if coordinates == "free" else jacobian)
        torch.testing.assert_close(chained, expected, rtol=1e-8, atol=1e-8)


@given(counts_and_weights())
def test_tangent_is_the_projection_of_both_others(drawn: tuple[Tensor, Tensor]) -> None:
    counts, weights = drawn
    tangent = multinomial.eligibility_tangent(counts, weights)
    for rule in (multinomial.eligibility_weights, multinomial.eligibility_ambient):
        other = rule(counts, weights)
        torch.testing.assert_close(tangent, other - other.mean(), rtol=1e-9, atol=1e-9)


def test_free_coordinates_are_the_vector_form_of_proposition_1() -> None:
    """Σ⁻¹(y − n p), with Σ the covariance of the first K − 1 entries of one draw."""
    probs = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    counts = torch.tensor([3, 1, 2])
    free = probs[:-1]
    covariance = torch.diag(free) - torch.outer(free, free)
    expected = torch.linalg.solve(covariance, counts[:-1] - counts.sum() * free)
    torch.testing.assert_close(multinomial.eligibility_free(counts, probs), expected)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_index_one_hot_and_counts_agree(coordinates: str) -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    action = torch.tensor([2, 0])
    one_hot = torch.nn.functional.one_hot(action, 3)
    by_index = el.eligibility(Categorical(probs), action, "probs", coordinates)
    by_one_hot = el.eligibility(OneHotCategorical(probs), one_hot, "probs", coordinates)
    by_counts = el.eligibility(Multinomial(1, probs), one_hot, "probs", coordinates)
    torch.testing.assert_close(by_index, by_one_hot)
    torch.testing.assert_close(by_index, by_counts)


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        ("weights", [math.inf, -1, -1]),
        ("ambient", [math.inf, 0, 0]),
        ("free", [math.inf, 0]),
        ("tangent", [math.inf, -math.inf, -math.inf]),
    ],
)
def test_an_impossible_category_was_drawn(coordinates: str, expected: list[float]) -> None:
    dist = Categorical(probs=torch.tensor([0.0, 0.25, 0.75]))
    assert el.eligibility(dist, torch.tensor(0), "probs", coordinates)["probs"].tolist() == expected


def test_a_certain_category_was_drawn() -> None:
    dist = Categorical(probs=torch.tensor([1.0, 0, 0]))
    assert el.eligibility(dist, torch.tensor(0))["probs"].tolist() == [0, -1, -1]


def test_bfloat16_rounds_once() -> None:
    probs = torch.tensor([0.001, 0.999], dtype=torch.bfloat16)
    dist = Categorical(probs=probs)
    stored = dist.probs.double()
    exact = torch.stack([(1 - stored[0]) / stored[0], -torch.ones((), dtype=torch.float64)])
    assert torch.equal(el.eligibility(dist, torch.tensor(0))["probs"], exact.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_saturated_logits_keep_their_eligibility(dtype: torch.dtype) -> None:
    """``Categorical(probs=softmax(z))`` of torch gives exactly 0 here: its clamp cuts it off."""
    gap = {torch.float64: 60.0, torch.float32: 40.0, torch.bfloat16: 40.0, torch.float16: 9.0}
    logits = torch.tensor([gap[dtype], 0.0], dtype=dtype)
    eligibility = el.eligibility(Categorical(logits=logits), torch.tensor(0))["logits"]
    exact = 1 / (1 + math.exp(gap[dtype]))
    torch.testing.assert_close(
        eligibility.double(),
        torch.tensor([exact, -exact], dtype=torch.float64),
        rtol=8 * torch.finfo(dtype).eps,
        atol=0,
    )


def test_forbidden_categories_take_no_part() -> None:
    logits = torch.tensor([0.5, -math.inf, 1.5])
    eligibility = multinomial.eligibility_logits(torch.tensor([1, 0, 0]), logits)
    allowed = multinomial.eligibility_logits(torch.tensor([1, 0]), logits[[0, 2]])
    assert eligibility[1] == 0
    torch.testing.assert_close(eligibility[[0, 2]], allowed)


def test_weights_of_every_magnitude() -> None:
    weights = torch.tensor([1e-30, 1e-30])
    eligibility = multinomial.eligibility_weights(torch.tensor([1, 0]), weights)
    torch.testing.assert_close(eligibility, torch.tensor([5e29, -5e29]))


def test_unknown_coordinates_are_named() -> None:
    dist = Categorical(probs=torch.tensor([0.5, 0.5]))
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(dist, torch.tensor(0), "probs", "polar")
    assert str(caught.value) == (
        "`coordinates` of the probs of Categorical: got 'polar', expected 'weights' or "
        "'ambient' or 'free' or 'tangent'; see the documentation of eligibility.rules.multinomial"
    )


def test_logits_have_one_convention() -> None:
    dist = Categorical(logits=torch.zeros(2))
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(dist, torch.tensor(0), "logits", "tangent")
    assert str(caught.value) == (
        "`coordinates` of the logits of Categorical: got 'tangent', expected none, because the "
        "parameter has only one convention; see the documentation of eligibility.rules.multinomial"
    )
