"""Policy-gradient losses as autograd nodes: value and gradient in one pass over the logits.

The gradient is taken while a row is in the cache, before it is known whether it will be asked for;
the caller makes sure that it will. Only what autograd asks for beyond it, second derivatives or a
batch of upstream gradients, goes through the definition in torch's own operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.ops._second_derivatives import by_definition
from eligibility.ops.backends import cpu, selection, triton
from eligibility.ops.memory import logits_are_gone
from eligibility.ops.rows.categorical_call import CategoricalCall
from eligibility.ops.rows.loss_backends import Backend, by_native
from eligibility.ops.rows.native_op import traced_loss
from eligibility.ops.rows.summed_loss import PolicyLoss, rebuilt
from eligibility.shapes import TENSOR_TYPES, are_values_readable

_MOST_IN_ONE_THREAD = 1 << 16  # logits; of the short way, where torch has several threads
_MOST_SMALL = 1 << 21
_INFINITY = float("inf")


def loss_with_gradient(loss: PolicyLoss, backend: Backend, reuse_logits: bool) -> Tensor:
    """The loss, differentiable in the logits alone, with its gradient taken by ``backend``."""
    if torch.compiler.is_compiling() and selection.is_only_traced():
        return traced_loss(loss)
    numbers, tensors = loss.parts()
    is_direct = backend is by_native and not reuse_logits
    apply: Any = _apply_native if is_direct else _Loss.apply
    result: Tensor = apply(loss, None if reuse_logits else numbers, backend, *tensors)
    return result


class _Loss(torch.autograd.Function):
    """The loss; its tensors are arguments so that torch keeps them, and notices their changes.

    Without the numbers to make the loss again, the gradient takes the memory of the logits: there
    is one backward pass then, of first order.
    """

    @staticmethod
    def forward(
        ctx: Any, loss: PolicyLoss, numbers: Any, backend: Backend, *tensors: Tensor | None
    ) -> Tensor:
        ctx.numbers, ctx.backend = numbers, backend
        if numbers is not None:
            ctx.save_for_backward(*tensors)
            value, ctx.gradient = backend(loss, None)
            return value
        logits = loss.call.raw
        value, ctx.gradient = backend(loss, logits.detach())
        # The kernel writes behind torch's back; so a node that kept the logits for itself raises.
        torch.autograd.graph.increment_version(logits)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        asks_on = torch.is_grad_enabled() or not are_values_readable(upstream)
        if ctx.numbers is None and (asks_on or ctx.gradient is None):
            raise logits_are_gone()
        if asks_on:
            gradient = _differentiable(rebuilt(ctx.numbers, ctx.saved_tensors), upstream)
            return (None, None, None, gradient, *_NOTHING_BEHIND)
        # Nobody else holds the gradient of the first call yet: it may be scaled in place.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = ctx.backend(rebuilt(ctx.numbers, ctx.saved_tensors), None)[1]
        _scale(gradient, upstream)
        return (None, None, None, gradient, *_NOTHING_BEHIND)


_apply_native = selection.direct(_Loss)
_NOTHING_BEHIND = (None,) * 9  # the tensors behind the logits


def small_loss(
    logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float
) -> Tensor | None:
    """The mean REINFORCE loss where all is as it mostly is; None where something is not.

    For small logits the time goes into calls. So there are as few as possible; whatever is unusual,
    errors included, is left to the long way.
    """
    if not (
        is_small(logits, action, advantage, entropy_coef)
        and logits.requires_grad
        and not advantage.requires_grad
        and torch.is_grad_enabled()
    ):
        return None
    try:
        result: Tensor = _apply_small(logits, action, advantage, entropy_coef)
    except InvalidTypeError:  # no numbers at an address: the long way finds out why
        return None
    return result


def is_small(logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float) -> bool:
    """Whether `cpu.small_loss` can take these, or raises where a layout has no address."""
    try:
        return _is_small(logits, action, advantage, entropy_coef)
    except RuntimeError:  # a nested tensor has no shape, a sparse one no order
        return False


def _is_small(logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float) -> bool:
    if not (
        type(logits) in TENSOR_TYPES
        and type(action) is Tensor
        and type(advantage) is Tensor
        and (type(entropy_coef) is float or type(entropy_coef) is int)
        and 0 <= entropy_coef < _INFINITY
        and cpu.knows(logits)
        and action.dtype is torch.int64
        and action.is_cpu
        and advantage.dtype is cpu.column_dtype(logits)
        and advantage.is_cpu
    ):
        return False
    size = logits.numel()
    return (
        0 < size <= _MOST_SMALL
        and (size <= _MOST_IN_ONE_THREAD or torch.get_num_threads() == 1)
        and selection.pays(logits, one_pass=True)
        and not (logits.is_neg() or action.is_neg() or advantage.is_neg())
        and (logits.is_contiguous() and action.is_contiguous() and advantage.is_contiguous())
        and action.shape == advantage.shape == logits.shape[:-1]
    )


class _SmallLoss(torch.autograd.Function):
    """The mean REINFORCE loss of contiguous tensors of the dtypes that the kernel takes."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float
    ) -> Tensor:
        ctx.save_for_backward(logits, action, advantage)
        ctx.entropy_coef = entropy_coef
        value, ctx.gradient = cpu.small_loss(logits, action, advantage, entropy_coef)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient: Tensor | None
        gradient, ctx.gradient = ctx.gradient, None
        if torch.is_grad_enabled() or not are_values_readable(upstream):
            logits, action, advantage = ctx.saved_tensors
            call = CategoricalCall(logits, action, None, None, None, 1.0, None)
            loss = PolicyLoss(call, PolicyObjective(advantage, entropy_coef=ctx.entropy_coef))
            return _differentiable(loss, upstream), None, None, None
        if gradient is None:  # a second backward over a retained graph
            logits, action, advantage = ctx.saved_tensors
            gradient = cpu.small_loss(logits, action, advantage, ctx.entropy_coef)[1]
        if upstream.item() != 1.0:
            gradient.mul_(upstream)
        return gradient, None, None, None


# What `Function.apply` comes to outside torch.func's transforms, which `selection.pays` excludes.
_apply_small: Any = super(torch.autograd.Function, _SmallLoss).apply


def _scale(gradient: Tensor, upstream: Tensor) -> None:
    """``gradient *= upstream``, without asking a GPU for the number."""
    if triton.serves(gradient):
        triton.scale(gradient, upstream)
    elif not upstream.is_cpu or upstream.item() != 1.0:
        gradient.mul_(upstream)


def _differentiable(loss: PolicyLoss, upstream: Tensor) -> Tensor | None:
    """The gradient at the logits by the definition, itself part of the graph."""
    return by_definition((loss.call.raw,), lambda: (loss.value(),), (upstream,))[0]
