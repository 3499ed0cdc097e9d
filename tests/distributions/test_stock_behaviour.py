"""Where torch's own classes are right, the drop-ins equal them: values, gradients, protocol."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributions as stock
from torch import Tensor
from torch.distributions import Distribution, Independent, kl_divergence

import eligibility as el

NAMES = ["Bernoulli", "Binomial", "Categorical", "OneHotCategorical", "Multinomial"]
TRIALS = 6


@dataclass(frozen=True)
class Pair:
    """The drop-in and torch's own distribution, each with a leaf of the same value."""

    ours: Distribution
    theirs: Distribution
    our_leaf: Tensor
    their_leaf: Tensor


def make(name: str, by: str, batch: tuple[int, ...], seed: int, **options: Any) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    event = () if name in ("Bernoulli", "Binomial") else (4,)
    raw = torch.randn(batch + event, generator=generator, dtype=torch.float64)
    if by == "probs":
        raw = raw.sigmoid() if not event else raw.exp() * 3
    count = {"total_count": TRIALS} if name in ("Binomial", "Multinomial") else {}
    leaves = [raw.clone().requires_grad_(), raw.clone().requires_grad_()]
    ours = getattr(el, name)(**count, **{by: leaves[0]}, **options)
    theirs = getattr(stock, name)(**count, **{by: leaves[1]}, **options)
    return Pair(ours, theirs, *leaves)


pairs = pytest.mark.parametrize("name", NAMES)
both = pytest.mark.parametrize("by", ["probs", "logits"])
batches = pytest.mark.parametrize("batch", [(), (3,), (2, 3)])


def agree(ours: Tensor, theirs: Tensor, pair: Pair, rtol: float = 1e-11) -> None:
    """Values, gradients under a random upstream, and gradients of those."""
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-12)
    upstream = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
    first = [
        torch.autograd.grad((r * upstream).sum(), leaf, create_graph=True)[0]
        for r, leaf in ((ours, pair.our_leaf), (theirs, pair.their_leaf))
    ]
    torch.testing.assert_close(first[0], first[1], rtol=1e-10, atol=1e-11)
    if first[1].requires_grad:
        second = [
            torch.autograd.grad(g.square().sum(), leaf, retain_graph=True)[0]
            for g, leaf in zip(first, (pair.our_leaf, pair.their_leaf), strict=True)
        ]
        torch.testing.assert_close(second[0], second[1], rtol=1e-9, atol=1e-10)


@pairs
@both
@batches
@pytest.mark.parametrize("samples", [(), (5,)])
def test_log_prob(name: str, by: str, batch: tuple[int, ...], samples: tuple[int, ...]) -> None:
    pair = make(name, by, batch, seed=3)
    torch.manual_seed(0)
    value = pair.theirs.sample(samples)
    agree(pair.ours.log_prob(value), pair.theirs.log_prob(value), pair)


@pairs
@both
@batches
def test_entropy(name: str, by: str, batch: tuple[int, ...]) -> None:
    pair = make(name, by, batch, seed=4)
    # torch computes log n! of a multinomial in float32; test_exactness has the exact value
    rtol = 1e-7 if name == "Multinomial" else 1e-11
    agree(pair.ours.entropy(), pair.theirs.entropy(), pair, rtol)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Multinomial"])
@both
@pytest.mark.parametrize("mixed", ["ours", "stock first", "stock second"])
def test_kl_divergence(name: str, by: str, mixed: str) -> None:
    p, q = make(name, by, (3,), seed=5), make(name, by, (3,), seed=6)
    first = p.theirs if mixed == "stock first" else p.ours
    second = q.theirs if mixed == "stock second" else q.ours
    leaf = p.their_leaf if mixed == "stock first" else p.our_leaf
    mine, other = kl_divergence(first, second), kl_divergence(p.theirs, q.theirs)
    torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)
    (g,) = torch.autograd.grad(mine.sum(), leaf, retain_graph=True)
    (h,) = torch.autograd.grad(other.sum(), p.their_leaf)
    torch.testing.assert_close(g, h, rtol=1e-10, atol=1e-11)


def test_kl_of_multinomials_is_n_times_that_of_one_draw() -> None:
    p, q = (make("Multinomial", "logits", (3,), seed=s).ours for s in (5, 6))
    one = kl_divergence(el.Categorical(logits=p.logits), el.Categorical(logits=q.logits))
    torch.testing.assert_close(kl_divergence(p, q), TRIALS * one)


@pairs
@both
@pytest.mark.parametrize("attribute", ["mean", "variance", "stddev", "probs", "logits"])
def test_moments_and_parameters(name: str, by: str, attribute: str) -> None:
    pair = make(name, by, (2, 3), seed=7)
    ours, theirs = getattr(pair.ours, attribute), getattr(pair.theirs, attribute)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12, equal_nan=True)


@pairs
@both
def test_mode_support_and_shapes(name: str, by: str) -> None:
    pair = make(name, by, (2, 3), seed=8)
    ours, theirs = pair.ours, pair.theirs
    assert isinstance(ours, getattr(stock, name))
    assert ours.batch_shape == theirs.batch_shape
    assert ours.event_shape == theirs.event_shape
    assert ours.param_shape == theirs.param_shape
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    assert str(ours.support) == str(theirs.support)
    if name != "Multinomial":
        assert torch.equal(ours.mode, theirs.mode)
    if ours.has_enumerate_support:
        for expand in (True, False):
            assert torch.equal(ours.enumerate_support(expand), theirs.enumerate_support(expand))


@pairs
@both
def test_samples_have_the_shape_and_dtype_of_torch_and_are_seeded(name: str, by: str) -> None:
    pair = make(name, by, (2, 3), seed=9)
    for shape in ((), (5,), (5, 4)):
        ours, theirs = pair.ours.sample(shape), pair.theirs.sample(shape)
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert not ours.requires_grad
    drawn = [pair.ours.sample((9,), generator=torch.Generator().manual_seed(1)) for _ in "ab"]
    assert torch.equal(drawn[0], drawn[1])


@pairs
@both
def test_expanded_distributions_agree(name: str, by: str) -> None:
    pair = make(name, by, (3,), seed=10)
    ours, theirs = pair.ours.expand((2, 3)), pair.theirs.expand(torch.Size((2, 3)))
    assert type(ours) is type(pair.ours)
    assert ours.batch_shape == theirs.batch_shape
    value = theirs.sample((4,))
    agree(ours.log_prob(value), theirs.log_prob(value), pair)
    assert ours.sample((4,)).shape == value.shape
    given, rows = el.eligibility(ours, value), value.reshape(8, *value.shape[2:])
    assert list(given) == [by]
    unexpanded = el.eligibility(pair.ours, rows)[by]
    assert torch.equal(given[by], unexpanded.reshape(given[by].shape))


@pairs
@both
def test_independent_and_repr(name: str, by: str) -> None:
    pair = make(name, by, (3,), seed=11)
    value = pair.theirs.sample()
    ours, theirs = Independent(pair.ours, 1), Independent(pair.theirs, 1)
    torch.testing.assert_close(ours.log_prob(value), theirs.log_prob(value))
    torch.testing.assert_close(kl_divergence(ours, ours), torch.zeros(()).double())
    assert repr(pair.ours).startswith(f"{name}({by}: [3")


@pairs
@both
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_copies_behave_as_the_original(name: str, by: str, clone: Any) -> None:
    shape = (3,) if name in ("Bernoulli", "Binomial") else (3, 4)
    raw = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    dist = getattr(el, name)(**{by: raw})
    dist.entropy()
    twin = clone(dist)
    value = dist.sample()
    assert torch.equal(twin.log_prob(value), dist.log_prob(value))
    assert el.eligibility(twin, value).keys() == el.eligibility(dist, value).keys() == {by}


@pairs
def test_results_have_the_dtype_of_the_parameter(name: str) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        event = () if name in ("Bernoulli", "Binomial") else (3,)
        dist = getattr(el, name)(logits=torch.zeros(2, *event, dtype=dtype))
        value = dist.sample()
        for tensor in (dist.log_prob(value), dist.entropy(), dist.probs, dist.mean):
            assert tensor.dtype == dtype


@pairs
def test_default_validation_follows_torch(name: str) -> None:
    bad = torch.full((2,) if name in ("Bernoulli", "Binomial") else (2, 3), float("nan"))
    with pytest.raises(el.errors.InvalidValueError):
        getattr(el, name)(logits=bad)
    getattr(el, name)(logits=bad, validate_args=False)
    try:
        Distribution.set_default_validate_args(False)
        getattr(el, name)(logits=bad)
    finally:
        Distribution.set_default_validate_args(True)


def test_coins_take_numbers() -> None:
    assert el.Bernoulli(probs=0.25).mean == 0.25
    assert el.Binomial(3, logits=0).mean == 1.5


def test_empty_batches() -> None:
    dist = el.Categorical(logits=torch.zeros(0, 3))
    assert dist.sample().shape == (0,)
    assert dist.log_prob(torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert dist.entropy().shape == (0,)
    assert el.Multinomial(3, probs=torch.ones(0, 3)).sample((2,)).shape == (2, 0, 3)
    assert el.Binomial(3, probs=torch.ones(0)).entropy().shape == (0,)
