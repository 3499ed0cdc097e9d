"""A chunk of rows of the linear head: from logits to statistics and, in their place, the gradient.

Three ways: the native kernel over rows of logits, where it is built; the Triton kernel on a GPU;
and torch's operations, block by block in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from eligibility.ops import _cpu, _triton
from eligibility.ops._cpu import Results, RowTask
from eligibility.ops._linear_head import Head, mask_rows
from eligibility.ops._plain import compute_dtype
from eligibility.ops._policy_objective import Objective, Slopes

_BLOCK_ELEMENTS = 1 << 19  # two megabytes of float32: what is done to logits is done in the cache
# e^−10000 is 0 in every dtype, and so is 0 · −10000, where 0 · −∞ is not a number.
_FLOOR = -1e4


@dataclass(frozen=True)
class RowResults:
    """What became of a chunk of R rows.

    Rows whose gradient is exactly 0 are left out of ``gradient``; it lies where the logits were.
    """

    statistics: Tensor  # [4, R]: loss, log_prob, entropy, log_normalizer
    kept: Tensor  # [R'], positions in the chunk
    gradient: Tensor  # [R', V], at the raw logits, before soft-cap and temperature


class Rows:
    """The rows of a chunk and their logits ``[R, V]``, which are overwritten."""

    def __init__(
        self, head: Head, source: Tensor, token: Tensor, at: Tensor, logits: Tensor
    ) -> None:
        self.source = source  # [R, D]
        self._head, self._token, self._at, self._logits = head, token, at, logits

    def run(self, objective: Objective | None, d_bias: Tensor | None) -> RowResults:
        """Statistics, and with an objective its gradient; adds the gradient of the bias."""
        if _cpu.serves(self._logits):
            return self._run_native(objective, d_bias)
        if _triton.serves(self._logits):
            return self._run_triton(objective, d_bias)
        return self._run_plain(objective, d_bias)

    def _run_native(self, objective: Objective | None, d_bias: Tensor | None) -> RowResults:
        head, token, logits = self._head, self._token, self._logits
        self._multiply()
        dtype = compute_dtype(logits)
        rounded = head.shaped(logits.gather(1, token.unsqueeze(1)).squeeze(1).to(dtype))
        own = rounded if logits.dtype == dtype else head.shaped(self._own_logits())
        mask = None if head.mask is None else mask_rows(head.mask, self._at).expand_as(logits)
        statistics = logits.new_zeros(4, len(token), dtype=dtype)
        if objective is None or not objective.is_linear:
            task = RowTask(logits, token, None, mask, head.temperature, head.softcap)
            found = _cpu.run(task, log_prob=True, entropy=True)
            statistics[1:] = _exact(found, rounded, own)
        if objective is None:
            return RowResults(statistics, token[:0], logits[:0])
        slopes = objective.slopes(slice(None), *statistics[1:])
        kept = _active(slopes).nonzero().squeeze(1)
        gradient = _closed_up(logits, kept)
        mask = mask[kept] if mask is not None else None
        found = _cpu.run(
            RowTask(gradient, token[kept], None, mask, head.temperature, head.softcap),
            _cpu.linear_loss(*(None if slope is None else slope[kept] for slope in slopes[1:])),
            log_prob=True,
            entropy=objective.needs_entropy,
            gradient=True,
            out=gradient,
        )
        if objective.is_linear:
            statistics[1:, kept] = _exact(found, rounded[kept], own[kept])
            slopes = objective.slopes(slice(None), *statistics[1:])
        statistics[0] = slopes.loss
        if d_bias is not None:
            d_bias += gradient.sum(0, dtype=dtype)
        return RowResults(statistics, kept, gradient)

    def _run_triton(self, objective: Objective | None, d_bias: Tensor | None) -> RowResults:
        """One kernel for all of it; rows without a slope stay, so that nothing waits for a GPU."""
        head, token, logits = self._head, self._token, self._logits
        self._multiply()
        own = None if logits.dtype == torch.float32 else self._own_logits()
        mask = None if head.mask is None else mask_rows(head.mask, self._at)
        rows = _triton.Rows(logits, token, mask, head.temperature, head.softcap)
        if objective is None:
            found = _triton.statistics(rows, own)
            return RowResults(found.with_loss(), token[:0], logits[:0])
        found = _triton.loss_and_gradient(rows, objective, own=own, out=logits)
        if d_bias is not None:
            d_bias += logits.sum(0, dtype=torch.float32)
        everyone = torch.arange(len(token), device=token.device)
        return RowResults(found.with_loss(), everyone, logits)

    def _multiply(self) -> None:
        head, logits = self._head, self._logits
        if head.bias is None:
            torch.mm(self.source, head.weight.t(), out=logits)
        else:
            torch.addmm(head.bias, self.source, head.weight.t(), out=logits)

    def _run_plain(self, objective: Objective | None, d_bias: Tensor | None) -> RowResults:
        head, logits = self._head, self._logits
        self._multiply()
        dtype = compute_dtype(logits)
        own = self._own_logits().unsqueeze(1) if dtype != logits.dtype else None
        statistics = logits.new_zeros(4, len(logits), dtype=dtype)
        kept: list[Tensor] = []
        size = 0
        step = max(1, _BLOCK_ELEMENTS // logits.shape[1] if logits.is_cpu else len(logits))
        for start in range(0, len(logits), step):
            block = slice(start, start + step)
            z = logits[block].to(dtype)
            column = self._token[block].unsqueeze(1)
            if own is not None:
                z.scatter_(1, column, own[block])
            softmax = _Softmax(head, z, column, self._at[block])
            statistics[1, block], statistics[3, block] = softmax.log_prob, softmax.log_normalizer
            if objective is None or objective.needs_entropy:
                statistics[2, block] = softmax.entropy()
            if objective is None:
                continue
            slopes = objective.slopes(block, *statistics[1:, block])
            statistics[0, block] = slopes.loss
            g = softmax.gradient(slopes)
            active = _active(slopes)
            g = g if bool(active.all()) else g[active]
            logits[size : size + len(g)] = g  # never beyond what has been read
            size += len(g)
            kept.append(active.nonzero().squeeze(1) + start)
            if d_bias is not None:
                d_bias += g.sum(0)
        return RowResults(statistics, torch.cat(kept) if kept else self._token[:0], logits[:size])

    def _own_logits(self) -> Tensor:
        """The logits of the rows' own tokens in float32: the ones that matter most.

        The others are rounded to half precision by the matrix product.
        """
        own = (self.source.float() * self._head.weight[self._token]).sum(1)
        return own if self._head.bias is None else own + self._head.bias[self._token]


def _exact(found: Results, rounded: Tensor, own: Tensor) -> Tensor:
    """log_prob, entropy and log_normalizer, after the own logit has been replaced by a better one.

    Its odds grow by the factor ``exp(own − rounded)``, and ``log π = −softplus(−log odds)``.
    """
    log_prob, entropy = found.log_prob, found.entropy
    assert log_prob is not None  # it was asked for
    if own is not rounded:
        against = torch.log(-torch.expm1(log_prob)) - log_prob
        log_prob = -softplus(against - (own - rounded))
    entropy = torch.zeros_like(log_prob) if entropy is None else entropy
    return torch.stack([log_prob, entropy, own - log_prob])


def _closed_up(logits: Tensor, kept: Tensor) -> Tensor:
    """The rows to keep, moved to the front of their own memory."""
    if len(kept) < len(logits):
        for target, row in enumerate(kept.tolist()):
            if target != row:
                logits[target] = logits[row]
    return logits[: len(kept)]


class _Softmax:
    """Probabilities and statistics of a block of rows; works in the memory of ``z``."""

    def __init__(self, head: Head, z: Tensor, column: Tensor, at: Tensor) -> None:
        self._column = column
        self._scale = 1.0 / head.temperature
        self._capped: Tensor | None = None
        if head.softcap is not None:
            forbidden = z == float("-inf") if head.bias is not None else None
            self._capped = z.div_(head.softcap).tanh_().clone()
            z.mul_(head.softcap)
            if forbidden is not None:
                z.masked_fill_(forbidden, float("-inf"))
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


def _active(slopes: Slopes) -> Tensor:
    active = slopes.log_prob != 0
    for slope in (slopes.entropy, slopes.log_normalizer):
        if slope is not None:
            active = active | (slope != 0)
    return active
