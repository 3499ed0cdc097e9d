"""The linear head in torch's own operations: chunks of rows, the gradient taken on the way forward.

For a chunk of rows, one product gives the logits. Block by block, in the cache, a softmax gives the
statistics, the objective turns those into slopes, one number a row each, and with them the logits
become in their own place the gradient at the logits

    g_j = a (1[j = token] − p_j) − b p_j (log p_j + H) + c p_j

for slopes a, b, c by log_prob, entropy and log_normalizer. Two products then give the gradients of
the hidden states and of the weight: 6 N V D operations, and one chunk of logits in memory.

A backend is a function with the signature of `sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.ops._linear_head import Head, mask_rows
from eligibility.ops._linear_objective import Objective, Slopes
from eligibility.ops._plain import compute_dtype

_BLOCK_ELEMENTS = 1 << 19  # two megabytes of float32: what is done to logits is done in the cache
_CHUNK_BYTES = 1 << 25  # of logits in memory at a time, at least
_CHUNK_SHARE = 4  # or the size of the weight divided by this, where that is more
_SLAB_BYTES = 1 << 26  # of float32 sums: large enough that the allocator returns them when freed
_TILE_ROWS = 1024  # of the weight's gradient: one product, added while it is in the cache
# e^−10000 is 0 in every dtype, and so is 0 · −10000, where 0 · −∞ is not a number.
_FLOOR = -1e4


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
    log_prob: Tensor  # [N]
    entropy: Tensor  # [N]
    log_normalizer: Tensor  # [N]
    hidden: Tensor | None  # [N, D]
    weight: Tensor | None  # [V, D]
    bias: Tensor | None  # [V]


def sweep(
    head: Head,
    hidden: Tensor,  # [N, D]
    token: Tensor,  # [N]
    rows: Tensor,  # positions of the rows that take part
    objective: Objective | None,
    wants: Wants,
) -> Sweep:
    """One pass over the rows: their statistics and, with an objective, its gradients."""
    dtype = compute_dtype(hidden)
    statistics = hidden.new_zeros(4, hidden.shape[0], dtype=dtype)
    d_hidden = torch.zeros_like(hidden) if wants.hidden else None
    d_bias = hidden.new_zeros(head.weight.shape[0], dtype=dtype) if wants.bias else None
    chunk_rows = _chunk_rows(head, len(rows))
    d_weight = _WeightGradient(head.weight, len(rows) <= chunk_rows) if wants.weight else None

    def visit(at: Tensor, logits: Tensor) -> None:
        part = _Chunk(head, hidden[at], token[at], at, logits[: len(at)])
        statistics[:, at] = part.sweep(objective.at(at) if objective else None, d_bias)
        if d_hidden is not None and len(part.kept):
            d_hidden[at[part.kept]] = part.gradient @ head.weight
        if d_weight is not None and len(part.kept):
            d_weight.add(part.gradient, part.source[part.kept])

    logits = head.weight.new_empty(min(chunk_rows, len(rows)), head.weight.shape[0])
    for at in torch.split(rows, chunk_rows):
        visit(at, logits)
    del logits  # before the largest result is written
    loss, log_prob, entropy, log_normalizer = statistics
    return Sweep(
        loss,
        log_prob,
        entropy,
        log_normalizer,
        hidden=d_hidden,
        weight=d_weight.result() if d_weight is not None else None,
        bias=d_bias.to(head.weight.dtype) if d_bias is not None else None,
    )


class _Chunk:
    """Some rows: their logits, and in the same memory afterwards the gradient at the logits.

    The gradients of rows where it is exactly 0 are left out: ``kept`` says which rows remain, and
    ``gradient`` has those only, closed up. It never grows into rows that are still to be read.
    """

    def __init__(
        self, head: Head, source: Tensor, token: Tensor, at: Tensor, logits: Tensor
    ) -> None:
        self.source = source  # [R, D]
        self.kept = at[:0]  # [R'], positions in the chunk
        self.gradient = logits[:0]  # [R', V]
        self._head, self._token, self._at, self._logits = head, token, at, logits
        if head.bias is None:
            torch.mm(source, head.weight.t(), out=logits)
        else:
            torch.addmm(head.bias, source, head.weight.t(), out=logits)

    def sweep(self, objective: Objective | None, d_bias: Tensor | None) -> Tensor:
        """Loss, log_prob, entropy and log_normalizer, ``[4, R]``; fills ``kept``, ``gradient``."""
        dtype = compute_dtype(self._logits)
        statistics = self._logits.new_zeros(4, len(self._at), dtype=dtype)
        own = self._own_logits() if dtype != self._logits.dtype else None
        kept: list[Tensor] = []
        size = 0
        for block in _parts(len(self._at), max(1, _BLOCK_ELEMENTS // self._logits.shape[1])):
            z = self._logits[block].to(dtype)
            column = self._token[block].unsqueeze(1)
            if own is not None:
                z.scatter_(1, column, own[block])
            softmax = _Softmax(self._head, z, column, self._at[block])
            statistics[1, block], statistics[3, block] = softmax.log_prob, softmax.log_normalizer
            if objective is None or objective.needs_entropy:
                statistics[2, block] = softmax.entropy()
            if objective is None:
                continue
            slopes = objective.slopes(block, statistics[1, block], statistics[2, block])
            statistics[0, block] = slopes.loss
            g = softmax.gradient(slopes)
            active = _active(slopes)
            if not bool(active.all()):
                g = g[active]
            self._logits[size : size + len(g)] = g
            size += len(g)
            kept.append(active.nonzero().squeeze(1) + block.start)
            if d_bias is not None:
                d_bias += g.sum(0)
        if kept:
            self.kept, self.gradient = torch.cat(kept), self._logits[:size]
        return statistics

    def _own_logits(self) -> Tensor:
        """The logits of the rows' own tokens in float32: the ones that matter most.

        The others are rounded to half precision by the matrix product.
        """
        own = (self.source.float() * self._head.weight[self._token]).sum(1, keepdim=True)
        return own if self._head.bias is None else own + self._head.bias[self._token].unsqueeze(1)


class _Softmax:
    """Probabilities and statistics of a block of rows; works in the memory of ``z``."""

    def __init__(self, head: Head, z: Tensor, column: Tensor, at: Tensor) -> None:
        self._column = column
        self._scale = 1.0 / head.temperature
        self._capped: Tensor | None = None
        if head.softcap is not None:
            self._capped = z.div_(head.softcap).tanh_().clone()
            z.mul_(head.softcap)
        if head.temperature != 1.0:
            z.mul_(self._scale)
        if head.mask is not None:
            z.masked_fill_(~mask_rows(head.mask, at), float("-inf"))
        self._z = z
        self._top = z.amax(1, keepdim=True)
        self._probs = torch.softmax(z, 1)
        # The largest probability is 1 / Σ exp(z − top), so this is the logarithm of that sum.
        self._log_sum = -self._probs.amax(1, keepdim=True).log()
        self.log_prob = (z.gather(1, column) - self._top - self._log_sum).squeeze(1)
        self.log_normalizer = (self._top + self._log_sum).squeeze(1)
        self._mean: Tensor | None = None

    def entropy(self) -> Tensor:
        """``log Σ − Σ p (z − top)``: of two terms neither of which is negative, nothing cancels."""
        self._z.sub_(self._top).clamp_min_(_FLOOR)
        self._mean = torch.linalg.vecdot(self._probs, self._z).unsqueeze(1)
        return (self._log_sum - self._mean).squeeze(1)

    def gradient(self, slopes: Slopes) -> Tensor:
        """The gradient at the raw logits, before soft-cap and temperature; consumes the block."""
        a = slopes.log_prob.unsqueeze(1) * self._scale
        level = -a
        if slopes.log_normalizer is not None:
            level = level + slopes.log_normalizer.unsqueeze(1) * self._scale
        g = self._probs
        if slopes.entropy is not None and self._mean is not None:
            b = slopes.entropy.unsqueeze(1) * self._scale
            g.mul_(torch.addcmul(level + b * self._mean, self._z, -b, out=self._z))
        else:
            g.mul_(level)
        g.scatter_add_(1, self._column, a)
        if self._capped is not None:
            g.mul_(self._capped.square_().neg_().add_(1.0))
        return g


class _WeightGradient:
    """``Σ gᵀ h`` over chunks, summed in float32 or wider, then rounded once to the weight's dtype.

    In half precision the float32 sums are freed slab by slab while the result is written.
    """

    def __init__(self, weight: Tensor, only_once: bool) -> None:
        self._like = weight
        self._direct = only_once or compute_dtype(weight) == weight.dtype
        self._sums: list[Tensor] = []

    def add(self, g: Tensor, source: Tensor) -> None:
        """Add ``gᵀ source``."""
        if not self._sums:
            self._sums = [g.t() @ source] if self._direct else self._new_slabs()
            if self._direct:
                return
        if self._direct:
            self._sums[0].addmm_(g.t(), source)
            return
        start = 0
        for slab in self._sums:
            for tile in _parts(len(slab), _TILE_ROWS):
                slab[tile] += g[:, start + tile.start : start + tile.stop].t() @ source
            start += len(slab)

    def result(self) -> Tensor:
        """The whole gradient, in the weight's dtype."""
        if not self._sums:
            return torch.zeros_like(self._like)
        if self._direct:
            return self._sums[0]
        total = torch.empty_like(self._like, memory_format=torch.contiguous_format)
        start = 0
        while self._sums:
            slab = self._sums.pop(0)
            total[start : start + len(slab)] = slab
            start += len(slab)
        return total

    def _new_slabs(self) -> list[Tensor]:
        dtype = compute_dtype(self._like)
        rows = max(1, _SLAB_BYTES // max(1, self._like.shape[1] * dtype.itemsize))
        return [
            torch.zeros_like(self._like[part], dtype=dtype)
            for part in _parts(self._like.shape[0], rows)
        ]


def _active(slopes: Slopes) -> Tensor:
    active = slopes.log_prob != 0
    for slope in (slopes.entropy, slopes.log_normalizer):
        if slope is not None:
            active = active | (slope != 0)
    return active


def _chunk_rows(head: Head, count: int) -> int:
    """Rows of logits in memory at a time: equal chunks within the workspace."""
    weight = head.weight
    row_bytes = max(1, weight.shape[0] * weight.element_size())
    weight_bytes = weight.numel() * weight.element_size()
    most = max(1, max(_CHUNK_BYTES, weight_bytes // _CHUNK_SHARE) // row_bytes)
    return max(1, math.ceil(count / max(1, math.ceil(count / most))))


def _parts(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
