"""What one parameter's eligibilities are made of, and what can be had without multiplying it out.

`N` samples, `P` positions (where one weight serves several: time steps, pixels, repeated uses of a
shared layer), `G` groups, `I` inputs, `O` outputs of a group:

    ``e[n, g, o, i] = Σ_p δ[n, g, p, o] · x[n, g, p, i]``
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

# A chunk of samples is multiplied out at a time: this much, or one sample.
_CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class Factors(ABC):
    """The eligibilities ``[N, *shape]`` of one parameter."""

    samples: int  # N
    parameter: Tensor  # the parameter itself, for its shape and dtype; never written to

    @abstractmethod
    def materialize(self, rows: slice = slice(None)) -> Tensor:
        """The eligibilities of some samples, multiplied out: ``[n, *shape]``."""

    @abstractmethod
    def mean(self, weights: Float[Tensor, " N"]) -> Tensor:
        """``1/N Σ_n w_n e_n``, shape ``[*shape]``."""

    def second_moment(self, weights: Float[Tensor, " N"]) -> Tensor:
        """``1/N Σ_n w_n e_n²``, shape ``[*shape]``."""
        total = torch.zeros_like(self.parameter).flatten()
        for rows in self._chunks():
            total += weights[rows] @ self.materialize(rows).flatten(1).square_()
        return total.view_as(self.parameter) / self.samples

    def squared_norm(self) -> Float[Tensor, " N"]:
        """``‖e_n‖²`` of each sample."""
        norms = [self.materialize(rows).flatten(1).square_().sum(1) for rows in self._chunks()]
        return torch.cat(norms)

    @property
    def in_memory(self) -> int:
        """Numbers of one sample that are in memory while it is multiplied out."""
        return self.parameter.numel()

    def _chunks(self, numbers: int | None = None) -> Iterator[slice]:
        """Slices of samples, each with about 32 MiB, at ``numbers`` a sample."""
        size = max(1, _CHUNK_BYTES // ((numbers or self.in_memory) * self.parameter.element_size()))
        for start in range(0, self.samples, size):
            yield slice(start, start + size)


@final
@dataclass(frozen=True, eq=False)
class Dense(Factors):
    """Eligibilities that are small, or that have no factors: biases, scales, torch.func's."""

    values: Tensor

    def materialize(self, rows: slice = slice(None)) -> Tensor:
        """A copy, so that no caller can change what another one sees."""
        return self.values[rows].clone()

    def mean(self, weights: Float[Tensor, " N"]) -> Tensor:
        total: Tensor = torch.tensordot(weights, self.values, dims=1)
        return total / self.samples


@dataclass(frozen=True, eq=False)
class Use:
    """One use of a layer: its input, the gradient at its output, and how they meet."""

    inputs: Tensor  # as the layer received them, ``[N, ...]``
    deltas: Tensor  # ``∂ log p/∂output``, ``[N, ...]``
    columns: Callable[[Tensor], Tensor]  # inputs of some samples → ``[n, G, P, I]``
    errors: Callable[[Tensor], Tensor]  # deltas of some samples → ``[n, G, P, O]``


@final
@dataclass(frozen=True, eq=False)
class OuterProduct(Factors):
    """``Σ_p δ xᵀ``: the weight of a linear or convolutional layer, all its uses together."""

    uses: tuple[Use, ...]

    def factors(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """``x [n, G, P, I]`` and ``δ [n, G, P, O]``, the uses side by side as positions."""
        x = [use.columns(use.inputs[rows]) for use in self.uses]
        delta = [use.errors(use.deltas[rows]) for use in self.uses]
        if len(x) == 1:
            return x[0], delta[0]
        return torch.cat(x, 2), torch.cat(delta, 2)

    def materialize(self, rows: slice = slice(None)) -> Tensor:
        x, delta = self.factors(rows)
        product = delta.mT * x if self._positions == 1 else delta.mT @ x
        return product.reshape(-1, *self.parameter.shape)

    def mean(self, weights: Float[Tensor, " N"]) -> Tensor:
        """``1/N Σ_n w_n δ_nᵀ x_n``: samples and positions are one long sum."""
        total = torch.zeros_like(self.parameter)
        for rows in self._chunks(self._columns):
            x, delta = self.factors(rows)
            weighted = delta * weights[rows, None, None, None]
            total += _sum_over_positions(weighted, x).view_as(total)
        return total / self.samples

    def second_moment(self, weights: Float[Tensor, " N"]) -> Tensor:
        """At one position the square of a product is the product of squares: ``(w δ²)ᵀ (x²)``."""
        if self._positions > 1:
            return super().second_moment(weights)
        x, delta = self.factors()
        weighted = delta.square() * weights[:, None, None, None]
        total = _sum_over_positions(weighted, x.square())
        return total.reshape(self.parameter.shape) / self.samples

    def squared_norm(self) -> Float[Tensor, " N"]:
        """``Σ_{p, q} (δ_p·δ_q)(x_p·x_q)`` where that is less than multiplying out."""
        positions, outputs = self._positions, self.parameter.shape[0]
        inputs = self.parameter.numel() // outputs
        if positions == 1:
            x, delta = self.factors()
            return (x.square().sum(3) * delta.square().sum(3)).flatten(1).sum(1)
        if positions * (inputs + outputs) > 2 * inputs * outputs:
            return super().squared_norm()
        norms = []
        for rows in self._chunks():
            x, delta = self.factors(rows)
            norms.append(((x @ x.mT) * (delta @ delta.mT)).flatten(1).sum(1))
        return torch.cat(norms)

    @property
    def in_memory(self) -> int:
        return max(self.parameter.numel(), self._columns, self._positions**2)

    @property
    def _columns(self) -> int:
        first = self.uses[0]
        groups = first.errors(first.deltas[:1]).shape[1]
        return self._positions * self.parameter[0].numel() * groups

    @property
    def _positions(self) -> int:
        outputs = self.parameter.shape[0]
        return sum(use.deltas[0].numel() // outputs for use in self.uses)


@final
@dataclass(frozen=True, eq=False)
class Lookup(Factors):
    """Rows of an embedding table: the input is one-hot, so only the looked-up rows are held."""

    index: Int[Tensor, "N P"]
    deltas: Float[Tensor, "N P D"]

    def materialize(self, rows: slice = slice(None)) -> Tensor:
        index, deltas = self.index[rows], self.deltas[rows]
        table = deltas.new_zeros(len(index), *self.parameter.shape)
        return table.scatter_add_(1, index[:, :, None].expand_as(deltas), deltas)

    def mean(self, weights: Float[Tensor, " N"]) -> Tensor:
        weighted = self.deltas * weights[:, None, None]
        return self._into_table(self.index.flatten(), weighted.flatten(0, 1)) / self.samples

    def second_moment(self, weights: Float[Tensor, " N"]) -> Tensor:
        """Each sample's repeated look-ups of a row are added before they are squared."""
        sample, row, total = self._rows_of_samples()
        weighted = total.square() * weights[sample, None]
        return self._into_table(row, weighted) / self.samples

    def squared_norm(self) -> Float[Tensor, " N"]:
        sample, _, total = self._rows_of_samples()
        return total.new_zeros(self.samples).index_add_(0, sample, total.square().sum(1))

    def _rows_of_samples(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each (sample, row) that occurs, once, and the sum of its deltas."""
        size = self.parameter.shape[0]
        sample = torch.arange(self.samples, device=self.index.device)[:, None]
        keys, which = torch.unique(sample * size + self.index, return_inverse=True)
        total = self.deltas.new_zeros(len(keys), self.deltas.shape[2])
        total.index_add_(0, which.flatten(), self.deltas.flatten(0, 1))
        return keys // size, keys % size, total

    def _into_table(self, row: Tensor, values: Tensor) -> Tensor:
        return torch.zeros_like(self.parameter).index_add_(0, row, values)


@final
@dataclass(frozen=True, eq=False)
class Sum(Factors):
    """One parameter in layers of different kinds, such as an embedding tied to the last layer."""

    parts: tuple[Factors, ...]

    def materialize(self, rows: slice = slice(None)) -> Tensor:
        total = self.parts[0].materialize(rows)
        for part in self.parts[1:]:
            total += part.materialize(rows)
        return total

    def mean(self, weights: Float[Tensor, " N"]) -> Tensor:
        return torch.stack([part.mean(weights) for part in self.parts]).sum(0)

    @property
    def in_memory(self) -> int:
        return self.parameter.numel() + max(part.in_memory for part in self.parts)


def combine(parts: Sequence[Factors]) -> Factors:
    """All uses of one parameter as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    products = [part for part in parts if isinstance(part, OuterProduct)]
    if len(products) == len(parts):
        uses = tuple(use for product in products for use in product.uses)
        return OuterProduct(first.samples, first.parameter, uses)
    return Sum(first.samples, first.parameter, tuple(parts))


def _sum_over_positions(delta: Tensor, x: Tensor) -> Tensor:
    """``[n, G, P, O]`` and ``[n, G, P, I]`` → ``[G, O, I]``, one product for each group."""
    rows = delta.transpose(0, 1).flatten(1, 2)
    columns = x.transpose(0, 1).flatten(1, 2)
    return rows.mT @ columns
