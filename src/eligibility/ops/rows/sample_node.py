"""Drawing and log-probability in one pass by the native kernel, as autograd nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.arguments import check_generator
from eligibility.ops.backends import cpu, selection
from eligibility.ops.rows.categorical_call import CategoricalCall
from eligibility.ops.rows.statistics import native_gradient, task_of
from eligibility.shapes import TENSOR_TYPES, are_values_readable, check_logits

_MOST_AT_ONCE = 1 << 16  # logits


def native_sample(
    call: CategoricalCall, sample_shape: torch.Size, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Actions and their log-probabilities, ``[*sample_shape, *batch]``."""
    batch = call.raw.shape[:-1]
    uniform = _uniform((batch.numel(), sample_shape.numel()), generator)
    shaping = (call.temperature, call.softcap)
    action, log_prob = _apply(call.raw, call.mask, shaping, uniform, sample_shape + batch)
    return action, log_prob


class _Sample(torch.autograd.Function):
    """(action, log π(action)), differentiable in the logits."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        mask: Tensor | None,
        shaping: tuple[float, float | None],
        uniform: Tensor,
        shape: torch.Size,
    ) -> tuple[Tensor, Tensor]:
        task = task_of(CategoricalCall(logits, None, None, mask, None, *shaping))
        action = torch.empty(uniform.shape[::-1], dtype=torch.int64, device="cpu")
        found = cpu.run(task._replace(action=action, uniform=uniform), log_prob=True)
        if found.impossible:
            _refuse(logits, mask)
        assert found.log_prob is not None  # it was asked for
        action = action.view(shape)
        ctx.save_for_backward(logits, action, mask)
        ctx.shaping = shaping
        ctx.mark_non_differentiable(action)
        ctx.set_materialize_grads(False)
        return action, found.log_prob.view(shape)

    @staticmethod
    def backward(ctx: Any, _: None, upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, action, mask = ctx.saved_tensors
        call = CategoricalCall(logits, action, None, mask, None, *ctx.shaping)
        return native_gradient(call, upstream, None), None, None, None, None


_apply = selection.direct(_Sample)


def small_sample(logits: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    """One action a row where all is as it mostly is; None where something is not.

    As with `loss_node.small_loss`, what is unusual, errors included, is left to the long way.
    """
    if not (
        type(logits) in TENSOR_TYPES
        and cpu.knows(logits)
        and 0 < logits.numel() <= _MOST_AT_ONCE
        and selection.pays(logits, one_pass=True)
        and cpu.is_contiguous(logits)
        and logits.ndim > 0
    ):
        return None
    if generator is not None:
        check_generator(generator, logits.device)
    if not (logits.requires_grad and torch.is_grad_enabled()):
        return _drawn(logits, generator)
    action: Tensor
    log_prob: Tensor
    action, log_prob = _apply_small(logits, generator)
    return action, log_prob


class _SmallSample(torch.autograd.Function):
    """As `_Sample`, for contiguous logits as they are."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        action, log_prob = _drawn(logits, generator)
        ctx.save_for_backward(logits, action)
        ctx.mark_non_differentiable(action)
        ctx.set_materialize_grads(False)
        return action, log_prob

    @staticmethod
    def backward(ctx: Any, _: None, upstream: Tensor | None) -> tuple[Tensor | None, None]:
        if upstream is None:
            return None, None
        logits, action = ctx.saved_tensors
        is_usual = cpu.is_plain(upstream) and are_values_readable(upstream)
        if torch.is_grad_enabled() or not is_usual:
            call = CategoricalCall(logits, action, None, None, None, 1.0, None)
            return native_gradient(call, upstream, None), None
        return cpu.small_gradient(logits, action, upstream.contiguous()), None


# What `Function.apply` comes to outside torch.func's transforms, which `selection.pays` excludes.
_apply_small: Any = super(torch.autograd.Function, _SmallSample).apply


def _drawn(logits: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    uniform = _uniform(logits.shape[:-1], generator)
    action, log_prob, is_fine = cpu.small_sample(logits, uniform)
    if not is_fine:
        _refuse(logits, None)
    return action, log_prob


def _uniform(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1) with 53 bits, as `draw_categories` takes them."""
    return torch.rand(shape, dtype=torch.float64, generator=generator, device=cpu.DEVICE)


def _refuse(logits: Tensor, mask: Tensor | None) -> None:
    """Raise for a row without a distribution."""
    rows = logits.detach()
    check_logits(rows if mask is None else torch.where(mask, rows, float("-inf")))
