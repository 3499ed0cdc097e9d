"""The categorical operations against autograd, enumeration, 50 digits, and under transforms."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from torch import Tensor
from torch.func import grad, hessian, jacrev, jvp, vmap

import eligibility as el
from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError, ShapeError

# Forward-mode differentiation in torch 2.13 compiles its decompositions with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

INF = math.inf


def problem(
    *batch: int, categories: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, legal actions, advantages, and a mask that always allows action 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn((*batch, categories), generator=generator, dtype=torch.float64)
    mask = torch.rand((*batch, categories), generator=generator) < 0.6
    mask[..., 0] = True
    scores = torch.rand((*batch, categories), generator=generator).masked_fill(~mask, -1.0)
    advantage = torch.randn(batch, generator=generator, dtype=torch.float64)
    return logits.to(dtype), scores.argmax(-1), advantage.to(dtype), mask


def exact(logits: list[float], action: int) -> tuple[float, float, list[float], list[float]]:
    """log π(a), H, ∂log π(a)/∂z and ∂H/∂z in 50 digits."""
    with mp.workdps(50):
        weights = [mp.exp(mpf(z)) for z in logits]
        total = sum(weights)
        probs = [w / total for w in weights]
        logs = [mp.log(p) if p > 0 else mpf(0) for p in probs]
        entropy = -sum(p * log for p, log in zip(probs, logs, strict=True))
        score = [float((k == action) - p) for k, p in enumerate(probs)]
        slope = [float(-p * (log + entropy)) for p, log in zip(probs, logs, strict=True)]
        return float(logs[action]), float(entropy), score, slope


@pytest.mark.parametrize("logits", [[0.3, -1.2, 2.0], [0.0], [-INF, 1.0, 0.0], [700.0, -700.0]])
def test_statistics_and_gradients_equal_fifty_digits(path: str, logits: list[float]) -> None:
    action = len(logits) - 1
    z = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    result = el.categorical_statistics(z, torch.tensor([action]))
    log_prob, entropy, score, slope = exact(logits, action)
    torch.testing.assert_close(result.log_prob.item(), log_prob, rtol=1e-15, atol=1e-15)
    torch.testing.assert_close(result.entropy.item(), entropy, rtol=1e-14, atol=1e-15)
    (g,) = torch.autograd.grad(result.log_prob, z, z.new_tensor([2.0]), retain_graph=True)
    (h,) = torch.autograd.grad(result.entropy, z, z.new_tensor([3.0]))
    torch.testing.assert_close(g[0], 2 * torch.tensor(score, dtype=z.dtype), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(h[0], 3 * torch.tensor(slope, dtype=z.dtype), rtol=1e-14, atol=1e-15)


@given(
    batch=st.lists(st.integers(0, 3), max_size=3),
    categories=st.integers(1, 6),
    masked=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_loss_and_gradient_equal_the_closed_form(
    batch: list[int], categories: int, masked: bool, seed: int
) -> None:
    z, action, advantage, mask = problem(*batch, categories=categories, seed=seed)
    if not masked:
        mask = torch.ones_like(mask)
    z.requires_grad_()
    loss = el.reinforce_loss(
        z, action, advantage, mask=mask if masked else None, entropy_coef=0.1, reduction="sum"
    )
    (gradient,) = torch.autograd.grad(1.5 * loss, z)
    pi = torch.softmax(z.detach().masked_fill(~mask, -INF), -1)
    log_pi = pi.clamp_min(1e-300).log()
    entropy = -(pi * log_pi).sum(-1, keepdim=True)
    chosen = torch.nn.functional.one_hot(action, categories)
    a = advantage.unsqueeze(-1)
    expected = -a * (chosen - pi) + 0.1 * pi * (log_pi + entropy)
    torch.testing.assert_close(gradient, 1.5 * expected, rtol=1e-12, atol=1e-13)
    value = -(advantage * (log_pi * chosen).sum(-1)).sum() - 0.1 * entropy.sum()
    torch.testing.assert_close(loss.detach(), value, rtol=1e-12, atol=1e-12)


def test_expected_gradient_over_all_actions_is_the_gradient_of_the_expected_reward(
    path: str,
) -> None:
    z = problem(4, categories=6, seed=2)[0]
    rewards = torch.arange(24.0).double().reshape(4, 6).sin()
    z.requires_grad_()
    (truth,) = torch.autograd.grad(-(z.softmax(-1) * rewards).sum(), z)
    total = torch.zeros_like(z)
    for k in range(6):
        action = torch.full((4,), k)
        loss = el.reinforce_loss(
            z, action, rewards[:, k], weight=z.detach().softmax(-1)[:, k], reduction="sum"
        )
        total += torch.autograd.grad(loss, z)[0]
    torch.testing.assert_close(total, truth, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("with_mask", [False, True])
def test_gradients_are_right_to_second_order_and_forward(path: str, with_mask: bool) -> None:
    z, action, advantage, mask = problem(3, categories=4, seed=1)
    legal = mask if with_mask else None

    def loss(z: Tensor) -> Tensor:
        return el.reinforce_loss(z, action, advantage, mask=legal, entropy_coef=0.3)

    z.requires_grad_()
    assert torch.autograd.gradcheck(loss, z, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, z)


def test_transforms_equal_the_loop(path: str) -> None:
    z, action, advantage, _ = problem(3, categories=4, seed=3)

    def row_loss(z: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
        return el.reinforce_loss(z, action, advantage, entropy_coef=0.2)

    each = vmap(grad(row_loss))(z, action, advantage)
    rows = [grad(row_loss)(z[i], action[i], advantage[i]) for i in range(3)]
    torch.testing.assert_close(each, torch.stack(rows))
    z.requires_grad_()
    (whole,) = torch.autograd.grad(3 * row_loss(z, action, advantage), z)
    torch.testing.assert_close(each, whole)
    torch.testing.assert_close(
        hessian(row_loss)(z.detach(), action, advantage),
        torch.autograd.functional.hessian(lambda z: row_loss(z, action, advantage), z),
    )


def test_jvp_is_the_directional_derivative(path: str) -> None:
    z, action, advantage, mask = problem(3, categories=4, seed=4)
    direction = problem(3, categories=4, seed=6)[0]

    def loss(z: Tensor) -> Tensor:
        return el.reinforce_loss(z, action, advantage, mask=mask, entropy_coef=0.2)

    value, slope = jvp(loss, (z,), (direction,))
    torch.testing.assert_close(slope, (grad(loss)(z) * direction).sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, direction)
        plain = torch.autograd.forward_ad.unpack_dual(loss(dual)).tangent
    torch.testing.assert_close(plain, slope)
    torch.testing.assert_close(value, loss(z))


def test_batched_upstream_gradients_equal_one_at_a_time(path: str) -> None:
    z, action, _, _ = problem(3, categories=4, seed=5)
    z.requires_grad_()
    log_prob = el.categorical_log_prob(z, action)
    basis = torch.eye(3, dtype=z.dtype)
    (rows,) = torch.autograd.grad(log_prob, z, basis, is_grads_batched=True)
    expected = jacrev(lambda z: el.categorical_log_prob(z, action))(z.detach())
    torch.testing.assert_close(rows, expected)


def test_statistics_can_be_vmapped() -> None:
    z, action, _, _ = problem(3, categories=4)
    each = vmap(el.categorical_statistics)(z, action)
    whole = el.categorical_statistics(z, action)
    torch.testing.assert_close(each.log_prob, whole.log_prob)
    torch.testing.assert_close(each.entropy, whole.entropy)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(path: str, dtype: torch.dtype) -> None:
    z, action, advantage, mask = problem(50, categories=33, dtype=dtype)
    wide = z.double().requires_grad_()
    z.requires_grad_()
    results = [
        el.reinforce_loss(
            x, action, advantage.to(torch.float32), mask=mask, entropy_coef=0.1, reduction="none"
        )
        for x in (z, wide)
    ]
    assert results[0].dtype == torch.float32
    torch.testing.assert_close(results[0].double(), results[1], rtol=3e-6, atol=3e-6)
    low, high = (
        torch.autograd.grad(r.sum(), x)[0] for r, x in zip(results, (z, wide), strict=True)
    )
    assert low.dtype == dtype
    # rounded once: half a unit in the last place of the largest entry, plus float32's own error
    torch.testing.assert_close(low.double(), high, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_gradient_sums_to_zero_and_inputs_stay_untouched(path: str) -> None:
    z, action, advantage, _ = problem(20, categories=101, dtype=torch.float32)
    kept = z.clone()
    z.requires_grad_()
    el.reinforce_loss(z, action, advantage, entropy_coef=0.5, reduction="sum").backward()
    assert z.grad is not None
    assert z.grad.sum(-1).abs().max() < 1e-6 * advantage.abs().max() * 10
    assert torch.equal(z.detach(), kept)


def test_masked_and_infinite_logits_agree_and_receive_exactly_zero(path: str) -> None:
    z, action, advantage, mask = problem(6, categories=5, seed=7)
    forbidden = z.masked_fill(~mask, -INF).requires_grad_()
    z.requires_grad_()
    masked = el.reinforce_loss(z, action, advantage, mask=mask, entropy_coef=0.1)
    plain = el.reinforce_loss(forbidden, action, advantage, entropy_coef=0.1)
    torch.testing.assert_close(masked, plain)
    (a,), (b,) = torch.autograd.grad(masked, z), torch.autograd.grad(plain, forbidden)
    torch.testing.assert_close(a, b)
    assert torch.equal(a[~mask], torch.zeros_like(a[~mask]))


def test_one_mask_serves_all_rows(path: str) -> None:
    z, _, advantage, _ = problem(4, categories=3)
    mask, action = torch.tensor([True, False, True]), torch.tensor([0, 2, 2, 0])
    torch.testing.assert_close(
        el.reinforce_loss(z, action, advantage, mask=mask, entropy_coef=0.1),
        el.reinforce_loss(z, action, advantage, mask=mask.expand(4, 3), entropy_coef=0.1),
    )


def test_rows_of_weight_zero_contribute_nothing_whatever_their_action(path: str) -> None:
    z, _, advantage, _ = problem(2, categories=3)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    action, weight = torch.tensor([2, 1]), torch.tensor([0.0, 2.0], dtype=torch.float64)
    z.requires_grad_()
    loss = el.reinforce_loss(
        z, action, advantage, mask=mask, weight=weight, entropy_coef=0.1, reduction="none"
    )
    assert loss[0] == 0
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert torch.equal(gradient[0], torch.zeros_like(gradient[0]))
    alone = el.reinforce_loss(z[1:], action[1:], advantage[1:], entropy_coef=0.1)
    torch.testing.assert_close(loss[1], 2 * alone)


def test_reductions() -> None:
    z, action, advantage, _ = problem(2, 3)
    none = el.reinforce_loss(z, action, advantage, reduction="none")
    assert none.shape == (2, 3)
    torch.testing.assert_close(el.reinforce_loss(z, action, advantage, reduction="sum"), none.sum())
    torch.testing.assert_close(el.reinforce_loss(z, action, advantage), none.mean())


def test_no_rows_give_zero_with_a_gradient(path: str) -> None:
    z = torch.empty(0, 5, requires_grad=True)
    loss = el.reinforce_loss(z, torch.empty(0, dtype=torch.long), torch.empty(0), entropy_coef=1.0)
    loss.backward()
    assert loss == 0
    assert z.grad is not None
    assert z.grad.shape == (0, 5)


def test_one_category_has_no_gradient(path: str) -> None:
    z = torch.randn(3, 1, requires_grad=True)
    el.reinforce_loss(z, torch.zeros(3, dtype=torch.long), torch.ones(3)).backward()
    assert torch.equal(z.grad, torch.zeros(3, 1))


def test_non_contiguous_logits(path: str) -> None:
    base, action, advantage, _ = problem(5, categories=4, seed=9)
    base = base.T.contiguous().requires_grad_()
    (g,) = torch.autograd.grad(el.reinforce_loss(base.T, action, advantage), base)
    copy = base.detach().T.contiguous().requires_grad_()
    (h,) = torch.autograd.grad(el.reinforce_loss(copy, action, advantage), copy)
    torch.testing.assert_close(g.T, h)


def test_kl_equals_enumeration_and_its_gradients_the_closed_forms() -> None:
    z, _, _, mask = problem(4, categories=5, seed=11)
    other = problem(4, categories=5, seed=12)[0]
    z.requires_grad_()
    other.requires_grad_()
    result = el.categorical_kl(z, other, mask=mask)
    p, q = (t.detach().masked_fill(~mask, -INF).softmax(-1) for t in (z, other))
    ratio = torch.where(mask, p / q, 1.0).log()
    expected = (p * ratio).sum(-1)
    torch.testing.assert_close(result.detach(), expected)
    upstream = torch.arange(1.0, 5).double()
    at_z, at_other = torch.autograd.grad(result, (z, other), upstream)
    scale = upstream.unsqueeze(-1)
    torch.testing.assert_close(at_z, scale * p * (ratio - expected.unsqueeze(-1)))
    torch.testing.assert_close(at_other, scale * (q - p))
    both = lambda z, other: el.categorical_kl(z, other, mask=mask)  # noqa: E731  # shorter than a function
    assert torch.autograd.gradgradcheck(both, (z, other))


def test_kl_is_infinite_where_only_the_other_forbids() -> None:
    z, other = torch.zeros(3), torch.tensor([0.0, 0.0, -INF])
    assert el.categorical_kl(z, other) == INF
    assert el.categorical_kl(other, z).isfinite()


def test_autocast_leaves_the_result_in_float32() -> None:
    z, action, advantage, _ = problem(4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = el.reinforce_loss(z, action, advantage, entropy_coef=0.1)
    torch.testing.assert_close(inside, el.reinforce_loss(z, action, advantage, entropy_coef=0.1))


Z, A = torch.zeros(2, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: el.categorical_log_prob(Z, torch.tensor([0, 7])),
            InvalidValueError,
            "`action`: got a maximum of 7, expected indices in [0, 3); "
            "there are K = 3 categories, counted from 0",
        ),
        (
            lambda: el.categorical_log_prob(Z, torch.tensor([0.0, 1.0])),
            InvalidTypeError,
            "`action`: got dtype float32, expected an integer dtype; "
            "pass indices, for instance action.long()",
        ),
        (
            lambda: el.categorical_log_prob(Z, torch.tensor([[0], [1]])),
            ShapeError,
            "`action`: got shape [2, 1], expected [2], one index for each row of logits; "
            "axes for samples may stand in front; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            lambda: el.reinforce_loss(Z, A, torch.zeros(2, 1)),
            ShapeError,
            "`advantage`: got shape [2, 1], expected [2], one number for each row of logits; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            lambda: el.categorical_log_prob(Z, A, mask=torch.tensor([True, False, True])),
            InvalidValueError,
            "`action`: got the index 1 in row [1], which the mask forbids, expected indices that "
            "the mask allows; sample from the masked distribution, or give the row the weight 0",
        ),
        (
            lambda: el.categorical_entropy(Z, mask=torch.tensor([[True] * 3, [False] * 3])),
            InvalidValueError,
            "`mask`: got a row without a legal action in row [1], expected at least one True in "
            "each row; remove the row, or allow one action",
        ),
        (
            lambda: el.categorical_statistics(Z, A, mask=torch.ones(3)),
            InvalidTypeError,
            "`mask`: got dtype float32, expected dtype bool; "
            "convert it, for instance with mask != 0; True means allowed",
        ),
        (
            lambda: el.categorical_statistics(Z, A, mask=torch.ones(2, 1, dtype=torch.bool)),
            ShapeError,
            "`mask`: got shape [2, 1], expected [2, 3], the shape of logits, or [K] for all rows; "
            "reshape it; nothing is broadcast silently",
        ),
        (
            # unwrapped: the checks of annotations during tests would come first
            lambda: inspect.unwrap(el.reinforce_loss)(Z, A, torch.zeros(2), reduction="average"),
            InvalidValueError,
            "`reduction`: got 'average', expected 'mean', 'sum', 'sequence' or 'none'; "
            "choose one of them",
        ),
        (
            lambda: el.categorical_entropy(torch.zeros(2, 0)),
            ShapeError,
            "`logits`: got shape [2, 0], expected [*batch, K] with K >= 1; "
            "put the categories on the last axis",
        ),
    ],
)
def test_mistakes_say_what_to_do(
    call: Callable[[], Tensor], error: type[EligibilityError], message: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
