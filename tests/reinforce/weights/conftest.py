"""The definition that every route is held against: one backward a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution


def by_backward(
    module: nn.Module,
    inputs: Tensor,
    action: Tensor,
    distribution: Callable[[Any], Distribution] = lambda logits: Categorical(logits=logits),
) -> dict[str, Tensor]:
    """The definition: one backward a sample."""
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for x, a in zip(inputs, action, strict=True):
        log_prob = distribution(module(x[None])).log_prob(a[None]).sum()
        gradients = torch.autograd.grad(
            log_prob, list(named.values()), allow_unused=True, materialize_grads=True
        )
        for name, gradient in zip(named, gradients, strict=True):
            rows[name].append(gradient)
    return {name: torch.stack(column) for name, column in rows.items()}


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """float64 rounding of sums over a few hundred terms of size 1."""
    assert got.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=1e-11, atol=1e-12, msg=name)


@pytest.fixture(name="by_backward")
def _by_backward() -> Callable[..., dict[str, Tensor]]:
    return by_backward


@pytest.fixture(name="assert_same")
def _assert_same() -> Callable[[dict[str, Tensor], dict[str, Tensor]], None]:
    return assert_same
