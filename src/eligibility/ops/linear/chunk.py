"""A chunk of rows of the linear head: from logits to statistics and, in their place, the gradient.

Three ways: the native kernel over rows of logits, where it is built; the Triton kernel on a GPU;
and torch's operations, block by block in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from eligibility.ops._policy_objective import Objective, PolicyObjective, TokenStatistics, Upstream
from eligibility.ops._vocab_shard import ShardObjective
from eligibility.ops.backends import cpu, triton
from eligibility.ops.backends.plain import compute_dtype
from eligibility.ops.backends.row_task import Results, RowTask
from eligibility.ops.linear.head import Head, mask_rows
from eligibility.ops.linear.softmax import Softmax

_BLOCK_ELEMENTS = 1 << 19  # two megabytes of float32: what is done to logits is done in the cache
AnyObjective = Objective | ShardObjective


@dataclass(frozen=True)
class RowResults:
    """What became of a chunk of R rows.

    Rows whose gradient is exactly 0 are left out of ``gradient``; it lies where the logits were.
    """

    statistics: Tensor  # [6, R]: the loss, and the `TokenStatistics`
    kept: Tensor  # [R'], positions in the chunk
    gradient: Tensor  # [R', V], at the raw logits, before soft-cap and temperature


class Rows:
    """The rows of a chunk and their logits ``[R, V]``, which are overwritten."""

    def __init__(
        self, head: Head, source: Tensor, token: Tensor, at: Tensor, logits: Tensor
    ) -> None:
        self.source = source  # [R, D]
        self._head, self._token, self._at, self._logits = head, token, at, logits

    def run(self, objective: AnyObjective | None, d_bias: Tensor | None) -> RowResults:
        """Statistics, and with an objective its gradient; adds the gradient of the bias."""
        tensors = (self._logits, self._token, self._head.mask)
        if cpu.serves(*tensors) and self._head.reference is None:
            return self._run_native(objective, d_bias)
        if triton.serves(self._logits):
            return self._run_triton(objective, d_bias)
        return self._run_plain(objective, d_bias)

    def _run_native(self, objective: AnyObjective | None, d_bias: Tensor | None) -> RowResults:
        head, token, logits = self._head, self._token, self._logits
        self._multiply()
        dtype = compute_dtype(logits)
        rounded = head.shaped(logits.gather(1, token.unsqueeze(1)).squeeze(1).to(dtype))
        own = rounded if logits.dtype == dtype else head.shaped(self._own_logits())
        mask = None if head.mask is None else mask_rows(head.mask, self._at).expand_as(logits)
        statistics = logits.new_zeros(6, len(token), dtype=dtype)
        known = TokenStatistics.of(statistics[1:])
        if objective is None or not objective.is_linear:
            task = RowTask(logits, token, None, mask, head.temperature, head.softcap)
            found = cpu.run(task, log_prob=True, entropy=True, log_normalizer=True)
            statistics[1:4] = _exact(found, rounded, own)
            if head.shard is not None:
                _mark_empty(known, logits, mask)
        if objective is None:
            return RowResults(statistics, token[:0], logits[:0])
        slopes = objective.slopes(slice(None), known)
        kept = slopes.are_active().nonzero().squeeze(1)
        gradient = _closed_up(logits, kept)
        mask = mask[kept] if mask is not None else None
        found = cpu.run(
            RowTask(gradient, token[kept], None, mask, head.temperature, head.softcap),
            cpu.linear_loss(*(None if slope is None else slope[kept] for slope in slopes[1:4])),
            log_prob=True,
            entropy=objective.needs_entropy,
            log_normalizer=True,
            gradient=True,
            out=gradient,
        )
        if objective.is_linear:
            statistics[1:4, kept] = _exact(found, rounded[kept], own[kept])
            slopes = objective.slopes(slice(None), known)
        statistics[0] = slopes.loss
        if d_bias is not None:
            d_bias += gradient.sum(0, dtype=dtype)
        return RowResults(statistics, kept, gradient)

    def _run_triton(self, objective: AnyObjective | None, d_bias: Tensor | None) -> RowResults:
        """One kernel for all of it; rows without a slope stay, so that nothing waits for a GPU."""
        head, token, logits = self._head, self._token, self._logits
        self._multiply()
        own = None if logits.dtype == torch.float32 else self._own_logits()
        mask = None if head.mask is None else mask_rows(head.mask, self._at)
        reference = None if head.reference is None else head.reference.logits(self._at)
        rows = triton.Rows(logits, token, mask, head.temperature, head.softcap, reference)
        if isinstance(objective, PolicyObjective):
            found = triton.loss_and_gradient(rows, objective, own=own, out=logits)
            statistics = found.with_loss()
        else:
            found = triton.statistics(rows, own)
            statistics = found.with_loss()
            if objective is None:
                return RowResults(statistics, token[:0], logits[:0])
            slopes = objective.slopes(slice(None), TokenStatistics.of(statistics[1:]))
            if slopes.kl is None:
                triton.loss_and_gradient(rows, Upstream(*slopes[1:]), own=own, out=logits)
            else:
                logits.copy_(triton.gradient(rows, found, *slopes[1:]))
            statistics[0] = slopes.loss
        if d_bias is not None:
            d_bias += logits.sum(0, dtype=torch.float32)
        everyone = torch.arange(len(token), device=token.device)
        return RowResults(statistics, everyone, logits)

    def _multiply(self) -> None:
        head, logits = self._head, self._logits
        if head.bias is None:
            torch.mm(self.source, head.weight.t(), out=logits)
        else:
            torch.addmm(head.bias, self.source, head.weight.t(), out=logits)

    def _run_plain(self, objective: AnyObjective | None, d_bias: Tensor | None) -> RowResults:
        head, logits = self._head, self._logits
        self._multiply()
        dtype = compute_dtype(logits)
        own = self._own_logits() if dtype != logits.dtype else None
        reference = head.reference
        raw = None if reference is None else reference.logits(self._at)
        ref_own = None if reference is None else reference.own(self._at, self._token)
        statistics = logits.new_zeros(6, len(logits), dtype=dtype)
        kept: list[Tensor] = []
        size = 0
        step = self._block_rows(objective)
        for start in range(0, len(logits), step):
            block = slice(start, start + step)
            column, at = self._token[block].unsqueeze(1), self._at[block]
            z = _wide(logits[block], dtype, column, own if own is None else own[block])
            softmax = Softmax(head, z, column, at)
            if raw is not None:
                r = _wide(raw[block], dtype, column, ref_own if ref_own is None else ref_own[block])
                softmax.compare(head, r, at)
            known = softmax.statistics(objective is None or objective.needs_entropy)
            statistics[1:, block] = torch.stack(known)
            if objective is None:
                continue
            slopes = objective.slopes(block, known)
            statistics[0, block] = slopes.loss
            g = softmax.gradient(slopes)
            active = slopes.are_active()
            g = g if bool(active.all()) else g[active]
            logits[size : size + len(g)] = g  # never beyond what has been read
            size += len(g)
            kept.append(active.nonzero().squeeze(1) + start)
            if d_bias is not None:
                d_bias += g.sum(0)
        return RowResults(statistics, torch.cat(kept) if kept else self._token[:0], logits[:size])

    def _block_rows(self, objective: AnyObjective | None) -> int:
        """Rows at a time: as many as stay in the cache, where the objective lets them."""
        logits = self._logits
        # With a sharded vocabulary all processes ask about the same rows, equally often.
        if logits.is_cpu and not isinstance(objective, ShardObjective):
            return max(1, _BLOCK_ELEMENTS // logits.shape[1])
        return len(logits)

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
    log_prob, entropy, log_normalizer = found.log_prob, found.entropy, found.log_normalizer
    assert log_prob is not None  # both were asked for
    assert log_normalizer is not None
    is_possible = log_prob > float("-inf")
    if own is not rounded:
        against = torch.log(-torch.expm1(log_prob)) - log_prob
        better = -softplus(against - (own - rounded))
        log_prob = torch.where(is_possible, better, log_prob)
    entropy = torch.zeros_like(log_prob) if entropy is None else entropy
    return torch.stack(
        [log_prob, entropy, torch.where(is_possible, own - log_prob, log_normalizer)]
    )


def _mark_empty(known: TokenStatistics, logits: Tensor, mask: Tensor | None) -> None:
    """Where a part of a vocabulary allows nothing the kernel finds no number; it has the mass 0."""
    rows = known.log_normalizer.isnan().nonzero().squeeze(1)
    allowed = logits[rows] != float("-inf")
    if mask is not None:
        allowed &= mask[rows]
    empty = rows[~allowed.any(1)]
    known.log_prob[empty] = known.entropy[empty] = 0.0
    known.log_normalizer[empty] = float("-inf")


def _closed_up(logits: Tensor, kept: Tensor) -> Tensor:
    """The rows to keep, moved to the front of their own memory."""
    if len(kept) < len(logits):
        for target, row in enumerate(kept.tolist()):
            if target != row:
                logits[target] = logits[row]
    return logits[: len(kept)]


def _wide(raw: Tensor, dtype: torch.dtype, column: Tensor, own: Tensor | None) -> Tensor:
    """A copy of some rows in ``dtype``, with better numbers for one column each."""
    z = raw.to(dtype, copy=True)
    return z if own is None else z.scatter_(1, column, own.unsqueeze(1))
