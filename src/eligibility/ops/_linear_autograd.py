"""The linear head as autograd operations, and the choice between the sweep and the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from eligibility.ops._linear_head import Head
from eligibility.ops._linear_sweep import Sweep, Wants, sweep
from eligibility.ops._policy_objective import Objective, PolicyObjective, Upstream
from eligibility.shapes import are_values_readable


def is_sweepable(*tensors: Tensor | None) -> bool:
    """Whether the sweep may run: nothing traces, transforms or carries forward tangents."""
    present = [tensor for tensor in tensors if tensor is not None]
    if not are_values_readable(*present):
        return False
    return all(_tangent(tensor) is None for tensor in present)


def _tangent(tensor: Tensor) -> Tensor | None:
    unpacked = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]  # torch
    tangent: Tensor | None = unpacked.tangent
    return tangent


def statistics(
    head: Head, hidden: Tensor, token: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """log_prob, entropy and log_normalizer of rows ``[N, D]``; inputs are checked already."""
    if not is_sweepable(hidden, head.weight, head.bias):
        return head.statistics(hidden, token, ignore_index)
    result: tuple[Tensor, Tensor, Tensor] = _Statistics.apply(  # type: ignore[no-untyped-call]  # torch
        hidden, head.weight, head.bias, head, token, ignore_index
    )
    return result


def summed_loss(
    head: Head, hidden: Tensor, token: Tensor, ignore_index: int, objective: PolicyObjective
) -> Tensor:
    """The sum of the losses, with the gradient taken on the way forward where that is possible."""
    inputs = [tensor for tensor in (hidden, head.weight, head.bias) if tensor is not None]
    fused = is_sweepable(*inputs, *objective.tensors) and not any(
        tensor.requires_grad for tensor in objective.tensors
    )
    if not fused:
        return token_losses(head, hidden, token, ignore_index, objective).sum()
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        rows = _rows(token, ignore_index, objective)
        return _sweep(head, hidden, token, rows, objective, Wants()).loss.sum()
    result: Tensor = _SummedLoss.apply(  # type: ignore[no-untyped-call]  # torch
        hidden, head.weight, head.bias, head, token, ignore_index, objective
    )
    return result


def token_losses(
    head: Head, hidden: Tensor, token: Tensor, ignore_index: int, objective: PolicyObjective
) -> Tensor:
    """The loss of every token, 0 where ignored, differentiable in all its tensors."""
    return _token_losses(
        statistics(head, hidden, token, ignore_index), token, ignore_index, objective
    )


def _token_losses(
    statistics: tuple[Tensor, Tensor, Tensor],
    token: Tensor,
    ignore_index: int,
    objective: PolicyObjective,
) -> Tensor:
    log_prob, entropy, log_normalizer = statistics
    silent = objective.silent_rows() | (token == ignore_index)
    loss = objective.loss(torch.where(silent, 0.0, log_prob), entropy, log_normalizer)
    return torch.where(silent, 0.0, loss)


class _Statistics(torch.autograd.Function):
    """Any gradient may arrive per token, so the logits are computed again: 8 N V D in all."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head: Head,
        token: Tensor,
        ignore_index: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, token, head.mask)
        ctx.head, ctx.ignore_index = head, ignore_index
        ctx.set_materialize_grads(False)
        rows = _rows(token, ignore_index, None)
        result = _sweep(head, hidden, token, rows, None, Wants())
        return result.log_prob, result.entropy, result.log_normalizer

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [part for part in upstream if part is not None]
        if not given:
            return (None,) * 6
        hidden, weight, bias, token, mask = ctx.saved_tensors
        head = replace(ctx.head, weight=weight, bias=bias, mask=mask)
        if torch.is_grad_enabled() or not is_sweepable(*given):
            with torch.enable_grad():
                outputs = head.statistics(hidden, token, ctx.ignore_index)
            return (*_differentiable((hidden, weight, bias), outputs, upstream), None, None, None)
        log_prob = upstream[0] if upstream[0] is not None else torch.zeros_like(given[0])
        objective = Upstream(log_prob, *upstream[1:])
        rows = _rows(token, ctx.ignore_index, None)
        result = _sweep(head, hidden, token, rows, objective, _wants(ctx))
        return result.hidden, result.weight, result.bias, None, None, None


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
        ignore_index: int,
        objective: PolicyObjective,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, token, head.mask, *objective.tensors)
        ctx.head, ctx.ignore_index, ctx.objective = head, ignore_index, objective
        rows = _rows(token, ignore_index, objective)
        gradients = _sweep(head, hidden, token, rows, objective, _wants(ctx))
        ctx.gradients = gradients
        return gradients.loss.sum()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, token, mask, *_ = ctx.saved_tensors
        head = replace(ctx.head, weight=weight, bias=bias, mask=mask)
        nothing = (None,) * 4
        if torch.is_grad_enabled() or not is_sweepable(upstream):
            with torch.enable_grad():
                statistics = head.statistics(hidden, token, ctx.ignore_index)
                loss = _token_losses(statistics, token, ctx.ignore_index, ctx.objective).sum()
            return (*_differentiable((hidden, weight, bias), (loss,), (upstream,)), *nothing)
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward over a retained graph
            rows = _rows(token, ctx.ignore_index, ctx.objective)
            gradients = _sweep(head, hidden, token, rows, ctx.objective, _wants(ctx))
        parts = [gradients.hidden, gradients.weight, gradients.bias]
        if not bool(upstream == 1):
            parts = [None if part is None else part.mul_(upstream) for part in parts]
        return (*parts, *nothing)


def _differentiable(
    inputs: tuple[Tensor | None, ...],
    outputs: tuple[Tensor, ...],
    upstream: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients by the definition, themselves part of the graph: for derivatives of gradients."""
    given = [(o, g) for o, g in zip(outputs, upstream, strict=True) if g is not None]
    needed = [i for i, part in enumerate(inputs) if part is not None and part.requires_grad]
    found = torch.autograd.grad(
        [output for output, _ in given],
        [part for part in inputs if part is not None and part.requires_grad],
        [gradient for _, gradient in given],
        create_graph=True,
    )
    by_position = dict(zip(needed, found, strict=True))
    return tuple(by_position.get(i) for i in range(len(inputs)))


def _sweep(
    head: Head,
    hidden: Tensor,
    token: Tensor,
    rows: Tensor,
    objective: Objective | None,
    wants: Wants,
) -> Sweep:
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        return sweep(head, hidden, token, rows, objective, wants)


def _wants(ctx: Any) -> Wants:
    return Wants(*ctx.needs_input_grad[:3])


def _rows(token: Tensor, ignore_index: int, objective: PolicyObjective | None) -> Tensor:
    """Positions of the tokens that count."""
    counts = token != ignore_index
    if objective is not None:
        counts = counts & ~objective.silent_rows()
    return counts.nonzero().squeeze(1)
