r"""The categorical policy over logits: log π(a), entropy, KL and the REINFORCE loss.

The gradient of any policy-gradient loss at the logits is ``−A (y − π)`` plus closed-form entropy
terms, so a loss and its gradient need one pass over the logits each. All functions are
differentiable to any order, also forward, under `torch.vmap` and `torch.compile`; they compute in
float32 when the logits are bfloat16 or float16, and return float32 then.

A ``mask`` is True where an action is legal. An illegal action has probability 0, contributes
exactly 0 to entropy and KL, and receives a gradient of exactly 0. A logit of −∞ does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree

from eligibility.errors import InvalidValueError
from eligibility.ops import _backend, _plain
from eligibility.ops._objective import objective
from eligibility.ops._statistics import statistics
from eligibility.shapes import (
    are_values_readable,
    check_action,
    check_allowed,
    check_categories,
    check_floating,
    check_integer,
    check_mask,
    check_mask_rows,
    check_shape,
)

Reduction = Literal["none", "mean", "sum"]


@dataclass(frozen=True)
class CategoricalStatistics:
    """What one pass over the logits gives.

    Attributes:
        log_prob: log π(a) of the chosen actions, nats, shape ``[*batch]``.
        entropy: −Σ π log π, nats, shape ``[*batch]``.
    """

    log_prob: Tensor
    entropy: Tensor


def _flatten(result: CategoricalStatistics) -> tuple[list[Any], None]:
    return [result.log_prob, result.entropy], None


def _unflatten(leaves: Any, _: None) -> CategoricalStatistics:
    result = object.__new__(CategoricalStatistics)  # the transforms also put axis numbers in it
    result.__dict__.update(zip(("log_prob", "entropy"), leaves, strict=True))
    return result


# So that a function that returns it can be given to torch.vmap and torch.func.
_pytree.register_pytree_node(CategoricalStatistics, _flatten, _unflatten)


def categorical_log_prob(logits: Tensor, action: Tensor, *, mask: Tensor | None = None) -> Tensor:
    r"""log π(a) = z_a − log Σ exp z.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        action: The chosen indices in [0, K), shape ``[*batch]``.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.

    Returns:
        Log-probabilities in nats, shape ``[*batch]``; float32 for half-precision logits.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: An index is out of range or illegal, or a row allows nothing.

    Notes:
        The gradient at the logits is ``y − π``, with y the one-hot action.

    Example:
        >>> import torch
        >>> z, a = torch.tensor([[0., 1., 2.], [1., 1., 1.]]), torch.tensor([2, 0])
        >>> categorical_log_prob(z, a)
        tensor([-0.4076, -1.0986])
        >>> torch.allclose(categorical_log_prob(z, a), z.log_softmax(-1)[range(2), a])
        True
    """
    _check_inputs(logits, action, mask)
    log_prob, _ = statistics(logits, action, mask, with_entropy=False)
    _check_possible(log_prob, action, mask)
    return log_prob


def categorical_entropy(logits: Tensor, *, mask: Tensor | None = None) -> Tensor:
    r"""The entropy −Σ π log π, with 0 log 0 = 0.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.

    Returns:
        Entropies in nats, shape ``[*batch]``; float32 for half-precision logits.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: A row of the mask allows nothing.

    Notes:
        The gradient at the logits is ``−π (log π + H)``.

    Example:
        >>> import torch
        >>> categorical_entropy(torch.zeros(4), mask=torch.tensor([True, True, False, False]))
        tensor(0.6931)
    """
    check_floating(logits, "logits")
    check_categories(logits, "logits")
    if mask is not None:
        _check_mask(mask, logits)
    return _plain.entropy(_plain.log_pmf(logits, mask))


def categorical_statistics(
    logits: Tensor, action: Tensor, *, mask: Tensor | None = None
) -> CategoricalStatistics:
    r"""log π(a) and the entropy together, in one pass over the logits.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        action: The chosen indices in [0, K), shape ``[*batch]``.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.

    Returns:
        A `CategoricalStatistics`.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `categorical_log_prob`.

    Example:
        >>> import torch
        >>> result = categorical_statistics(torch.zeros(2, 4), torch.tensor([1, 3]))
        >>> result.log_prob, result.entropy
        (tensor([-1.3863, -1.3863]), tensor([1.3863, 1.3863]))
    """
    _check_inputs(logits, action, mask)
    log_prob, entropy = statistics(logits, action, mask, with_entropy=True)
    _check_possible(log_prob, action, mask)
    assert entropy is not None  # it was asked for; this is for the type checker
    return CategoricalStatistics(log_prob, entropy)


def categorical_kl(logits: Tensor, other: Tensor, *, mask: Tensor | None = None) -> Tensor:
    r"""KL(π ‖ π') = Σ π (log π − log π'), exact, from two sets of logits.

    Args:
        logits: The logits of π, shape ``[*batch, K]``; −∞ forbids an action.
        other: The logits of π', same shape.
        mask: True where an action is legal for both, ``[*batch, K]`` or ``[K]``.

    Returns:
        Divergences in nats, shape ``[*batch]``; ∞ where π' forbids what π does not.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: A row of the mask allows nothing.

    Notes:
        The gradients are ``π (log π − log π' − KL)`` at ``logits`` and ``π' − π`` at ``other``;
        both are exactly 0 where both forbid.

    Example:
        >>> import torch
        >>> categorical_kl(torch.tensor([0., 0.]), torch.tensor([0., 1.]))
        tensor(0.1201)
    """
    check_floating(logits, "logits")
    check_floating(other, "other")
    check_categories(logits, "logits")
    check_shape(other, logits.shape, "other", "the shape of logits")
    if mask is not None:
        _check_mask(mask, logits)
    return _plain.kl(_plain.log_pmf(logits, mask), _plain.log_pmf(other, mask))


def reinforce_loss(
    logits: Tensor,
    action: Tensor,
    advantage: Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    entropy_coef: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""The REINFORCE loss ``−w (A log π(a) + β H)``, to be minimised.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        action: The chosen indices in [0, K), shape ``[*batch]``.
        advantage: A, the reinforcement minus its baseline, shape ``[*batch]``.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.
        weight: w, shape ``[*batch]``, default 1; a row of weight 0 (padding) contributes exactly 0,
            whatever its action.
        entropy_coef: β >= 0, the bonus on the entropy H.
        reduction: "mean" divides the sum by the number of rows (never by the weights); of no rows
            it is 0. "sum", or "none" for the loss of each row.

    Returns:
        The loss, a scalar, or shape ``[*batch]``; float32 for half-precision logits.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The arguments do not fit together, or an
            action with a non-zero weight is out of range or illegal.

    Notes:
        The gradient at the logits is ``−w (A (y − π) − β π (log π + H))``. Nothing is detached: an
        advantage that requires gradients receives ``−w log π(a)``, which is seldom wanted.

    Example:
        >>> import torch
        >>> z = torch.zeros(1, 4, requires_grad=True)
        >>> reinforce_loss(z, torch.tensor([0]), torch.tensor([2.0])).backward()
        >>> z.grad
        tensor([[-1.5000,  0.5000,  0.5000,  0.5000]])

    References:
        Williams 1992, Machine Learning 8:229-256, §4; extended to the categorical unit.
    """
    _check_inputs(logits, action, mask)
    why = "one number for each row of logits"
    check_shape(advantage, action.shape, "advantage", why)
    if weight is not None:
        check_shape(weight, action.shape, "weight", why)
    coefficient = advantage if weight is None else advantage * weight
    if reduction != "none" and _is_fusible(logits, coefficient, weight):
        factor = -_factor(reduction, action.numel())
        grad_entropy = None
        if entropy_coef != 0:
            ones = torch.ones_like(coefficient) if weight is None else weight
            grad_entropy = factor * entropy_coef * ones
        loss, log_prob = objective(logits, action, mask, factor * coefficient, grad_entropy)
        _check_possible(log_prob, action, mask, weight)
        return loss
    log_prob, entropy = statistics(logits, action, mask, with_entropy=entropy_coef != 0)
    _check_possible(log_prob, action, mask, weight)
    # 0 · −∞ has no value: an impossible action that does not count contributes 0.
    ignored = (coefficient == 0) & (log_prob == float("-inf"))
    loss = -coefficient * log_prob.masked_fill(ignored, 0.0)
    if entropy is not None:
        bonus = entropy_coef * entropy
        loss = loss - (bonus if weight is None else bonus * weight)
    return _reduce(loss, reduction)


def _is_fusible(logits: Tensor, coefficient: Tensor, weight: Tensor | None) -> bool:
    """Whether the gradient at the logits is all that is wanted, and can be taken right away."""
    constants = not coefficient.requires_grad and (weight is None or not weight.requires_grad)
    wanted = torch.is_grad_enabled() and logits.requires_grad
    return wanted and constants and _backend.pays(logits)


def _factor(reduction: str, rows: int) -> float:
    if reduction == "mean":
        return 1.0 / max(1, rows)
    if reduction == "sum":
        return 1.0
    raise InvalidValueError(
        "`reduction`", repr(reduction), "'mean', 'sum' or 'none'", "choose one of them"
    )


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    return loss if reduction == "none" else loss.sum() * _factor(reduction, loss.numel())


def _check_inputs(logits: Tensor, action: Tensor, mask: Tensor | None) -> None:
    check_floating(logits, "logits")
    check_categories(logits, "logits")
    check_integer(action, "action")
    check_shape(action, logits.shape[:-1], "action", "one index for each row of logits")
    if mask is not None:
        check_mask(mask, logits)
    # On a GPU the check would wait for the device; there the kernel itself refuses the index.
    if action.device.type == "cpu" and are_values_readable(logits, action):
        check_action(action, logits.shape[-1])


def _check_mask(mask: Tensor, logits: Tensor) -> None:
    check_mask(mask, logits)
    if are_values_readable(mask):
        check_mask_rows(mask)


def _check_possible(
    log_prob: Tensor, action: Tensor, mask: Tensor | None, weight: Tensor | None = None
) -> None:
    """Find the cause if a mask leaves a log-probability that is not finite."""
    if mask is None or not are_values_readable(log_prob) or bool(log_prob.isfinite().all()):
        return
    check_mask_rows(mask)
    if weight is None:
        check_allowed(action, mask)
    else:
        counts = weight != 0
        rows = mask.expand(*action.shape, mask.shape[-1])
        check_allowed(action[counts], rows[counts])
