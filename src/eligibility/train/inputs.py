"""What a linear layer gets: rows of numbers, or the indices of rows of 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Numbers:
    """Rows of numbers, ``[N, D]``."""

    rows: Tensor

    def through(self, weight: Tensor, bias: Tensor) -> Tensor:
        """``x Wᵀ + b``: weights ``[P, D]`` and biases ``[P]`` to ``[N, P]``."""
        return torch.nn.functional.linear(self.rows, weight, bias)

    def back(self, cotangent: Tensor) -> Tensor:
        """``cᵀ x``: ``[N, P]`` to ``[P, D]``, its gradient in the weights."""
        return cotangent.T @ self.rows


@dataclass(frozen=True, eq=False)
class Ones:
    """Rows of 0 and 1 by the indices of the ones, ``[N, parts]``: products without the zeros."""

    indices: Tensor
    width: int

    def through(self, weight: Tensor, bias: Tensor) -> Tensor:
        """See `Numbers.through`."""
        return weight.T[self.indices].sum(1) + bias

    def back(self, cotangent: Tensor) -> Tensor:
        """See `Numbers.back`."""
        gradient = cotangent.new_zeros(self.width, cotangent.shape[-1])
        for part in self.indices.unbind(-1):
            gradient.index_add_(0, part, cotangent)
        return gradient.T
