"""log π(a) and the entropy as one autograd node over rows, and the choice of how to compute it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.ops import _backend, _plain
from eligibility.shapes import are_values_readable


def statistics(
    logits: Tensor, action: Tensor, mask: Tensor | None, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """log π(a) ``[*batch]`` and, if wanted, the entropy ``[*batch]``; inputs are checked already.

    The composition of torch's operations where something traces or transforms it, or where it is
    small; otherwise one pass forward and one backward with the closed-form gradient.
    """
    if not _backend.pays(logits, with_entropy):
        _backend.check_actions(logits, action)
        log_probs = _plain.log_pmf(logits, mask)
        entropy = _plain.entropy(log_probs) if with_entropy else None
        return _plain.at_action(log_probs, action), entropy
    batch, categories = logits.shape[:-1], logits.shape[-1]
    rows = mask.reshape(-1, categories) if mask is not None else None
    log_prob, entropy = _RowStatistics.apply(  # type: ignore[no-untyped-call]  # torch
        logits.reshape(-1, categories), action.reshape(-1), rows, with_entropy
    )
    return log_prob.reshape(batch), entropy.reshape(batch) if with_entropy else None


class _RowStatistics(torch.autograd.Function):
    """(log π(a), entropy) of rows ``[N, K]``, with the gradient in closed form."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, action: Tensor, mask: Tensor | None, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        log_prob, entropy = _backend.row_statistics(logits, action, mask, with_entropy)
        ctx.save_for_backward(logits, action, mask, entropy)
        ctx.save_for_forward(logits, action, mask)
        ctx.set_materialize_grads(False)
        return log_prob, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_log_prob: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, None, None, None]:
        logits, action, mask, entropy = ctx.saved_tensors
        upstream = [grad for grad in (grad_log_prob, grad_entropy) if grad is not None]
        if not upstream:
            return None, None, None, None
        if torch.is_grad_enabled() or not are_values_readable(*upstream):
            result = _plain.gradient(logits, action, mask, grad_log_prob, grad_entropy)
        else:
            result = _backend.row_gradient(
                logits, action, mask, entropy, grad_log_prob, grad_entropy
            )
        return result, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor | None]:
        logits, action, mask = ctx.saved_tensors
        log_probs = _plain.log_pmf(logits, mask)
        probs = log_probs.exp()
        moved = torch.where(probs > 0, tangent.to(probs.dtype), 0.0)
        moved = moved - (probs * moved).sum(-1, keepdim=True)
        finite = torch.where(probs > 0, log_probs, 0.0)
        return _plain.at_action(moved, action), -(probs * finite * moved).sum(-1)
