"""Losses whose gradient takes the place of the logits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import cpu


def problem(
    dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (6, 37)
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(shape, generator=generator).to(dtype).requires_grad_()
    action = torch.randint(shape[-1], shape[:-1], generator=generator)
    wide = torch.promote_types(dtype, torch.float32)
    return source, action, torch.randn(shape[:-1], generator=generator, dtype=wide)


def turned(z: Tensor) -> Tensor:
    """The same numbers, columns first."""
    return z.t().contiguous().t()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(6, 37), (2, 3, 37)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradient_is_the_usual_one_and_needs_no_other_memory(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    entropy_coef: float,
    native: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not native:
        monkeypatch.setattr(cpu, "knows", lambda _: False)
    source, action, advantage = problem(dtype, shape)
    logits = source * 2
    arrived: list[Tensor] = []
    logits.register_hook(arrived.append)
    loss = el.reinforce_loss(
        logits, action, advantage, entropy_coef=entropy_coef, reuse_logits=True
    )
    (-3 * loss).backward()
    (gradient,) = arrived
    assert gradient.data_ptr() == logits.data_ptr()
    usual = el.reinforce_loss(source * 2, action, advantage, entropy_coef=entropy_coef)
    (expected,) = torch.autograd.grad(-3 * usual, source)
    assert torch.allclose(loss, usual, rtol=1e-6)
    assert source.grad is not None
    # the plain composition rounds in another order
    unit = torch.finfo(dtype).eps
    assert (source.grad - expected).abs().max() <= 8 * unit * expected.abs().max()


def test_node_that_kept_the_logits_raises() -> None:
    source, action, advantage = problem()
    logits = source.exp()  # its backward needs its result
    loss = el.reinforce_loss(logits, action, advantage, reuse_logits=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_second_backward_pass_is_refused() -> None:
    source, action, advantage = problem()
    message = (
        "`reuse_logits`: got a second backward pass, or one with create_graph, expected one "
        "backward pass of first order: the logits are gone; leave reuse_logits out"
    )
    loss = el.reinforce_loss(source * 2, action, advantage, reuse_logits=True)
    loss.backward(retain_graph=True)
    with pytest.raises(InvalidValueError) as caught:
        loss.backward()
    assert str(caught.value) == message
    loss = el.reinforce_loss(source * 2, action, advantage, reuse_logits=True)
    with pytest.raises(InvalidValueError) as caught:
        torch.autograd.grad(loss, source, create_graph=True)
    assert str(caught.value) == message


Call = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda z, a, adv: el.reinforce_loss(z, a, adv, reuse_logits=True),
            "logits that are a leaf of the graph",
        ),
        (
            lambda z, a, adv: el.reinforce_loss(turned(z), a, adv, reuse_logits=True),
            "logits that are not contiguous",
        ),
        (
            lambda z, a, adv: el.reinforce_loss(z * 2, a, adv, reduction="none", reuse_logits=True),
            "a loss whose gradient is not known on the way forward",
        ),
        (
            lambda z, a, adv: el.reinforce_loss(z * 2, a, adv.requires_grad_(), reuse_logits=True),
            "a loss whose gradient is not known on the way forward",
        ),
    ],
)
def test_what_cannot_be_reused_is_refused_and_left_alone(call: Call, reason: str) -> None:
    source, action, advantage = problem()
    before = source.detach().clone()
    with pytest.raises(InvalidValueError) as caught:
        call(source, action, advantage)
    assert str(caught.value) == (
        f"`reuse_logits`: got {reason}, expected logits that an operation made, and a plain mean "
        "or sum as the reduction; leave reuse_logits out"
    )
    assert torch.equal(source, before)


@pytest.mark.skipif(not cpu.is_built(), reason="the native kernel was not built")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_softcap_temperature_z_loss_and_clipping_reuse_the_logits(dtype: torch.dtype) -> None:
    z = torch.randn(20, 37, dtype=dtype, requires_grad=True)
    action, advantage = torch.randint(37, (20,)), torch.randn(20)
    options = {"temperature": 1.5, "softcap": 4.0, "z_loss_coef": 0.1, "entropy_coef": 0.2}
    gradients = []
    for reuse in (False, True):
        y = z * 1
        y.retain_grad()
        loss = el.reinforce_loss(y, action, advantage, reuse_logits=reuse, **options)
        place = y.data_ptr()
        (gradient,) = torch.autograd.grad(loss, y)
        assert (gradient.data_ptr() == place) == reuse
        gradients.append(gradient)
    assert torch.equal(*gradients)


@pytest.mark.skipif(not cpu.is_built(), reason="the native kernel was not built")
@pytest.mark.parametrize("kl_estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_clipped_loss_reuses_the_logits(kl_estimator: str, reduction: str) -> None:
    z, action, advantage = problem()
    options = {
        "kl_coef": 0.3,
        "kl_estimator": kl_estimator,
        "entropy_coef": 0.1,
        "clip": (0.1, 1.0),
    }
    losses, gradients = [], []
    for reuse in (False, True):
        y = z * 1
        loss = el.clipped_policy_loss(
            *(y, action, advantage, advantage - 4),
            ref_log_prob=advantage - 4,
            reduction=reduction,
            reuse_logits=reuse,
            **options,
        )
        place = y.data_ptr()
        (gradient,) = torch.autograd.grad(loss, y, torch.tensor(-2.0))
        assert (gradient.data_ptr() == place) == reuse
        losses.append(loss)
        gradients.append(gradient)
    assert torch.equal(*losses)
    assert torch.equal(*gradients)


def test_an_exact_kl_without_a_kernel_for_it_leaves_the_logits_alone() -> None:
    source, action, advantage = problem()
    logits = source * 2
    before = logits.detach().clone()
    with pytest.raises(InvalidValueError, match="a loss whose gradient is not known"):
        el.clipped_policy_loss(
            *(logits, action, advantage, -advantage.abs()),
            ref_logits=torch.zeros_like(logits),
            kl_coef=0.1,
            kl_estimator="exact",
            reuse_logits=True,
        )
    assert torch.equal(logits, before)


def test_without_the_kernel_a_temperature_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_library", None)
    z = torch.randn(4, 5, requires_grad=True) * 2
    with pytest.raises(InvalidValueError, match="a soft-cap or a temperature"):
        el.reinforce_loss(
            z, torch.zeros(4).long(), torch.ones(4), temperature=2.0, reuse_logits=True
        )
