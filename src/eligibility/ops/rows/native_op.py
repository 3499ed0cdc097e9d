"""The native loss as an operation that torch.compile does not look into, so that it stays one pass.

Inside a compiled function nothing can be read, so there the operation itself raises for an action
that is out of range or forbidden, when it runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.ops.backends import cpu
from eligibility.ops.rows.loss_backends import by_native
from eligibility.ops.rows.summed_loss import PolicyLoss, rebuilt


def traced_loss(loss: PolicyLoss) -> Tensor:
    """The sum or the mean of the rows' losses; differentiable in the logits alone, once."""
    call, objective = loss.call, loss.objective
    softcap = 0.0 if call.softcap is None else call.softcap
    value: Tensor
    value, _ = _operation(
        *loss.parts()[1][:-1],
        [
            call.temperature,
            softcap,
            objective.entropy_coef,
            *objective.clip,
            objective.kl_coef,
            objective.z_loss_coef,
        ],
        objective.kl_estimator,
        loss.reduction,
    )
    return value


_SCHEMA = (
    "(Tensor logits, Tensor? action, Tensor? counts, Tensor? mask, Tensor? kept, Tensor advantage, "
    "Tensor? weight, Tensor? old, Tensor? reference, float[] numbers, "
    "str kl_estimator, str reduction) -> (Tensor, Tensor)"
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
    kl_estimator: str,
    reduction: str,
) -> tuple[Tensor, Tensor]:
    temperature, softcap, entropy_coef, low, high, kl_coef, z_loss_coef = numbers
    coefficients = (entropy_coef, (low, high), kl_coef, kl_estimator, z_loss_coef)
    constants = ((temperature, softcap or None), coefficients, reduction)
    tensors = (logits, action, counts, mask, kept, advantage, weight, old, reference, None)
    return by_native(rebuilt(constants, tensors), None)


@_operation.register_fake
def _(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    return logits.new_empty((), dtype=cpu.column_dtype(logits)), gradient


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.count = len(inputs)


def _scale(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return ((gradient * upstream).to(gradient.dtype), *(None,) * (ctx.count - 1))


_operation.register_autograd(_scale, setup_context=_keep)
