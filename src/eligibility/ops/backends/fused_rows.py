"""Statistics and samples of raw logits as autograd nodes over the Triton kernels.

First derivatives only: a double backward goes through the composition in torch's own operations,
and what is traced, transformed or carries forward tangents never comes here (`serves`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from eligibility.ops._second_derivatives import by_definition
from eligibility.ops.backends import plain, triton
from eligibility.shapes import are_values_readable


class RowStatistics(NamedTuple):
    """What is known of every row, each ``[N]``; ``kl`` means something if there is a reference."""

    log_prob: Tensor
    entropy: Tensor
    log_normalizer: Tensor
    kl: Tensor


def serves(logits: Tensor) -> bool:
    """Whether the kernels can take ``logits``: nothing traces, transforms or moves them."""
    if not triton.serves(logits):
        return False
    # torch asks the same of itself before every operation; there is no public name.
    return forward_ad._current_level < 0 and are_values_readable(logits)


def serves_constant(reference: Tensor) -> bool:
    """Whether the kernels can take the logits of a reference policy, which want no gradient."""
    return serves(reference) and not (torch.is_grad_enabled() and reference.requires_grad)


def statistics(rows: triton.Rows) -> RowStatistics:
    """The statistics of rows, differentiable in the logits."""
    return RowStatistics(*_Statistics.apply(rows.logits, rows))  # type: ignore[no-untyped-call]  # torch


def sampled(rows: triton.Rows, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """An action for each row and its log-probability, differentiable in the logits."""
    device = rows.logits.device if generator is None else generator.device
    bits = torch.empty((1,), dtype=torch.int64, device=device).random_(generator=generator)
    action, log_prob = _Sample.apply(rows.logits, rows, bits.to(rows.logits.device))  # type: ignore[no-untyped-call]  # torch
    return action, log_prob


class _Statistics(torch.autograd.Function):
    """(log π(a), entropy, log Σ exp z, KL) of rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: triton.Rows) -> tuple[Tensor, ...]:
        results = triton.statistics(rows)
        return _keep(ctx, logits, rows, results)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, None]:
        return _gradient(ctx, ctx.rows.action, upstream), None


class _Sample(torch.autograd.Function):
    """(action, log π(action)) of rows, drawn from 64 bits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: triton.Rows, bits: Tensor) -> tuple[Tensor, Tensor]:
        ctx.action, results = triton.sample(rows, bits)
        ctx.mark_non_differentiable(ctx.action)
        return ctx.action, _keep(ctx, logits, rows, results)[0]

    @staticmethod
    def backward(ctx: Any, _: None, upstream: Tensor | None) -> tuple[Tensor | None, None, None]:
        return _gradient(ctx, ctx.action, (upstream, None, None, None)), None, None


def _keep(
    ctx: Any, logits: Tensor, rows: triton.Rows, results: triton.Results
) -> tuple[Tensor, ...]:
    ctx.save_for_backward(logits)  # which notices if they are changed before the backward pass
    ctx.rows, ctx.results = rows, results
    ctx.set_materialize_grads(False)
    return tuple(results.table[1:5].clone().unbind(0))


def _gradient(ctx: Any, action: Tensor, upstream: tuple[Tensor | None, ...]) -> Tensor | None:
    given = [part for part in upstream if part is not None]
    if not given:
        return None
    (logits,) = ctx.saved_tensors
    rows = replace(ctx.rows, logits=logits, action=action)
    if torch.is_grad_enabled() or not are_values_readable(*given):
        return by_definition((logits,), lambda: composed(rows), upstream)[0]
    by_log_prob = upstream[0] if upstream[0] is not None else torch.zeros_like(given[0])
    return triton.gradient(rows, ctx.results, by_log_prob, *upstream[1:])


def composed(rows: triton.Rows) -> RowStatistics:
    """The definition of the statistics, in operations that torch differentiates to any order."""

    def shaped(logits: Tensor) -> Tensor:
        z = plain.shaped(logits, rows.temperature, rows.softcap)
        return plain.masked(z.to(plain.compute_dtype(z)), rows.mask)

    z = shaped(rows.logits)
    log_probs = plain.log_pmf(z)
    other = log_probs if rows.reference is None else plain.log_pmf(shaped(rows.reference))
    return RowStatistics(
        plain.at_action(log_probs, rows.action),
        plain.entropy(log_probs),
        torch.logsumexp(z, -1),
        plain.kl(log_probs, other),
    )
