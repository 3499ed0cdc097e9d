"""A policy-gradient loss by the native kernel: value and gradient in one pass over the logits.

The gradient is taken while a row is in the cache, before it is known whether it will be asked for;
the caller makes sure that it will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from eligibility.ops import _backend, _cpu
from eligibility.ops._categorical_call import CategoricalCall
from eligibility.ops._cpu import Loss
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.ops._statistics import task_of
from eligibility.ops.memory import logits_are_gone
from eligibility.shapes import are_values_readable

Definition = Callable[[CategoricalCall, PolicyObjective, float], Tensor]

_MOST_SMALL = 1 << 16  # logits
_ESTIMATORS = {"k1": 1, "k2": 2, "k3": 3}
_ABSENT = torch.empty(0)  # stands where a tensor was
_TENSOR_TYPES = (Tensor, Parameter)  # a subclass may mean something else by its operations


@dataclass(frozen=True)
class Plan:
    """A loss without its tensors."""

    call: CategoricalCall
    objective: PolicyObjective
    z_loss_coef: float
    scale: float  # of every row: 1, or one over their number
    definition: Definition  # the sum of the rows' losses, in operations that torch differentiates


def native_loss(
    call: CategoricalCall,
    objective: PolicyObjective,
    z_loss_coef: float,
    scale: float,
    definition: Definition,
    reuse_logits: bool,
) -> Tensor:
    """The sum of the rows' losses times ``scale``; differentiable in the logits alone."""
    bare_call, of_call = _stripped(call)
    bare_objective, of_objective = _stripped(objective)
    plan = Plan(bare_call, bare_objective, z_loss_coef, scale, definition)
    names = (*of_call, *of_objective)
    tensors = (*of_call.values(), *of_objective.values())
    node = _LossInPlace if reuse_logits else _Loss
    loss, is_impossible = node.apply(plan, names, *tensors)  # type: ignore[no-untyped-call]  # torch
    if is_impossible:
        call.explain_impossible(call.counting(objective.token_weight))
    result: Tensor = loss
    return result


def small_loss(
    logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float, definition: Definition
) -> Tensor | None:
    """The mean REINFORCE loss where all is as it mostly is; None where something is not.

    For small logits the time goes into calls. So there are as few as possible; whatever is unusual,
    errors included, is left to the long way.
    """
    if not (
        type(logits) in _TENSOR_TYPES
        and type(action) is Tensor
        and type(advantage) is Tensor
        and _cpu.serves(logits)
        and action.dtype is torch.int64
        and action.is_cpu
        and advantage.dtype is _cpu.column_dtype(logits)
        and advantage.is_cpu
        and logits.requires_grad
        and not advantage.requires_grad
    ):
        return None
    shape = logits.shape
    if not (
        0 < logits.numel() <= _MOST_SMALL
        and action.shape == advantage.shape == shape[:-1]
        and logits.is_contiguous()
        and action.is_contiguous()
        and advantage.is_contiguous()
        and torch.is_grad_enabled()
        and _backend.pays(logits, one_pass=True)
    ):
        return None
    result: Tensor = _apply_small(logits, action, advantage, entropy_coef, definition)
    return result


class _Loss(torch.autograd.Function):
    """(loss, whether a row that counts is impossible)."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, names: tuple[str, ...], *tensors: Tensor
    ) -> tuple[Tensor, bool]:
        ctx.save_for_backward(*tensors)
        ctx.plan, ctx.names = plan, names
        loss, ctx.gradient, is_impossible = _taken(plan, dict(zip(names, tensors, strict=True)))
        return loss, is_impossible

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: None) -> tuple[Tensor | None, ...]:
        given = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        if torch.is_grad_enabled() or not are_values_readable(upstream):
            gradient: Tensor | None = _differentiable(ctx.plan, given, upstream)
        else:
            # Nobody else holds the gradient of the first call yet: it may be scaled in place.
            gradient, ctx.gradient = ctx.gradient, None
            if gradient is None:
                gradient = _taken(ctx.plan, given)[1]
            if upstream.item() != 1.0:
                gradient.mul_(upstream)
        return (None, None, *(gradient if name == "raw" else None for name in ctx.names))


class _LossInPlace(torch.autograd.Function):
    """As `_Loss`, with the gradient in the memory of the logits: once, to first order."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, names: tuple[str, ...], *tensors: Tensor
    ) -> tuple[Tensor, bool]:
        given = dict(zip(names, tensors, strict=True))
        ctx.names = names
        loss, ctx.gradient, is_impossible = _taken(plan, given, out=given["raw"].detach())
        # The kernel writes behind torch's back; so a node that kept the logits for itself raises.
        torch.autograd.graph.increment_version(given["raw"])
        return loss, is_impossible

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: None) -> tuple[Tensor | None, ...]:
        if ctx.gradient is None or torch.is_grad_enabled():
            raise logits_are_gone()
        gradient, ctx.gradient = ctx.gradient, None
        if upstream.item() != 1.0:
            gradient.mul_(upstream)
        return (None, None, *(gradient if name == "raw" else None for name in ctx.names))


class _SmallLoss(torch.autograd.Function):
    """The mean REINFORCE loss of contiguous tensors of the dtypes that the kernel takes."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        action: Tensor,
        advantage: Tensor,
        entropy_coef: float,
        definition: Definition,
    ) -> Tensor:
        ctx.save_for_backward(logits, action, advantage)
        ctx.rest = entropy_coef, definition
        value, ctx.gradient = _small_taken(logits, action, advantage, entropy_coef)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient: Tensor | None
        gradient, ctx.gradient = ctx.gradient, None
        entropy_coef, definition = ctx.rest
        logits, action, advantage = ctx.saved_tensors
        if torch.is_grad_enabled() or not are_values_readable(upstream):
            call = CategoricalCall(logits, action, None, None, None, 1.0, None)
            bare_call, of_call = _stripped(call)
            bare, of_objective = _stripped(PolicyObjective(advantage, None, entropy_coef))
            plan = Plan(bare_call, bare, 0.0, 1.0 / action.numel(), definition)
            return (_differentiable(plan, of_call | of_objective, upstream), *(None,) * 4)
        if gradient is None:  # a second backward over a retained graph
            gradient = _small_taken(logits, action, advantage, entropy_coef)[1]
        if upstream.item() != 1.0:
            gradient.mul_(upstream)
        return gradient, None, None, None, None


def _small_taken(
    logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float
) -> tuple[Tensor, Tensor]:
    scale = -1.0 / action.numel()
    return _cpu.small_loss(logits, action, advantage, scale, scale * entropy_coef)


# What `Function.apply` comes to outside torch.func's transforms, which `_backend.pays` excludes.
_apply_small: Any = super(torch.autograd.Function, _SmallLoss).apply


def _taken(
    plan: Plan, given: dict[str, Tensor], out: Tensor | None = None
) -> tuple[Tensor, Tensor, bool]:
    call, objective = _filled(plan.call, given), _filled(plan.objective, given)
    return take(call, objective, plan.z_loss_coef, plan.scale, out)


def take(
    call: CategoricalCall,
    objective: PolicyObjective,
    z_loss_coef: float,
    scale: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, bool]:
    """Loss, gradient, and whether a row that counts is impossible; records nothing."""
    weight = objective.token_weight
    if call.kept is not None:
        weight = call.kept if weight is None else torch.where(call.kept, weight, 0.0)
    low, high = objective.clip
    estimates = objective.ref_log_prob is not None and objective.kl_coef != 0.0
    loss = Loss(
        advantage=_column(objective.advantage),
        weight=_column(weight),
        old=_column(objective.old_log_prob),
        reference=_column(objective.ref_log_prob) if estimates else None,
        scale_advantage=-scale,
        scale_bonus=-scale * objective.entropy_coef,
        scale_square=scale * z_loss_coef,
        scale_reference=scale * objective.kl_coef,
        clip=(1.0 - low, 1.0 + high),
        kl_estimator=_ESTIMATORS.get(objective.kl_estimator, 0),
    )
    task = task_of(call)
    if out is not None:
        out = out.view(task.logits.shape)
    found = _cpu.run(task, loss, value=True, gradient=True, out=out)
    assert found.value is not None  # both were asked for
    assert found.gradient is not None
    return found.value, found.gradient.view(call.raw.shape), found.impossible


def _column(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().reshape(-1)


def _differentiable(plan: Plan, given: dict[str, Tensor], upstream: Tensor) -> Tensor:
    """The gradient at the logits by the definition, itself part of the graph."""
    with torch.enable_grad():
        call, objective = _filled(plan.call, given), _filled(plan.objective, given)
        loss = plan.definition(call, objective, plan.z_loss_coef) * plan.scale
        (result,) = torch.autograd.grad(loss, call.raw, upstream.to(loss.dtype), create_graph=True)
    return result


_Record = TypeVar("_Record", CategoricalCall, PolicyObjective)


def _stripped(record: _Record) -> tuple[_Record, dict[str, Tensor]]:
    """A record without its tensors, and those: a node may keep them only as torch keeps them."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    nothing: dict[str, Any] = dict.fromkeys(tensors, _ABSENT)
    return replace(record, **nothing), tensors


def _filled(record: _Record, tensors: dict[str, Tensor]) -> _Record:
    """The record with its tensors."""
    names = {field.name for field in fields(record)}
    here: dict[str, Any] = {name: value for name, value in tensors.items() if name in names}
    return replace(record, **here)
