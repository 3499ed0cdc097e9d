"""The cases in which stock torch.distributions is wrong or silent, against exact values."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.distributions import kl_divergence

import eligibility as el

INF = math.inf


def gradient(of: Tensor, at: Tensor) -> list[float]:
    (result,) = torch.autograd.grad(of.sum(), at, retain_graph=True)
    return result.flatten().tolist()


def leaf(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def test_weight_zero_is_impossible_and_its_gradient_infinite() -> None:
    probs = leaf(0.0, 0.3, 0.7)
    log_prob = el.Categorical(probs=probs).log_prob(torch.tensor(0))
    assert log_prob == -INF
    assert gradient(log_prob, probs) == pytest.approx([INF, -1, -1])


def test_certain_category_has_a_gradient() -> None:
    probs = leaf(1.0, 0.0, 0.0)
    assert gradient(el.Categorical(probs=probs).log_prob(torch.tensor(0)), probs) == [0, -1, -1]


def test_tiny_probability_of_a_coin_is_not_clamped() -> None:
    probs = leaf(1e-9)
    log_prob = el.Bernoulli(probs=probs).log_prob(torch.ones(1))
    assert log_prob.item() == pytest.approx(math.log(1e-9), rel=1e-7)
    assert gradient(log_prob, probs) == pytest.approx([1e9], rel=1e-6)
    assert el.Bernoulli(probs=1e-9).log_prob(torch.tensor(0.0)).item() == pytest.approx(-1e-9)


def test_small_weight_in_bfloat16() -> None:
    probs = leaf(0.001, 0.999, dtype=torch.bfloat16)
    held = probs.detach().double()
    slope = gradient(el.Categorical(probs=probs).log_prob(torch.tensor(0)), probs)
    exact = [float(1 / held[0] - 1 / held.sum()), float(-1 / held.sum())]
    assert slope == pytest.approx(exact, rel=2**-8)


def test_binomial_without_chance() -> None:
    probs = leaf(0.0)
    log_prob = el.Binomial(5, probs=probs).log_prob(torch.zeros(1))
    assert log_prob == 0
    assert gradient(log_prob, probs) == [-5]
    certain = leaf(1.0)
    assert gradient(el.Binomial(5, probs=certain).log_prob(torch.full((1,), 5)), certain) == [5]


@pytest.mark.parametrize(
    ("dtype", "logit"), [(torch.float32, 20.0), (torch.bfloat16, 9.0), (torch.float16, 9.0)]
)
def test_confident_coin_keeps_its_gradient(dtype: torch.dtype, logit: float) -> None:
    for sign in (1, -1):
        logits = leaf(sign * logit, dtype=dtype)
        outcome = torch.tensor([float(sign > 0)])
        slope = gradient(el.Bernoulli(logits=logits).log_prob(outcome), logits)
        exact = sign / (1 + math.exp(logit))
        assert slope == pytest.approx([exact], rel=float(torch.finfo(dtype).eps))
        many = gradient(el.Binomial(7, logits=logits).log_prob(7 * outcome), logits)
        assert many == pytest.approx([7 * exact], rel=2 * float(torch.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradient_through_a_saturated_softmax(dtype: torch.dtype) -> None:
    # exp(−margin) is a normal number of the dtype, far below where torch clamps
    margin = {torch.float16: 9.0}.get(dtype, 60.0)
    logits = leaf(0.0, -margin, dtype=dtype)
    policy = el.Categorical(probs=torch.softmax(logits, -1))
    slope = gradient(policy.log_prob(torch.tensor(1)), logits)
    assert slope == pytest.approx([-1, 1], rel=4 * float(torch.finfo(dtype).eps))


def test_infinite_log_odds_are_certain() -> None:
    logits = leaf(INF, -INF)
    coin = el.Bernoulli(logits=logits)
    assert coin.log_prob(torch.tensor([1.0, 0.0])).tolist() == [0, 0]
    assert coin.log_prob(torch.tensor([0.0, 1.0])).tolist() == [-INF, -INF]
    assert gradient(coin.log_prob(torch.tensor([0.0, 1.0])), logits) == [-1, 1]
    assert coin.entropy().tolist() == [0, 0]
    assert gradient(coin.entropy(), logits) == [0, 0]
    assert gradient(el.Binomial(3, logits=logits).entropy(), logits) == [0, 0]


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e-3])
@pytest.mark.parametrize("name", ["Categorical", "OneHotCategorical", "Multinomial"])
def test_weights_are_kept_as_given(name: str, scale: float) -> None:
    weights = leaf(0.69 * scale, 0.1 * scale, 0.2 * scale, 0.01 * scale, dtype=torch.float64)
    dist = getattr(el, name)(probs=weights)
    value = torch.tensor(0) if name == "Categorical" else torch.tensor([1, 0, 0, 0])
    expected = [(1 / 0.69 - 1) / scale, *[-1 / scale] * 3]
    assert gradient(dist.log_prob(value), weights) == pytest.approx(expected)
    for result in (el.eligibility(dist, value), dist.eligibility(value)):
        assert result["probs"].tolist() == pytest.approx(expected)
    one = getattr(el, name)(probs=weights.detach() / scale).fisher_information()["probs"]
    torch.testing.assert_close(dist.fisher_information()["probs"].detach() * scale**2, one)
    assert dist.probs.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", ["Bernoulli", "Binomial", "Categorical", "OneHotCategorical"])
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_eligibility_is_the_gradient_and_fisher_its_second_moment(name: str, by: str) -> None:
    generator = torch.Generator().manual_seed(2)
    event = () if name in ("Bernoulli", "Binomial") else (3,)
    raw = torch.rand((2, *event), generator=generator, dtype=torch.float64).requires_grad_()
    dist = getattr(el, name)(**({"total_count": 4} if name == "Binomial" else {}), **{by: raw})
    outcomes = dist.enumerate_support()
    log_prob = dist.log_prob(outcomes)
    second = torch.zeros(())
    for outcome, chance in zip(outcomes, log_prob.exp(), strict=True):
        (slope,) = torch.autograd.grad(dist.log_prob(outcome).sum(), raw, retain_graph=True)
        torch.testing.assert_close(dist.eligibility(outcome)[by], slope)
        square = slope**2 if not event else slope.unsqueeze(-1) * slope.unsqueeze(-2)
        second = second + chance.reshape(2, *(1 for _ in square.shape[1:])) * square
    torch.testing.assert_close(dist.fisher_information()[by], second)


def test_a_row_may_have_its_own_total_count() -> None:
    counts = torch.tensor([[2, 1, 0], [0, 0, 0], [1, 1, 3]])
    totals = counts.sum(-1)
    logits = torch.arange(9.0).double().reshape(3, 3).sin().requires_grad_()
    dist = el.Multinomial(totals, logits=logits)
    alone = [
        torch.distributions.Multinomial(int(n), logits=row).log_prob(y)
        for n, row, y in zip(totals, logits, counts, strict=True)
        if n > 0
    ]
    torch.testing.assert_close(dist.log_prob(counts)[[0, 2]], torch.stack(alone))
    assert dist.log_prob(counts)[1] == 0
    expected = counts - totals.unsqueeze(-1) * logits.softmax(-1)
    (slope,) = torch.autograd.grad(dist.log_prob(counts).sum(), logits)
    torch.testing.assert_close(slope, expected.detach())
    torch.testing.assert_close(dist.eligibility(counts)["logits"], expected)
    assert torch.equal(dist.sample((20,)).sum(-1), totals.expand(20, 3).double())
    coins = el.Binomial(totals, probs=torch.full((3,), 0.3).double())
    apart = [torch.distributions.Binomial(int(n), torch.tensor(0.3).double()) for n in totals]
    torch.testing.assert_close(coins.entropy(), torch.stack([d.entropy() for d in apart]))


@pytest.mark.parametrize("weights", [(0.2, 0.5, 0.3), (0.0, 0.4, 0.6), (0.0, 0.0, 1.0)])
def test_multinomial_entropy_equals_the_sum_over_all_counts(weights: tuple[float, ...]) -> None:
    probs = leaf(*weights, dtype=torch.float64)
    dist = el.Multinomial(4, probs=probs)
    expected = mpf(0)
    with mp.workdps(30):
        for counts in itertools.product(range(5), repeat=3):
            if sum(counts) == 4:
                mass = mp.factorial(4)
                for y, w in zip(counts, weights, strict=True):
                    mass *= mpf(w) ** y / mp.factorial(y)
                expected -= mass * mp.log(mass) if mass > 0 else 0
    assert dist.entropy().item() == pytest.approx(float(expected), rel=1e-13, abs=1e-13)
    assert all(map(math.isfinite, gradient(dist.entropy(), probs)))


def test_kl_of_equally_masked_policies_has_a_finite_gradient() -> None:
    mask = torch.tensor([True, True, False])
    first, second = leaf(0.1, 0.9, 5.0), leaf(0.5, -0.5, -5.0)
    p, q = (el.Categorical(logits=z, mask=mask) for z in (first, second))
    divergence = kl_divergence(p, q)
    legal = [torch.distributions.Categorical(logits=z[:2]) for z in (first, second)]
    torch.testing.assert_close(divergence, kl_divergence(*legal))
    slope = gradient(divergence, first)
    assert slope[2] == 0
    assert slope[:2] == pytest.approx(gradient(kl_divergence(*legal), first)[:2])


@pytest.mark.parametrize("by", ["probs", "logits"])
def test_factorials_of_large_counts_do_not_swallow_the_log_probability(by: str) -> None:
    """In float32 log n! of a million is known to ±1 only, and torch's log_prob to no better."""
    n, y = 1_000_000, 299_000
    at = leaf(0.3) if by == "probs" else leaf(-0.8)
    with mp.workdps(40):
        held = mpf(at.item())
        p = held if by == "probs" else 1 / (1 + mp.exp(-held))
        exact = mp.log(mp.binomial(n, y)) + y * mp.log(p) + (n - y) * mp.log(1 - p)
    coins = el.Binomial(n, **{by: at}).log_prob(torch.tensor([float(y)]))
    assert coins.item() == pytest.approx(float(exact), rel=1e-6)
    pair = torch.cat([at, 1 - at if by == "probs" else torch.zeros(1)]).detach()
    counts = torch.tensor([y, n - y])
    single, double = (el.Multinomial(n, **{by: x}).log_prob(counts) for x in (pair, pair.double()))
    assert single.item() == pytest.approx(double.item(), rel=1e-6)


def test_certain_distributions_have_finite_gradients() -> None:
    for by in ("probs", "logits"):
        edge = (1.0, 0.0, 0.0) if by == "probs" else (0.0, -INF, -INF)
        at = leaf(*edge)
        policy = el.Categorical(**{by: at})
        assert policy.entropy() == 0
        assert all(map(math.isfinite, gradient(policy.entropy(), at)))
        assert all(map(math.isfinite, gradient(kl_divergence(policy, policy), at)))
        assert all(map(math.isfinite, gradient(policy.logits[:1], at)))
    coin = leaf(0.0, 1.0)
    assert el.Bernoulli(probs=coin).entropy().tolist() == [0, 0]
    assert gradient(el.Bernoulli(probs=coin).entropy(), coin) == [1, -1]  # of the likely outcome


def test_kl_of_binomials_with_different_counts() -> None:
    few, many = el.Binomial(2, probs=0.5), el.Binomial(3, probs=0.5)
    assert kl_divergence(many, few) == INF
    with pytest.raises(el.errors.InvalidValueError) as caught:
        kl_divergence(few, many)
    assert str(caught.value) == (
        "`total_count` of the first distribution: got fewer draws than the second distribution, "
        "expected equal numbers of draws; "
        "a divergence between different numbers of draws has no closed form"
    )


def test_impossible_outcomes_of_coins_are_never_drawn() -> None:
    probs = torch.tensor([0.0, 1.0, 1e-300], dtype=torch.float64)
    for dist, top in ((el.Bernoulli(probs=probs), 1.0), (el.Binomial(5, probs=probs), 5.0)):
        drawn = dist.sample((100_000,))
        assert torch.equal(drawn.amin(0), torch.tensor([0.0, top, 0.0]).double())
        assert torch.equal(drawn.amax(0), torch.tensor([0.0, top, 0.0]).double())


def test_explanations_show_the_weights_as_given() -> None:
    policy = el.Categorical(probs=torch.tensor([1.0, 2.0, 3.0]))
    explanation = el.explain(policy, value=torch.tensor(1))
    assert "Categorical(probs=[1 2 3]) at 1" in explanation.text()
