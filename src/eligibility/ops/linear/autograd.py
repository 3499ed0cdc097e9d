"""The linear head as autograd operations, and the choice between the sweep and the definition."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from eligibility.errors import InvalidValueError
from eligibility.ops._policy_objective import Objective, PolicyObjective, TokenStatistics, Upstream
from eligibility.ops._second_derivatives import by_definition
from eligibility.ops._vocab_shard import ShardObjective, summed_gradient
from eligibility.ops.linear.head import IGNORED, Head
from eligibility.ops.linear.sweep import Sweep, Wants, sweep
from eligibility.shapes import are_values_readable


def is_sweepable(*tensors: Tensor | None) -> bool:
    """Whether the sweep may run: nothing traces, transforms or carries forward tangents."""
    present = [tensor for tensor in tensors if tensor is not None]
    if not are_values_readable(*present):
        return False
    return all(forward_ad.unpack_dual(tensor).tangent is None for tensor in present)  # type: ignore[no-untyped-call]  # torch


def statistics(head: Head, hidden: Tensor, token: Tensor) -> TokenStatistics:
    """The statistics of rows ``[N, D]``, 0 where ignored; inputs are checked already."""
    if head.shard is None:
        return _statistics(head, hidden, token)
    if not is_sweepable(hidden, head.weight, head.bias):
        raise _first_derivatives_only("a transformed, traced or forward-mode call")
    local = _statistics(head, summed_gradient(hidden, head.shard.group), token)
    with_kl = head.reference is not None
    return head.shard.combine(token >= 0, token == IGNORED, local, with_kl)


def _statistics(head: Head, hidden: Tensor, token: Tensor) -> TokenStatistics:
    """Those of the part of the vocabulary that is here."""
    given = head.reference.tensors if head.reference is not None else ()
    if not is_sweepable(hidden, head.weight, head.bias, *given):
        return head.statistics(hidden, token)
    return TokenStatistics(
        *_Statistics.apply(hidden, head.weight, head.bias, head, token)  # type: ignore[no-untyped-call]  # torch
    )


def summed_loss(head: Head, hidden: Tensor, token: Tensor, objective: PolicyObjective) -> Tensor:
    """The sum of the losses, with the gradient taken on the way forward where that is possible."""
    inputs = [tensor for tensor in (hidden, head.weight, head.bias) if tensor is not None]
    constants = objective.tensors
    given = head.reference.tensors if head.reference is not None else ()
    fused = is_sweepable(*inputs, *constants, *given) and not any(
        tensor.requires_grad for tensor in constants
    )
    if not fused:
        return token_losses(head, hidden, token, objective).sum()
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        return _sweep_loss(head, hidden, token, objective, Wants()).loss.sum()
    if head.shard is not None:
        hidden = summed_gradient(hidden, head.shard.group)
    result: Tensor = _SummedLoss.apply(  # type: ignore[no-untyped-call]  # torch
        hidden, head.weight, head.bias, head, token, objective
    )
    return result


def token_losses(head: Head, hidden: Tensor, token: Tensor, objective: PolicyObjective) -> Tensor:
    """The loss of every token, 0 where ignored, differentiable in all its tensors."""
    return _token_losses(statistics(head, hidden, token), token, objective)


def _token_losses(known: TokenStatistics, token: Tensor, objective: PolicyObjective) -> Tensor:
    silent = objective.silent_rows() | (token == IGNORED)
    log_prob, kl = (torch.where(silent, 0.0, part) for part in (known.log_prob, known.kl))
    loss = objective.loss(log_prob, known.entropy, known.log_normalizer, kl)
    return torch.where(silent, 0.0, loss)


class _Statistics(torch.autograd.Function):
    """Any gradient may arrive per token, so the logits are computed again: 8 N V D in all."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head, token: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(hidden, weight, bias, token, *head.constants)
        ctx.head = head
        ctx.set_materialize_grads(False)
        result = _sweep(head, hidden, token, token != IGNORED, None, Wants()).known
        ctx.mark_non_differentiable(result.ref_log_normalizer)
        return tuple(result)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        upstream = upstream[:4]
        given = [part for part in upstream if part is not None]
        if not given:
            return (None,) * 5
        hidden, weight, bias, token, mask, *_ = ctx.saved_tensors
        head = ctx.head.again(weight, bias, mask)
        if torch.is_grad_enabled() or not is_sweepable(*given):

            def definition() -> tuple[Tensor, ...]:
                return tuple(head.statistics(hidden, token)[:4])

            return (*by_definition((hidden, weight, bias), definition, upstream), None, None)
        log_prob = upstream[0] if upstream[0] is not None else torch.zeros_like(given[0])
        objective = Upstream(log_prob, *upstream[1:])
        result = _sweep(head, hidden, token, token != IGNORED, objective, _wants(ctx))
        return result.hidden, result.weight, result.bias, None, None


class _SummedLoss(torch.autograd.Function):
    """The gradient is known before the backward pass, up to the one number that arrives there."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head: Head,
        token: Tensor,
        objective: PolicyObjective,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, token, *head.constants, *objective.tensors)
        ctx.head, ctx.objective = head, objective
        ctx.gradients = _sweep_loss(head, hidden, token, objective, _wants(ctx))
        loss: Tensor = ctx.gradients.loss.sum()
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, token, mask, *_ = ctx.saved_tensors
        head = ctx.head.again(weight, bias, mask)
        nothing = (None,) * 3
        if torch.is_grad_enabled() or not is_sweepable(upstream):
            if head.shard is not None:
                raise _first_derivatives_only("a backward pass with create_graph")

            def definition() -> tuple[Tensor]:
                known = head.statistics(hidden, token)
                return (_token_losses(known, token, ctx.objective).sum(),)

            return (*by_definition((hidden, weight, bias), definition, (upstream,)), *nothing)
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward over a retained graph
            gradients = _sweep_loss(head, hidden, token, ctx.objective, _wants(ctx))
        parts = [gradients.hidden, gradients.weight, gradients.bias]
        if not bool(upstream == 1):
            parts = [None if part is None else part.mul_(upstream) for part in parts]
        return (*parts, *nothing)


def _sweep_loss(
    head: Head, hidden: Tensor, token: Tensor, objective: PolicyObjective, wants: Wants
) -> Sweep:
    """The sweep for a loss, by tokens that can contribute; of a whole vocabulary or of a part."""
    counts = (token != IGNORED) & ~objective.silent_rows()
    if head.shard is None:
        return _sweep(head, hidden, token, counts, objective, wants)
    of_part = ShardObjective(objective, head.shard, token >= 0)
    return _sweep(head, hidden, token, counts, of_part, wants)


def _sweep(
    head: Head,
    hidden: Tensor,
    token: Tensor,
    counts: Tensor,
    objective: Objective | ShardObjective | None,
    wants: Wants,
) -> Sweep:
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        rows = counts.nonzero().squeeze(1)
        return sweep(head, hidden, token.clamp_min(0), rows, objective, wants)


def _wants(ctx: Any) -> Wants:
    return Wants(*ctx.needs_input_grad[:3])


def _first_derivatives_only(got: str) -> InvalidValueError:
    return InvalidValueError(
        "`group`",
        got,
        "first derivatives by an ordinary backward pass",
        "a vocabulary sharded over processes supports no others",
    )
