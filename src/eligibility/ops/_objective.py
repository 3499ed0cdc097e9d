"""An objective that is linear in log π(a) and the entropy: value and gradient in one pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.ops import _backend, _plain
from eligibility.ops.memory import logits_are_gone
from eligibility.shapes import are_values_readable


def objective(
    logits: Tensor,
    action: Tensor,
    mask: Tensor | None,
    grad_log_prob: Tensor,
    grad_entropy: Tensor | None,
    reuse_logits: bool = False,
) -> tuple[Tensor, Tensor]:
    """``Σ g log π(a) + h H`` over all rows, a scalar, and log π(a) for inspection.

    The gradient is taken while a row is in the cache, before it is known whether it will be asked
    for; the caller makes sure that it will. With ``reuse_logits`` it is written over the logits.
    """
    shape, categories = action.shape, logits.shape[-1]
    if action.ndim != 1:  # a view of what is flat already would cost a node of the graph
        logits, action = logits.reshape(-1, categories), action.reshape(-1)
        grad_log_prob = grad_log_prob.reshape(-1)
        grad_entropy = None if grad_entropy is None else grad_entropy.reshape(-1)
    rows = None if mask is None else mask.reshape(-1, categories)
    node = _RowObjectiveInPlace if reuse_logits else _RowObjective
    value, log_prob = node.apply(  # type: ignore[no-untyped-call]  # torch
        logits, action, rows, grad_log_prob, grad_entropy
    )
    return value, log_prob if log_prob.shape == shape else log_prob.reshape(shape)


class _RowObjective(torch.autograd.Function):
    """(objective, log π(a)) of rows ``[N, K]``; log π(a) carries no gradient here."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        action: Tensor,
        mask: Tensor | None,
        grad_log_prob: Tensor,
        grad_entropy: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        log_prob, entropy, ctx.gradient = _backend.row_objective(
            logits, action, mask, grad_log_prob, grad_entropy
        )
        ctx.save_for_backward(logits, action, mask, grad_log_prob, grad_entropy)
        ctx.save_for_forward(logits, action, mask, grad_log_prob, grad_entropy)
        ctx.mark_non_differentiable(log_prob)
        ctx.set_materialize_grads(False)
        value = _backend.objective(logits, grad_log_prob, log_prob, grad_entropy, entropy)
        return value, log_prob

    @staticmethod
    def backward(
        ctx: Any, upstream: Tensor | None, _: None
    ) -> tuple[Tensor | None, None, None, None, None]:
        if upstream is None:
            return None, None, None, None, None
        logits, action, mask, *grads = ctx.saved_tensors
        if torch.is_grad_enabled() or not are_values_readable(upstream):
            scaled = [None if grad is None else upstream * grad for grad in grads]
            return _plain.gradient(logits, action, mask, *scaled), None, None, None, None
        # Nobody else holds the gradient of the first call yet, so that it may be scaled in place.
        gradient: Tensor | None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = _backend.row_objective(logits, action, mask, *grads)[2]
        if upstream.item() != 1.0:
            gradient.mul_(upstream)
        return gradient, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        logits, action, mask, *grads = ctx.saved_tensors
        return (_plain.gradient(logits, action, mask, *grads) * tangent).sum(), None


class _RowObjectiveInPlace(torch.autograd.Function):
    """As `_RowObjective`, with the gradient in the memory of the logits: once, to first order."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        action: Tensor,
        mask: Tensor | None,
        grad_log_prob: Tensor,
        grad_entropy: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.gradient = logits.detach()
        log_prob, entropy, _ = _backend.row_objective(
            logits, action, mask, grad_log_prob, grad_entropy, out=ctx.gradient
        )
        # The kernel writes behind torch's back; so a node that kept the logits for itself raises.
        torch.autograd.graph.increment_version(logits)
        ctx.mark_non_differentiable(log_prob)
        ctx.set_materialize_grads(False)
        value = _backend.objective(logits, grad_log_prob, log_prob, grad_entropy, entropy)
        return value, log_prob

    @staticmethod
    def backward(
        ctx: Any, upstream: Tensor | None, _: None
    ) -> tuple[Tensor | None, None, None, None, None]:
        if upstream is None:
            return None, None, None, None, None
        if ctx.gradient is None or torch.is_grad_enabled():
            raise logits_are_gone()
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(upstream), None, None, None, None
