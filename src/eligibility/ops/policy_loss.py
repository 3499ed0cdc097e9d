r"""Policy-gradient losses over logits: REINFORCE, and the clipped loss of PPO and its relatives.

The gradient of any of them at the logits of a row is ``g (y − π) − h π (log π + H)`` with two
numbers g and h, the slopes of the loss in log π(a) and in the entropy, so a loss and its gradient
need one pass over the logits each. What a mask, −∞ and half precision mean is said in
`eligibility.ops.categorical`.

A row of weight 0, or with the action ``ignore_index``, contributes exactly 0 to loss and gradient,
whatever its action, its advantage and its reference are; its logits need be numbers all the same.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.errors import InvalidValueError
from eligibility.ops._policy_objective import (
    PolicyObjective,
    check_estimated,
    check_policy_coefficients,
    check_reduction,
    check_unread,
)
from eligibility.ops.backends import cpu
from eligibility.ops.rows.categorical_call import CategoricalCall, check_logits_arguments
from eligibility.ops.rows.loss_backends import backend_of
from eligibility.ops.rows.loss_node import loss_with_gradient, small_loss
from eligibility.ops.rows.summed_loss import PolicyLoss, checked_objective
from eligibility.scalars import check_flag
from eligibility.shapes import are_values_readable, check_shape

Reduction = Literal["none", "sequence", "mean", "sum"]
KLEstimator = Literal["k1", "k2", "k3", "exact"]


def reinforce_loss(
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
    reuse_logits: bool = False,
) -> Tensor:
    r"""The REINFORCE loss ``w (−A log π(a) − β H + ζ (log Σ exp z)²)``, to be minimised.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        action: The chosen indices in [0, K), shape ``[*batch]``; several samples of each row:
            ``[*samples, *batch]``, as torch's distributions draw them. None: counts are given.
        advantage: A, the reinforcement minus its baseline, shape of ``action``; or ``[*batch]``,
            one for all samples of a row.
        counts: y >= 0, how often each category was drawn, shape ``[*batch, K]``, instead of the
            action: the row is then a multinomial unit, and log π(a) is ``Σ y log π``.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.
        weight: w, shape of ``action`` or ``[*batch]``, default 1; 0 for padding.
        entropy_coef: β >= 0, the bonus on the entropy H.
        temperature: Divides the logits, > 0; after the soft-cap.
        softcap: c > 0 turns logits z into ``c tanh(z/c)``.
        ignore_index: Rows with this action do not count.
        z_loss_coef: ζ >= 0, keeps the normaliser of the softmax near 1.
        reduction: "mean" divides the sum by the number of rows that are not ignored (never by the
            weights); of no rows it is 0. "sum"; "sequence" sums over the last axis of ``[*batch]``
            only; "none".
        reuse_logits: Write the gradient over the logits, so that no memory is needed beyond theirs.
            Afterwards ``logits`` holds meaningless numbers. A graph node that needs what they
            were makes the backward pass raise, and there is one backward pass, of first order.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision logits.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The arguments do not fit together, or an
            action that counts is out of range or illegal.

    Notes:
        The gradient at the logits is ``w (−A (y − π) + β π (log π + H) + 2 ζ π log Σ exp z)``.
        Nothing is detached: an advantage that requires gradients receives ``−w log π(a)``, which
        is seldom wanted.

    Example:
        >>> import torch
        >>> z = torch.zeros(1, 4, requires_grad=True)
        >>> reinforce_loss(z, torch.tensor([0]), torch.tensor([2.0])).backward()
        >>> z.grad
        tensor([[-1.5000,  0.5000,  0.5000,  0.5000]])

    References:
        Williams 1992, Machine Learning 8:229-256, §4; extended to the categorical unit.
    """
    if (
        (mask is None and weight is None and counts is None and ignore_index is None)
        and (type(temperature) is float and temperature == 1.0 and softcap is None)
        and (type(z_loss_coef) is float and z_loss_coef == 0.0)
        and (reduction == "mean" and reuse_logits is False)
        and isinstance(action, Tensor)
    ):
        loss = small_loss(logits, action, advantage, entropy_coef)
        if loss is not None:
            return loss
    call = CategoricalCall.check(logits, action, counts, mask, temperature, softcap, ignore_index)
    objective = PolicyObjective(
        advantage, weight, entropy_coef=entropy_coef, z_loss_coef=z_loss_coef
    )
    return _result(PolicyLoss(call, checked_objective(call, objective), reduction), reuse_logits)


def clipped_policy_loss(
    logits: Tensor,
    action: Tensor,
    advantage: Tensor,
    old_log_prob: Tensor,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    ref_log_prob: Tensor | None = None,
    ref_logits: Tensor | None = None,
    kl_coef: float = 0.0,
    kl_estimator: KLEstimator = "k3",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    entropy_coef: float = 0.0,
    temperature: float = 1.0,
    softcap: float | None = None,
    ignore_index: int | None = None,
    z_loss_coef: float = 0.0,
    reduction: Reduction = "mean",
    reuse_logits: bool = False,
) -> Tensor:
    r"""The clipped loss ``w (−min(r A, clip(r, 1−ε₋, 1+ε₊) A) + κ KL − β H + ζ (log Σ exp z)²)``.

    Args:
        logits, action, advantage, mask, weight, entropy_coef: As `reinforce_loss`.
        temperature, softcap, ignore_index, z_loss_coef, reduction, reuse_logits: As
            `reinforce_loss`.
        old_log_prob: log π_old(a) of the policy that sampled, shape of ``action``;
            ``r = exp(log π − log π_old)``.
        clip: (ε₋, ε₊), how far below and above 1 the ratio counts; 0 <= ε₋ <= 1, ε₊ >= 0.
        ref_log_prob: log π_ref(a) of a reference policy, for the estimators, shape of ``action``.
        ref_logits: The logits of the reference policy, for the exact KL, shape of ``logits``; soft-
            cap, temperature and mask apply to them too.
        kl_coef: κ >= 0, the weight of KL(π ‖ π_ref).
        kl_estimator: With ``d = log π − log π_ref``: "k1" is d, "k2" is d²/2, "k3" is
            ``exp(−d) − 1 + d``; "exact" sums over all actions. As a loss, k1 has an expected
            gradient of 0 on its own samples.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision logits.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `reinforce_loss`, or a coefficient is
            out of its range, or the reference is not given in the form that the estimator needs.

    Example:
        >>> import torch
        >>> old = torch.tensor([0.25]).log()  # the ratio is 2, beyond 1.2
        >>> clipped_policy_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1.0]), old)
        tensor(-1.2000)

    References:
        Schulman et al. 2017, Proximal policy optimization algorithms, arXiv:1707.06347, eq. (7).
        Schulman 2020, Approximating KL divergence (the estimators k1, k2, k3).
    """
    check_given(action, "action", "pass the indices that were sampled")
    check_given(
        old_log_prob,
        "old_log_prob",
        "pass those of the policy that sampled, or use reinforce_loss, which needs none",
    )
    call = CategoricalCall.check(logits, action, None, mask, temperature, softcap, ignore_index)
    clip = check_policy_coefficients(clip, kl_coef, kl_estimator)
    objective = PolicyObjective(
        advantage,
        weight,
        old_log_prob,
        ref_log_prob,
        entropy_coef=entropy_coef,
        clip=clip,
        kl_coef=kl_coef,
        kl_estimator=kl_estimator,
        z_loss_coef=z_loss_coef,
    )
    objective, reference = checked_objective(call, objective), None
    if kl_estimator == "exact":
        check_unread(ref_log_prob, "ref_log_prob", kl_estimator, "ref_logits")
        reference = _checked_reference(call, ref_logits)
    else:
        check_estimated(kl_coef, ref_log_prob)
        check_unread(ref_logits, "ref_logits", kl_estimator, "ref_logits")
    return _result(PolicyLoss(call, objective, reduction, reference), reuse_logits)


def _checked_reference(call: CategoricalCall, ref_logits: Tensor | None) -> Tensor:
    if ref_logits is None:
        raise InvalidValueError(
            "`kl_estimator`",
            "'exact' without ref_logits",
            "the logits of the reference policy",
            "pass ref_logits, or estimate from ref_log_prob with 'k1', 'k2' or 'k3'",
        )
    check_tensors(call.raw, "logits", ref_logits=ref_logits)
    check_shape(ref_logits, call.raw.shape, "ref_logits", "the shape of logits")
    check_logits_arguments(ref_logits, call.mask, call.temperature, call.softcap, "ref_logits")
    return ref_logits


def _result(loss: PolicyLoss, reuse_logits: bool) -> Tensor:
    """By whatever takes the fewest passes over the logits."""
    if loss.reduction != "mean":
        check_reduction(loss.reduction, loss.call.raw.shape[:-1])
    if reuse_logits is not False:
        check_flag(reuse_logits, "reuse_logits")
    backend = backend_of(loss, at_any_size=reuse_logits) if loss.is_gradient_wanted() else None
    if reuse_logits:
        _check_reusable(loss, backend is not None)
    return loss.value() if backend is None else loss_with_gradient(loss, backend, reuse_logits)


def _check_reusable(loss: PolicyLoss, has_backend: bool) -> None:
    """Raise where the gradient cannot take the place of the logits."""
    call, logits = loss.call, loss.call.raw
    reasons = {
        "logits that are a leaf of the graph": logits.is_leaf,
        "logits that are not contiguous": not logits.is_contiguous(),
        "a soft-cap or a temperature": not (cpu.serves(logits) or call.is_fusable)
        and call.logits is not logits,
        "a transformed or traced call": not are_values_readable(logits),
        "a loss whose gradient is not known on the way forward": not has_backend,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidValueError(
                "`reuse_logits`",
                reason,
                "logits that an operation made, and a plain mean or sum as the reduction",
                "leave reuse_logits out",
            )
