r"""The gradient of the REINFORCE loss at the logits, as a number rather than a node of a graph.

Where the logits are few, most of the time of a loss goes into recording it and walking back over
the record. The gradient at the logits is known in closed form, so that neither is needed.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.ops.backends import cpu
from eligibility.ops.policy_loss import Reduction
from eligibility.ops.rows.categorical_call import CategoricalCall
from eligibility.ops.rows.loss_backends import backend_of
from eligibility.ops.rows.loss_node import is_small
from eligibility.ops.rows.summed_loss import PolicyLoss, checked_objective, rebuilt
from eligibility.scalars import check_choice
from eligibility.shapes import are_values_readable


def reinforce_gradient(
    logits: Tensor,
    action: Tensor | None,
    advantage: Tensor,
    *,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    entropy_coef: float = 0.0,
    temperature: float = 1.0,
    softcap: float | None = None,
    ignore_index: int | None = None,
    z_loss_coef: float = 0.0,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]:
    r"""The loss of `eligibility.reinforce_loss` and its gradient at the logits.

    It is ``loss = reinforce_loss(logits, …)`` and ``torch.autograd.grad(loss, logits)``, without
    a graph: ``logits.backward(gradient)`` continues where the loss would have.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action. Whether it requires gradients does
            not matter.
        action, advantage, counts, mask, weight, entropy_coef: As `reinforce_loss`.
        temperature, softcap, ignore_index, z_loss_coef: As `reinforce_loss`.
        reduction: "mean" or "sum", as `reinforce_loss`.

    Returns:
        The loss, a scalar, float32 for half-precision logits; and its gradient, shape and dtype of
        ``logits``. Neither requires gradients: an advantage gets none.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `reinforce_loss`.

    Example:
        >>> policy = torch.nn.Linear(3, 4)
        >>> logits = policy(torch.ones(2, 3))
        >>> loss, gradient = reinforce_gradient(logits, torch.tensor([0, 1]), torch.ones(2))
        >>> logits.backward(gradient)
        >>> float(policy.weight.grad.sum().abs() < 1e-6)
        1.0

    References:
        Williams 1992, Machine Learning 8:229-256, §4; extended to the categorical unit.
    """
    if (
        (mask is None and weight is None and counts is None and ignore_index is None)
        and (type(temperature) is float and temperature == 1.0 and softcap is None)
        and (type(z_loss_coef) is float and z_loss_coef == 0.0)
        and (reduction == "mean" and isinstance(action, Tensor))
        and is_small(logits, action, advantage, entropy_coef)
    ):
        try:
            return cpu.small_loss(logits, action, advantage, entropy_coef)
        except InvalidTypeError:  # no numbers at an address: the long way finds out why
            pass
    check_choice(reduction, "reduction", ("mean", "sum"), "a gradient is that of one number")
    call = CategoricalCall.check(logits, action, counts, mask, temperature, softcap, ignore_index)
    objective = PolicyObjective(
        advantage, weight, entropy_coef=entropy_coef, z_loss_coef=z_loss_coef
    )
    loss = PolicyLoss(call, checked_objective(call, objective), reduction)
    if not are_values_readable(logits):
        return _transformed(loss)
    with torch.no_grad():
        backend = backend_of(loss, at_any_size=False)
        if backend is not None:
            return backend(loss, None)
    return _differentiated(loss)


def _differentiated(loss: PolicyLoss) -> tuple[Tensor, Tensor]:
    """By autograd, also where the caller is in inference mode, which records nothing."""
    with torch.inference_mode(False), torch.enable_grad():
        numbers, tensors = loss.parts()
        raw, *others = (t.clone() if t is not None and t.is_inference() else t for t in tensors)
        assert raw is not None  # the logits
        leaf = raw.detach().requires_grad_()
        value = rebuilt(numbers, [leaf, *others]).value()
        (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def _transformed(loss: PolicyLoss) -> tuple[Tensor, Tensor]:
    """Under torch.func and torch.compile, which differentiate functions."""
    gradient, value = torch.func.grad_and_value(
        lambda logits: loss._replace(call=replace(loss.call, raw=logits)).value()
    )(loss.call.raw)
    return value, gradient
