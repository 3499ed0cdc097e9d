"""A pass over the linear head: chunks of rows, the gradient taken on the way forward.

For a chunk of rows, one product gives the logits. From them come the statistics, the objective
turns those into slopes, one number a row each, and with them the logits become, in their own place,
the gradient at the logits (`chunk`)

    g_j = a (1[j = token] − p_j) − b p_j (log p_j + H) + c p_j + k p_j (log p_j − log q_j − KL)

for slopes a, b, c, k by log_prob, entropy, log_normalizer and the KL to a reference q, whose logits
are one product more, of 2 N V D'. Two products then give the gradients of
the hidden states and of the weight: 6 N V D operations, and one chunk of logits in memory.

A backend is a function with the signature of `sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.ops._policy_objective import Objective, TokenStatistics
from eligibility.ops._vocab_shard import ShardObjective
from eligibility.ops.backends.plain import compute_dtype
from eligibility.ops.linear.chunk import Rows
from eligibility.ops.linear.head import Head

_CHUNK_BYTES = 1 << 25  # of logits in memory at a time, at least
_CHUNK_SHARE = 4  # or the size of the weight divided by this, where that is more
_SLAB_BYTES = 1 << 25  # of float32 sums: large enough that the allocator returns them when freed
_TILE_ROWS = 1024  # of the weight's gradient: one product, added while it is in the cache
_LARGE_TILE_ROWS = 16384  # the same on a GPU, which many small products would leave idle


@dataclass(frozen=True)
class Wants:
    """Which gradients a sweep has to return."""

    hidden: bool = False
    weight: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Sweep:
    """Statistics of every row, 0 where left out, and the gradients of the sum of the losses."""

    loss: Tensor  # [N]
    known: TokenStatistics
    hidden: Tensor | None  # [N, D]
    weight: Tensor | None  # [V, D]
    bias: Tensor | None  # [V]


def sweep(
    head: Head,
    hidden: Tensor,  # [N, D]
    token: Tensor,  # [N], a column of each row
    rows: Tensor,  # positions of the rows that take part
    objective: Objective | ShardObjective | None,
    wants: Wants,
) -> Sweep:
    """One pass over the rows: their statistics and, with an objective, its gradients."""
    dtype = compute_dtype(hidden)
    statistics = hidden.new_zeros(6, hidden.shape[0], dtype=dtype)
    d_hidden = torch.zeros_like(hidden) if wants.hidden else None
    d_bias = hidden.new_zeros(head.weight.shape[0], dtype=dtype) if wants.bias else None
    chunk_rows = _chunk_rows(head, len(rows), wants.weight)
    d_weight = _WeightGradient(head.weight) if wants.weight else None

    def visit(at: Tensor, logits: Tensor, is_last: bool) -> None:
        part = Rows(head, hidden[at], token[at], at, logits[: len(at)])
        result = part.run(objective.at(at) if objective else None, d_bias)
        statistics[:, at] = result.statistics
        if d_hidden is not None and len(result.kept):
            d_hidden[at[result.kept]] = result.gradient @ head.weight
        if d_weight is not None and len(result.kept):
            d_weight.add(result.gradient, part.source[result.kept], is_last)

    logits = head.weight.new_empty(min(chunk_rows, len(rows)), head.weight.shape[0])
    for part in _parts(len(rows), chunk_rows):
        visit(rows[part], logits, part.stop == len(rows))
    del logits  # before the largest result is written
    return Sweep(
        statistics[0],
        TokenStatistics.of(statistics[1:]),
        hidden=d_hidden,
        weight=d_weight.result() if d_weight is not None else None,
        bias=d_bias.to(head.weight.dtype) if d_bias is not None else None,
    )


class _WeightGradient:
    """``Σ gᵀ h`` over chunks, summed in float32 or wider and rounded once to the weight's dtype.

    Sums in a wider dtype than the weight's lie in slabs, freed one by one as the result is written.
    """

    def __init__(self, weight: Tensor) -> None:
        self._like = weight
        self._total: Tensor | None = None
        self._slabs: list[Tensor] = []
        row_bytes = max(1, weight.shape[1] * compute_dtype(weight).itemsize)
        self._tile_rows = _TILE_ROWS if weight.is_cpu else _LARGE_TILE_ROWS
        self._slab_rows = self._tile_rows * max(1, _SLAB_BYTES // (self._tile_rows * row_bytes))

    def add(self, g: Tensor, source: Tensor, is_last: bool) -> None:
        """Add ``gᵀ source``."""
        if self._total is not None:
            self._total.addmm_(g.t(), source)
        elif not self._slabs and (is_last or compute_dtype(g) == g.dtype):
            self._total = g.t() @ source
        elif is_last:
            self._total = self._rounded(g, source)
        else:
            self._accumulate(g, source)

    def result(self) -> Tensor:
        """The whole gradient."""
        if self._total is None and not self._slabs:
            return torch.zeros_like(self._like)
        return self._total if self._total is not None else self._rounded(None, None)

    def _accumulate(self, g: Tensor, source: Tensor) -> None:
        is_first = not self._slabs
        if is_first:
            dtype = compute_dtype(self._like)
            slabs = _parts(len(self._like), self._slab_rows)
            self._slabs = [torch.empty_like(self._like[rows], dtype=dtype) for rows in slabs]
        for rows, tile in self._tiles():
            product = g[:, rows].t() @ source
            tile.copy_(product) if is_first else tile.add_(product)

    def _rounded(self, g: Tensor | None, source: Tensor | None) -> Tensor:
        """The sums, with a last product, in the weight's dtype."""
        total = torch.empty_like(self._like, memory_format=torch.contiguous_format)
        for rows, tile in self._tiles():
            if g is None or source is None:
                total[rows] = tile
            else:
                torch.add(tile, g[:, rows].t() @ source, out=total[rows])
            if rows.stop % self._slab_rows == 0:
                self._slabs[rows.start // self._slab_rows] = total[:0]
        return total

    def _tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows of the weight, and the sums that belong to them."""
        for rows in _parts(len(self._like), self._tile_rows):
            slab, start = divmod(rows.start, self._slab_rows)
            yield rows, self._slabs[slab][start : start + rows.stop - rows.start]


def _chunk_rows(head: Head, count: int, with_weight: bool) -> int:
    """Rows of logits in memory at a time: equal chunks within the workspace."""
    weight = head.weight
    sums = weight.shape[1] * compute_dtype(weight).itemsize  # bytes for each token, if several
    if weight.is_cuda and with_weight and count * weight.element_size() <= sums:
        return max(1, count)  # all the logits take no more memory than the sums over chunks would
    # With a sharded vocabulary all processes make the same chunks: those of the largest part.
    width = head.widest * weight.element_size()
    row_bytes = max(1, width if head.reference is None else 2 * width)
    weight_bytes = width * weight.shape[1]
    most = max(1, max(_CHUNK_BYTES, weight_bytes // _CHUNK_SHARE) // row_bytes)
    return max(1, math.ceil(count / max(1, math.ceil(count / most))))


def _parts(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
