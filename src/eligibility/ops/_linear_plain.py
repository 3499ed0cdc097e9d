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

_BLOCK_ELEMENTS = 1 << 18  # a megabyte of float32: what is done to logits is done in the cache
_CHUNK_BYTES = 1 << 25  # of logits in memory at a time, at least
_CHUNK_SHARE = 8  # or the size of the weight divided by this, where that is more
_SLAB_ROWS = 4096  # rows of the weight whose gradient is accumulated at a time
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
    chunks = list(_parts(len(rows), _chunk_rows(head, len(rows))))
    d_weight = _WeightGradient(head.weight, len(chunks)) if wants.weight else None
    logits = head.weight.new_empty(chunks[0].stop if chunks else 0, head.weight.shape[0])
    for chunk in chunks:
        index = rows[chunk]
        source = hidden[index]
        kept, g = _gradient_at_logits(
            head, source, token, index, objective, statistics, logits[: len(index)], d_bias
        )
        if not len(kept):
            continue
        if d_hidden is not None:
            d_hidden[index[kept]] = g @ head.weight
        if d_weight is not None:
            d_weight.add(g, source[kept])
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


def _gradient_at_logits(
    head: Head,
    source: Tensor,  # [R, D], the hidden states of the chunk
    token: Tensor,
    index: Tensor,  # [R], the positions of the chunk's rows
    objective: Objective | None,
    statistics: Tensor,  # [4, N], written
    logits: Tensor,  # [R, V], overwritten
    d_bias: Tensor | None,  # [V], added to
) -> tuple[Tensor, Tensor]:
    """The rows of the chunk with a gradient that is not exactly 0, and those gradients ``[·, V]``.

    They are written over the logits, closed up: never ahead of the rows still to be read.
    """
    if head.bias is None:
        torch.mm(source, head.weight.t(), out=logits)
    else:
        torch.addmm(head.bias, source, head.weight.t(), out=logits)
    kept: list[Tensor] = []
    size = 0
    for block in _parts(len(index), max(1, _BLOCK_ELEMENTS // logits.shape[1])):
        at = index[block]
        softmax = _Softmax(head, source[block], logits[block], token[at], at)
        statistics[1, at], statistics[3, at] = softmax.log_prob, softmax.log_normalizer
        if objective is None:
            statistics[2, at] = softmax.entropy()
            continue
        entropy = softmax.entropy() if objective.needs_entropy else None
        slopes = objective.slopes(at, softmax.log_prob, entropy)
        statistics[0, at] = slopes.loss
        g = softmax.gradient(slopes)
        active = _active(slopes)
        if not bool(active.all()):
            g = g[active]
        logits[size : size + len(g)] = g
        size += len(g)
        kept.append(active.nonzero().squeeze(1) + block.start)
        if d_bias is not None:
            d_bias += g.sum(0)
    return (torch.cat(kept) if kept else index[:0]), logits[:size]


class _Softmax:
    """Probabilities and statistics of a block of rows, centred so that nothing cancels."""

    def __init__(
        self, head: Head, source: Tensor, logits: Tensor, token: Tensor, at: Tensor
    ) -> None:
        dtype = compute_dtype(logits)
        self._column = token.unsqueeze(1)
        z = logits.to(dtype)
        if z is not logits:
            # The product was rounded to the dtype of its inputs. The one logit that matters most,
            # the token's own, is taken again exactly.
            own = (source.to(dtype) * head.weight[token]).sum(1, keepdim=True)
            if head.bias is not None:
                own += head.bias[token].unsqueeze(1)
            z.scatter_(1, self._column, own)
        self._scale = 1.0 / head.temperature
        self._capped: Tensor | None = None
        if head.softcap is not None:
            self._capped = z.div_(head.softcap).tanh_().clone()
            z.mul_(head.softcap)
        if head.temperature != 1.0:
            z.mul_(self._scale)
        if head.mask is not None:
            z.masked_fill_(~mask_rows(head.mask, at), float("-inf"))
        top = z.amax(1, keepdim=True)
        own = z.gather(1, self._column) - top
        self._centred = z.sub_(top).clamp_min_(_FLOOR)
        self._probs = torch.softmax(z, 1)
        # The largest probability is 1 / Σ exp(z − top), so this is the logarithm of that sum.
        self._log_sum = -self._probs.amax(1, keepdim=True).log()
        self.log_prob = (own - self._log_sum).squeeze(1)
        self.log_normalizer = (top + self._log_sum).squeeze(1)
        self._mean: Tensor | None = None

    def entropy(self) -> Tensor:
        """``log Σ − Σ p (z − top)``: two terms, neither negative."""
        self._mean = torch.linalg.vecdot(self._probs, self._centred).unsqueeze(1)
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
            g.mul_(torch.addcmul(level + b * self._mean, self._centred, -b, out=self._centred))
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

    def __init__(self, weight: Tensor, chunks: int) -> None:
        self._like = weight
        self._direct = chunks <= 1 or compute_dtype(weight) == weight.dtype
        self._sums: list[Tensor] = []
        self._partial: Tensor | None = None

    def add(self, g: Tensor, source: Tensor) -> None:
        """Add ``gᵀ source``."""
        first = not self._sums
        if self._direct:
            if first:
                self._sums = [g.t() @ source]
            else:
                self._sums[0].addmm_(g.t(), source)
            return
        slabs = _parts(self._like.shape[0], _SLAB_ROWS)
        for slab, columns in enumerate(slabs):
            partial = g[:, columns].t() @ source
            if first:
                self._sums.append(partial.to(compute_dtype(partial)))
            else:
                self._sums[slab].add_(partial)

    def result(self) -> Tensor:
        """The whole gradient, in the weight's dtype."""
        if not self._sums:
            return torch.zeros_like(self._like)
        if self._direct:
            return self._sums[0]
        total = torch.empty_like(self._like, memory_format=torch.contiguous_format)
        for columns in _parts(self._like.shape[0], _SLAB_ROWS):
            total[columns] = self._sums.pop(0)
        return total


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
