"""Higher and transformed derivatives of the linear operations equal those of the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import eligibility as el
from tests.ops.linear_definition import Case, D, N, assert_same, definition, gradients

# Forward-mode differentiation in torch 2.13 compiles its decompositions with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def test_second_derivatives_equal_those_of_the_definition() -> None:
    case = Case(9, rows=4, vocabulary=5, features=3)
    direction = case.normal(4, 3)

    def hessian_vector(loss: Tensor) -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(loss, case.hidden, create_graph=True)
        return gradients((first * direction).sum(), case.hidden, case.weight)

    result = definition(*case.inputs)
    loss = -(case.advantage * result.log_prob + 0.1 * result.entropy)
    wanted = hessian_vector(loss.sum())
    for reduction in ("sum", "none"):
        found = el.linear_reinforce_loss(
            *case.inputs, case.advantage, entropy_coef=0.1, reduction=reduction
        )
        assert_same(hessian_vector(found.sum()), wanted)


def test_gradgradcheck() -> None:
    case = Case(10, rows=3, vocabulary=4, features=2)

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        result = el.linear_statistics(hidden, weight, case.token, bias=bias, softcap=3.0)
        return result.log_prob + 0.5 * result.entropy + 0.1 * result.log_normalizer

    assert torch.autograd.gradcheck(function, (case.hidden, case.weight, case.bias))
    assert torch.autograd.gradgradcheck(function, (case.hidden, case.weight, case.bias))


def test_transforms_of_torch_func_equal_those_of_the_definition() -> None:
    case = Case(11, rows=4, vocabulary=5, features=3)
    hidden, weight = case.hidden.detach(), case.weight.detach()

    def fast(h: Tensor, w: Tensor) -> Tensor:
        return el.linear_reinforce_loss(h, w, case.token, case.advantage, entropy_coef=0.1)

    def slow(h: Tensor, w: Tensor) -> Tensor:
        result = definition(h, w, case.token)
        return -(case.advantage * result.log_prob + 0.1 * result.entropy).mean()

    both = (fast, slow)
    assert_same(*(torch.func.grad(f, argnums=(0, 1))(hidden, weight) for f in both))
    assert_same(*(torch.func.hessian(f)(hidden, weight) for f in both))
    tangents = (case.normal(4, 3), case.normal(5, 3))
    assert_same(*(torch.func.jvp(f, (hidden, weight), tangents) for f in both))
    hvp = [torch.func.jvp(torch.func.grad(f), (hidden, weight), tangents) for f in both]
    assert_same(*hvp)
    many = case.normal(6, 4, 3)
    assert_same(*(torch.func.vmap(torch.func.grad(f), (0, None))(many, weight) for f in both))


def test_forward_mode_without_torch_func_equals_the_definition() -> None:
    case = Case(12)
    tangent = case.normal(N, D)
    results = []
    for function in (el.linear_statistics, definition):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(case.hidden.detach(), tangent)
            entropy = function(dual, case.weight.detach(), case.token).entropy
            results.append(torch.autograd.forward_ad.unpack_dual(entropy).tangent)
    assert_same(*results)


def test_transformed_upstream_gradients_are_not_lost() -> None:
    case = Case(24)
    several, tangent = case.normal(3, N), case.normal(N)
    results = []
    for function in (el.linear_statistics, definition):
        log_prob = function(*case.inputs).log_prob
        batched = torch.autograd.grad(
            log_prob, case.hidden, several, is_grads_batched=True, retain_graph=True
        )
        with torch.autograd.forward_ad.dual_level():
            upstream = torch.autograd.forward_ad.make_dual(several[0], tangent)
            (moved,) = torch.autograd.grad(log_prob, case.weight, upstream)
            results.append((*batched, torch.autograd.forward_ad.unpack_dual(moved).tangent))
    assert_same(*results)


def test_a_second_backward_over_a_retained_graph_gives_the_same() -> None:
    case = Case(13)
    loss = el.linear_reinforce_loss(*case.inputs, case.advantage)
    first = torch.autograd.grad(3 * loss, (case.hidden, case.weight), retain_graph=True)
    second = torch.autograd.grad(3 * loss, (case.hidden, case.weight))
    assert_same(second, first, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
