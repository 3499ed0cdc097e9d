"""The backends that take a summed loss and its gradient in one pass over the logits.

Each function takes the loss and memory for the gradient, which may be that of the logits, or None,
and gives value and gradient. It records nothing, and raises for what is impossible under the mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from eligibility.ops.backends import cpu, fused_rows, plain, selection, triton
from eligibility.ops.backends.row_task import Loss
from eligibility.ops.rows.statistics import task_of
from eligibility.ops.rows.summed_loss import PolicyLoss

Backend = Callable[[PolicyLoss, Tensor | None], tuple[Tensor, Tensor]]

_ESTIMATORS = {"k1": 1, "k2": 2, "k3": 3}


def backend_of(loss: PolicyLoss, at_any_size: bool) -> Backend | None:
    """The backend that takes ``loss`` in one pass; None: none, or it does not pay."""
    if loss.reduction not in ("mean", "sum"):
        return None
    call, reference = loss.call, loss.reference
    if call.is_fusable and (reference is None or fused_rows.serves_constant(reference)):
        return by_triton
    if reference is not None:
        return None
    if selection.is_only_traced():  # no numbers to read, and no calls to save
        return by_native if cpu.knows(call.raw) and call.shape.numel() > 0 else None
    if not (at_any_size or selection.pays(call.raw, one_pass=True)):
        return None
    if call.is_native(*loss.objective[:4]):
        return by_native
    is_bare = call.temperature == 1.0 and call.softcap is None
    is_single = call.action is not None and call.shape == call.raw.shape[:-1]
    return by_torch if is_bare and is_single and loss.objective.is_linear else None


def by_native(loss: PolicyLoss, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """By the kernel in C++: any loss but the exact KL."""
    call, objective = loss.call, loss.objective
    scale = 1.0 / call.rows() if loss.reduction == "mean" else 1.0
    if call.kept is not None:
        weight = objective.token_weight
        weight = call.kept if weight is None else torch.where(call.kept, weight, 0.0)
        objective = objective._replace(token_weight=weight)
    if objective.advantage.ndim != 1:
        objective = objective.flattened()
    low, high = objective.clip
    task = task_of(call)
    found = cpu.run(
        task,
        Loss(
            advantage=objective.advantage,
            weight=objective.token_weight,
            old=objective.old_log_prob,
            reference=None if objective.kl_coef == 0.0 else objective.ref_log_prob,
            scale_advantage=-scale,
            scale_bonus=-scale * objective.entropy_coef,
            scale_square=scale * objective.z_loss_coef,
            scale_reference=scale * objective.kl_coef,
            clip=(1.0 - low, 1.0 + high),
            kl_estimator=_ESTIMATORS.get(objective.kl_estimator, 0),
        ),
        value=True,
        gradient=True,
        out=None if out is None else out.view(task.logits.shape),
    )
    if found.impossible:
        call.explain_impossible(call.counting(loss.objective.token_weight))
    assert found.value is not None  # both were asked for
    assert found.gradient is not None
    return found.value, found.gradient.view(call.raw.shape)


def by_triton(loss: PolicyLoss, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """By one Triton kernel: any loss of one action for each row."""
    call, flat = loss.call, loss.objective.flattened()
    counts = call.counting(loss.objective.token_weight)
    weight = flat.factors() / loss.divisor()
    if counts is not None:
        weight = torch.where(counts.reshape(-1), weight, 0.0)
    rows = call.kernel_rows(loss.reference)
    results = triton.loss_and_gradient(
        rows,
        flat._replace(token_weight=weight, scale=1.0),
        out=None if out is None else out.view(rows.logits.shape),
    )
    call.check_possible(results.log_prob.reshape(call.shape), counts)
    assert results.gradient is not None  # it was asked for
    value = results.loss.sum(dtype=torch.float64).to(torch.float32)
    return value, results.gradient.view(call.raw.shape)


def by_torch(loss: PolicyLoss, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """By torch's operations, in pieces that stay in the cache: a linear loss of bare logits."""
    call, objective = loss.call, loss.objective
    assert call.action is not None  # counts go other ways
    weight, counts = objective.token_weight, call.counting(objective.token_weight)
    by_log_prob = objective.advantage / -loss.divisor()
    by_entropy = None
    if objective.needs_entropy:
        by_entropy = torch.full_like(by_log_prob, -objective.entropy_coef) / loss.divisor()
    if weight is not None:
        by_log_prob = by_log_prob * weight
        by_entropy = None if by_entropy is None else by_entropy * weight
    if counts is not None and by_entropy is not None:
        by_entropy = torch.where(counts, by_entropy, 0.0)
    categories = call.raw.shape[-1]
    logits, action = call.raw.reshape(-1, categories), call.action.reshape(-1)
    selection.check_actions(logits, action)
    slopes = (_column(by_log_prob), _column(by_entropy))
    assert slopes[0] is not None
    log_prob, entropy, gradient = plain.row_objective(
        logits,
        action,
        None if call.mask is None else call.mask.reshape(-1, categories),
        *(slopes[0], slopes[1]),
        None if out is None else out.view(logits.shape),
    )
    call.check_possible(log_prob.reshape(call.shape), counts)
    value = plain.objective(slopes[0], log_prob, slopes[1], entropy)
    return value, gradient.view(call.raw.shape)


def _column(tensor: Tensor | None) -> Tensor | None:
    """Its numbers in a row; nothing is recorded here, so they need no detaching."""
    return tensor if tensor is None or tensor.ndim == 1 else tensor.reshape(-1)
