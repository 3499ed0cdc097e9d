"""The native loss as an operation that torch.compile does not look into, so that it stays one pass.

Inside a compiled function nothing can be read, so there the operation itself raises for an action
that is out of range or forbidden, when it runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eligibility.ops import _cpu
from eligibility.ops._categorical_call import CategoricalCall
from eligibility.ops._native_loss import take
from eligibility.ops._policy_objective import PolicyObjective

_is_transforming = torch._C._are_functorch_transforms_active


def serves(call: CategoricalCall) -> bool:
    """Whether torch.compile is tracing, no transform of torch.func, logits the kernel can take."""
    return torch.compiler.is_compiling() and not _is_transforming() and _cpu.serves(call.raw)


def traced_loss(
    call: CategoricalCall, objective: PolicyObjective, z_loss_coef: float, reduction: str
) -> Tensor:
    """The sum or the mean of the rows' losses; differentiable in the logits alone, once."""
    softcap = 0.0 if call.softcap is None else call.softcap
    loss: Tensor
    loss, _ = _operation(
        call.raw,
        call.action,
        call.counts,
        call.mask,
        call.kept,
        objective.advantage,
        objective.token_weight,
        objective.old_log_prob,
        objective.ref_log_prob,
        [call.temperature, softcap, z_loss_coef, objective.entropy_coef, objective.kl_coef],
        list(objective.clip),
        objective.kl_estimator,
        reduction == "mean",
    )
    return loss


_SCHEMA = (
    "(Tensor logits, Tensor? action, Tensor? counts, Tensor? mask, Tensor? kept, Tensor advantage, "
    "Tensor? weight, Tensor? old, Tensor? reference, float[] numbers, float[] clip, "
    "str kl_estimator, bool is_mean) -> (Tensor, Tensor)"
)


@torch.library.custom_op("eligibility::policy_loss", mutates_args=(), schema=_SCHEMA)
def _operation(
    logits: Tensor,
    action: Tensor | None,
    counts: Tensor | None,
    mask: Tensor | None,
    kept: Tensor | None,
    advantage: Tensor,
    weight: Tensor | None,
    old: Tensor | None,
    reference: Tensor | None,
    numbers: list[float],
    clip: list[float],
    kl_estimator: str,
    is_mean: bool,
) -> tuple[Tensor, Tensor]:
    temperature, softcap, z_loss_coef, entropy_coef, kl_coef = numbers
    call = CategoricalCall(logits, action, counts, mask, kept, temperature, softcap or None)
    objective = replace(
        PolicyObjective(advantage, weight, entropy_coef),
        old_log_prob=old,
        ref_log_prob=reference,
        clip=(clip[0], clip[1]),
        kl_coef=kl_coef,
        kl_estimator=kl_estimator,
    )
    scale = 1.0 / call.rows() if is_mean else 1.0
    loss, gradient, is_impossible = take(call, objective, z_loss_coef, scale)
    if is_impossible:
        call.explain_impossible(call.counting(weight))
    return loss, gradient


@_operation.register_fake
def _(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    return logits.new_empty((), dtype=_cpu.column_dtype(logits)), gradient


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.count = len(inputs)


def _scale(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return ((gradient * upstream).to(gradient.dtype), *(None,) * (ctx.count - 1))


_operation.register_autograd(_scale, setup_context=_keep)
