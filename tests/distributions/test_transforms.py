"""The drop-ins under vmap, torch.func and autocast; torch.compile: `tests.compiled`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.func import grad, hessian, jvp, vmap

import eligibility as el

# Forward-mode differentiation in torch 2.13 compiles its decompositions with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

NAMES = ["Bernoulli", "Binomial", "Categorical", "OneHotCategorical", "Multinomial"]


def problem(name: str, by: str) -> tuple[Tensor, Tensor]:
    """Parameters and an outcome for each of 5 rows."""
    generator = torch.Generator().manual_seed(0)
    event = () if name in ("Bernoulli", "Binomial") else (4,)
    raw = torch.rand((5, *event), generator=generator, dtype=torch.float64) * 0.8 + 0.1
    torch.manual_seed(0)
    return raw, make(name, by, raw).sample()


def make(name: str, by: str, raw: Tensor) -> torch.distributions.Distribution:
    count = {"total_count": 3} if name in ("Binomial", "Multinomial") else {}
    return getattr(el, name)(**count, **{by: raw})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_vmapped_gradients_are_the_eligibilities(name: str, by: str) -> None:
    raw, value = problem(name, by)

    def log_prob(raw: Tensor, value: Tensor) -> Tensor:
        return make(name, by, raw).log_prob(value)

    expected = el.eligibility(make(name, by, raw), value)[by]
    torch.testing.assert_close(vmap(grad(log_prob))(raw, value), expected)
    direction = torch.ones_like(raw)
    slope = jvp(lambda raw: log_prob(raw, value), (raw,), (direction,))[1]
    torch.testing.assert_close(slope, expected.reshape(5, -1).sum(-1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_first_and_second_derivatives(name: str, by: str) -> None:
    raw, value = problem(name, by)
    raw.requires_grad_()
    other = make(name, by, raw.detach().flip(0))

    def total(raw: Tensor) -> Tensor:
        dist = make(name, by, raw)
        return dist.log_prob(value) + dist.entropy() + kl_divergence(dist, other)

    assert torch.autograd.gradcheck(total, raw)
    assert torch.autograd.gradgradcheck(total, raw)


def test_hessian_of_the_entropy_of_a_fair_coin() -> None:
    curvature = hessian(lambda logit: el.Bernoulli(logits=logit).entropy())(
        torch.tensor(0.0).double()
    )
    torch.testing.assert_close(curvature, torch.tensor(-0.25).double())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", ["probs", "logits"])
def test_eligibilities_under_vmap(name: str, by: str) -> None:
    raw, value = problem(name, by)
    each = vmap(lambda raw, value: make(name, by, raw).eligibility(value)[by])(raw, value)
    torch.testing.assert_close(each, make(name, by, raw).eligibility(value)[by])


def test_samples_under_vmap() -> None:
    probs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    draw = vmap(lambda p: el.Categorical(probs=p).sample((3,)), randomness="different")
    assert torch.equal(draw(probs), torch.tensor([[1, 1, 1], [0, 0, 0]]))


@pytest.mark.parametrize("name", NAMES)
def test_autocast_changes_nothing_in_float32(name: str) -> None:
    raw, value = problem(name, "logits")
    raw = raw.float()
    with torch.autocast("cpu", torch.bfloat16):
        dist = make(name, "logits", raw)
        inside = dist.log_prob(value), dist.entropy()
    outside = make(name, "logits", raw)
    torch.testing.assert_close(inside, (outside.log_prob(value), outside.entropy()))
