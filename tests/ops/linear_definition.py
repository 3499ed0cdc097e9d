"""What the tests of the linear operations share: random inputs, and the definition written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.ops.linear_categorical import LinearStatistics

N, V, D = 23, 37, 8


def definition(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
) -> LinearStatistics:
    """Written out here a second time: the logits, whole, and torch's own softmax."""
    z = torch.nn.functional.linear(hidden, weight, bias)
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    z = z / temperature
    if mask is not None:
        z = z.masked_fill(~mask, float("-inf"))
    log_probs = z.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(log_probs.isinf(), 0.0)).sum(-1)
    log_prob = log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1)
    return LinearStatistics(log_prob, entropy, z.logsumexp(-1))


class Case:
    """Random inputs in float64, and the same in another dtype."""

    def __init__(self, seed: int, rows: int = N, vocabulary: int = V, features: int = D) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.hidden = self.normal(rows, features).requires_grad_()
        self.weight = self.normal(vocabulary, features).requires_grad_()
        self.bias = self.normal(vocabulary).requires_grad_()
        self.token = torch.randint(vocabulary, (rows,), generator=self.generator)
        self.advantage = self.normal(rows)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def mask(self) -> Tensor:
        allowed = torch.rand(len(self.token), len(self.weight), generator=self.generator) < 0.6
        return allowed.scatter_(1, self.token.unsqueeze(1), True)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.hidden, self.weight, self.token


def gradients(scalar: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(scalar, inputs)


def assert_same(found: Any, wanted: Any, **tolerance: float) -> None:
    torch.testing.assert_close(found, wanted, **(tolerance or {"rtol": 1e-10, "atol": 1e-12}))
