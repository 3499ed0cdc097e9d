"""`reinforce_gradient` is the loss and its derivative, by every way that computes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError, ShapeError
from eligibility.ops.backends import cpu, selection

OPTIONS: list[dict[str, Any]] = [
    {},
    {"entropy_coef": 0.3},
    {"reduction": "sum", "temperature": 0.7, "softcap": 3.0},
    {"mask": torch.tensor([True] * 6 + [False]), "z_loss_coef": 0.1},
    {"weight": torch.tensor([[0.5, 0.0, 2.0]] * 4), "ignore_index": 2},
]


def problem(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(4, 3, 7, generator=generator).to(dtype).requires_grad_()
    action = torch.randint(6, (4, 3), generator=generator)
    wide = torch.promote_types(dtype, torch.float32)
    return z, action, torch.randn(4, 3, generator=generator, dtype=wide)


@pytest.mark.parametrize("way", ["native", "composition"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_what_autograd_finds(
    options: dict[str, Any], dtype: torch.dtype, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "composition":
        monkeypatch.setattr(cpu, "knows", lambda _: False)
        monkeypatch.setattr(selection, "_SMALL_FOR_PLAIN", 1 << 60)
    z, action, advantage = problem(dtype)
    if "weight" in options:
        options = {**options, "weight": options["weight"].to(advantage.dtype)}
    loss, gradient = el.reinforce_gradient(z, action, advantage, **options)
    expected = el.reinforce_loss(z, action, advantage, **options)
    assert not loss.requires_grad
    assert not gradient.requires_grad
    assert gradient.dtype == dtype
    assert z.grad is None
    assert torch.equal(loss, expected.detach())
    assert torch.equal(gradient, torch.autograd.grad(expected, z)[0])
    same = el.reinforce_gradient(z.detach(), action, advantage.requires_grad_(), **options)
    assert torch.equal(same[1], gradient)


def test_backward_continues_from_it() -> None:
    z, action, advantage = problem(torch.float64)
    _, gradient = el.reinforce_gradient(2 * z, action, advantage)
    (2 * z).backward(gradient)
    (expected,) = torch.autograd.grad(el.reinforce_loss(2 * z, action, advantage), z)
    torch.testing.assert_close(z.grad, expected)


def test_vmap_gives_each_its_own_gradient() -> None:
    z, action, advantage = (x.detach() for x in problem(torch.float64))
    losses, gradients = torch.vmap(el.reinforce_gradient)(z, action, advantage)
    for row in range(4):
        loss, gradient = el.reinforce_gradient(z[row], action[row], advantage[row])
        torch.testing.assert_close(losses[row], loss)
        torch.testing.assert_close(gradients[row], gradient)


def test_mistakes_are_those_of_the_loss() -> None:
    z, action, advantage = problem(torch.float32)
    with pytest.raises(InvalidValueError, match=r"indices in \[0, 7\)"):
        el.reinforce_gradient(z, action + 5, advantage)
    with pytest.raises(ShapeError, match="`advantage`"):
        el.reinforce_gradient(z, action, advantage[0])
    with pytest.raises(InvalidValueError) as caught:
        el.reinforce_gradient(z, action, advantage, reduction="none")
    assert str(caught.value) == (
        "`reduction`: got 'none', expected 'mean' or 'sum'; a gradient is that of one number"
    )
