r"""Policy-gradient losses over logits: REINFORCE, and the clipped loss of PPO and its relatives.

The gradient of any of them at the logits of a row is ``g (y − π) − h π (log π + H)`` with two
numbers g and h, the slopes of the loss in log π(a) and in the entropy, so a loss and its gradient
need one pass over the logits each. What a mask, −∞ and half precision mean is said in
`eligibility.ops.categorical`.

A row of weight 0, or with the action ``ignore_index``, contributes exactly 0 to loss and gradient,
whatever its action, its advantage and its reference are; its logits need be numbers all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.ops import _backend, _cpu, _fused_rows, _native_op
from eligibility.ops._categorical_call import CategoricalCall, check_logits_arguments
from eligibility.ops._native_loss import native_loss, small_loss
from eligibility.ops._objective import objective as linear_objective
from eligibility.ops._policy_objective import PolicyObjective, check_policy_coefficients
from eligibility.ops._statistics import divergences, statistics
from eligibility.shapes import are_values_readable, check_floating, check_shape

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
        advantage: A, the reinforcement minus its baseline, shape of ``action``, or ``[*batch]``.
        counts: y >= 0, how often each category was drawn, shape ``[*batch, K]``, instead of the
            action: the row is then a multinomial unit, and log π(a) is ``Σ y log π``.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.
        weight: w, shape of ``advantage``, default 1; 0 for padding.
        entropy_coef: β >= 0, the bonus on the entropy H.
        temperature: Divides the logits, > 0; after the soft-cap.
        softcap: c > 0 turns logits z into ``c tanh(z/c)``.
        ignore_index: Rows with this action do not count.
        z_loss_coef: ζ >= 0, keeps the normaliser of the softmax near 1.
        reduction: "mean" divides the sum by the number of rows that are not ignored (never by the
            weights); of no rows it is 0. "sum"; "sequence" sums over the last axis of ``[*batch]``
            only; "none".
        reuse_logits: Write the gradient over the logits, so that no memory is needed beyond theirs.
            Afterwards ``logits`` holds numbers of no use. A node of the graph that needs what they
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
        >>> z = torch.zeros(1, 4, requires_grad=True)
        >>> reinforce_loss(z, torch.tensor([0]), torch.tensor([2.0])).backward()
        >>> z.grad
        tensor([[-1.5000,  0.5000,  0.5000,  0.5000]])

    References:
        Williams 1992, Machine Learning 8:229-256, §4; extended to the categorical unit.
    """
    if (
        (mask is None and weight is None and counts is None and ignore_index is None)
        and (temperature == 1.0 and softcap is None and z_loss_coef == 0.0)
        and (reduction == "mean" and not reuse_logits)
        and isinstance(action, Tensor)
    ):
        loss = small_loss(logits, action, advantage, entropy_coef, _summed)
        if loss is not None:
            return loss
    call = CategoricalCall.check(logits, action, counts, mask, temperature, softcap, ignore_index)
    objective = _objective(call, advantage, weight, entropy_coef)
    if reuse_logits:
        is_reduced = reduction in ("mean", "sum") and _is_gradient_wanted(call, objective)
        knows_all = _cpu.serves(logits) or call.is_fusable
        _check_reusable(logits, call, is_reduced and (z_loss_coef == 0.0 or knows_all))
    return _loss(call, objective, z_loss_coef, reduction, reuse_logits)


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
) -> Tensor:
    r"""The clipped loss ``w (−min(r A, clip(r, 1−ε₋, 1+ε₊) A) + κ KL − β H + ζ (log Σ exp z)²)``.

    Args:
        logits, action, advantage, mask, weight, entropy_coef: As `reinforce_loss`.
        temperature, softcap, ignore_index, z_loss_coef, reduction: As `reinforce_loss`.
        old_log_prob: log π_old(a) of the policy that sampled, shape ``[*batch]``;
            ``r = exp(log π − log π_old)``.
        clip: (ε₋, ε₊), how far below and above 1 the ratio counts; 0 <= ε₋ <= 1, ε₊ >= 0.
        ref_log_prob: log π_ref(a) of a reference policy, for the estimators, shape ``[*batch]``.
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
        >>> old = torch.tensor([0.25]).log()  # the ratio is 2, beyond 1.2
        >>> clipped_policy_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1.0]), old)
        tensor(-1.2000)

    References:
        Schulman et al. 2017, Proximal policy optimization algorithms, arXiv:1707.06347, eq. (7).
        Schulman 2020, Approximating KL divergence (the estimators k1, k2, k3).
    """
    call = CategoricalCall.check(logits, action, None, mask, temperature, softcap, ignore_index)
    objective = _objective(call, advantage, weight, entropy_coef, old_log_prob, ref_log_prob)
    objective = replace(objective, clip=clip)
    if kl_estimator != "exact":
        check_policy_coefficients(clip, kl_coef, kl_estimator, ref_log_prob)
        _check_unused(ref_logits, "ref_logits", kl_estimator)
        objective = replace(objective, kl_coef=kl_coef, kl_estimator=kl_estimator)
        return _loss(call, objective, z_loss_coef, reduction)
    check_policy_coefficients(clip, 0.0, "k3", None)
    _check_unused(ref_log_prob, "ref_log_prob", kl_estimator)
    reference = _checked_reference(call, ref_logits)
    return _loss(call, objective, z_loss_coef, reduction, False, reference, kl_coef)


def _checked_reference(call: CategoricalCall, ref_logits: Tensor | None) -> Tensor:
    if ref_logits is None:
        raise InvalidValueError(
            "`kl_estimator`",
            "'exact' without ref_logits",
            "the logits of the reference policy",
            "pass ref_logits, or estimate from ref_log_prob with 'k1', 'k2' or 'k3'",
        )
    check_shape(ref_logits, call.raw.shape, "ref_logits", "the shape of logits")
    check_logits_arguments(ref_logits, call.mask, call.temperature, call.softcap, "ref_logits")
    return ref_logits


def _check_unused(reference: Tensor | None, name: str, kl_estimator: str) -> None:
    if reference is not None:
        raise InvalidValueError(
            f"`{name}`",
            f"one, beside kl_estimator={kl_estimator!r}",
            "only what the estimator reads",
            "'k1', 'k2' and 'k3' read ref_log_prob, 'exact' reads ref_logits",
        )


def _objective(
    call: CategoricalCall,
    advantage: Tensor,
    weight: Tensor | None,
    entropy_coef: float,
    old_log_prob: Tensor | None = None,
    ref_log_prob: Tensor | None = None,
) -> PolicyObjective:
    """The loss of a row, from arguments that fit; what stands in rows that do not count is 0."""
    given = {
        "advantage": advantage,
        "weight": weight,
        "old_log_prob": old_log_prob,
        "ref_log_prob": ref_log_prob,
    }
    for name, tensor in given.items():
        if tensor is not None:
            check_floating(tensor, name)
            check_shape(tensor, call.shape, name, "one number for each row of logits")
    counts = call.counting(weight)
    if counts is not None:
        given = {
            name: None if tensor is None else torch.where(counts, tensor, 0.0)
            for name, tensor in given.items()
        }
    given["token_weight"] = given.pop("weight")
    return PolicyObjective(entropy_coef=entropy_coef, **given)  # type: ignore[arg-type]  # advantage is given


def _loss(
    call: CategoricalCall,
    objective: PolicyObjective,
    z_loss_coef: float,
    reduction: str,
    reuse_logits: bool = False,
    reference: Tensor | None = None,
    exact_kl_coef: float = 0.0,
) -> Tensor:
    """By whatever takes the fewest passes over the logits."""
    if reduction in ("mean", "sum") and _is_gradient_wanted(call, objective):
        if reference is None and _native_op.serves(call):
            return _native_op.traced_loss(call, objective, z_loss_coef, reduction)
        if call.is_fusable and (reference is None or _fused_rows.serves_constant(reference)):
            return _one_kernel(
                call, objective, z_loss_coef, reduction, reuse_logits, reference, exact_kl_coef
            )
        pays = reference is None and _backend.pays(call.raw, one_pass=True)
        if pays and _cpu.serves(call.raw):
            scale = 1.0 / call.rows() if reduction == "mean" else 1.0
            return native_loss(call, objective, z_loss_coef, scale, _summed, reuse_logits)
        is_linear = z_loss_coef == 0.0 and objective.is_linear
        is_single = call.action is not None and call.shape == call.raw.shape[:-1]
        if reuse_logits or (is_linear and is_single and pays):
            return _fused_loss(call, objective, reduction, reuse_logits)
    loss = _row_losses(call, objective, z_loss_coef, reference, exact_kl_coef)
    return _reduced(call, loss, reduction)


def _one_kernel(
    call: CategoricalCall,
    objective: PolicyObjective,
    z_loss_coef: float,
    reduction: str,
    reuse_logits: bool,
    reference: Tensor | None,
    exact_kl_coef: float,
) -> Tensor:
    """A loss of any kind with its gradient, by one Triton kernel."""

    def definition(logits: Tensor) -> Tensor:
        again = replace(call, raw=logits.reshape(call.raw.shape))
        loss = _row_losses(again, objective, z_loss_coef, reference, exact_kl_coef)
        return _reduced(again, loss, reduction)

    counts = call.counting(objective.token_weight)
    flat = objective.flattened()
    weight = flat.factors() / (_rows(call) if reduction == "mean" else 1)
    if counts is not None:
        weight = torch.where(counts.reshape(-1), weight, 0.0)
    loss, log_prob = _fused_rows.summed_loss(
        call.kernel_rows(reference),
        replace(flat, token_weight=weight, scale=1.0),
        exact_kl_coef,
        z_loss_coef,
        reuse_logits,
        definition,
    )
    call.check_possible(log_prob.reshape(call.shape), counts)
    return loss


def _summed(call: CategoricalCall, objective: PolicyObjective, z_loss_coef: float) -> Tensor:
    return _row_losses(call, objective, z_loss_coef).sum()


def _is_gradient_wanted(call: CategoricalCall, objective: PolicyObjective) -> bool:
    """Whether the gradient at the logits, and none else, is wanted."""
    constants = not any(tensor.requires_grad for tensor in objective.tensors)
    wanted = torch.is_grad_enabled() and call.raw.requires_grad
    return wanted and constants


def _check_reusable(logits: Tensor, call: CategoricalCall, can_be_fused: bool) -> None:
    """Raise where the gradient cannot take the place of the logits."""
    reasons = {
        "logits that are a leaf of the graph": logits.is_leaf,
        "logits that are not contiguous": not logits.is_contiguous(),
        "a soft-cap or a temperature": not (_cpu.serves(logits) or call.is_fusable)
        and call.logits is not logits,
        "a transformed or traced call": not are_values_readable(logits),
        "a loss whose gradient is not known on the way forward": not can_be_fused,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidValueError(
                "`reuse_logits`",
                reason,
                "logits that an operation made, and a plain mean or sum of the loss",
                "leave reuse_logits out",
            )


def _fused_loss(
    call: CategoricalCall, objective: PolicyObjective, reduction: str, reuse_logits: bool = False
) -> Tensor:
    """The REINFORCE loss with its gradient taken on the way forward, in one pass."""
    weight, counts = objective.token_weight, call.counting(objective.token_weight)
    rows = _rows(call) if reduction == "mean" else 1
    advantage = objective.advantage if weight is None else objective.advantage * weight
    by_log_prob = advantage * (-1 / rows)
    by_entropy = None
    if objective.needs_entropy:
        scale = torch.ones_like(by_log_prob) if weight is None else weight
        scale = scale if counts is None else torch.where(counts, scale, 0.0)
        by_entropy = scale * (-objective.entropy_coef / rows)
    assert call.action is not None  # counts go other ways
    loss, log_prob = linear_objective(
        call.logits, call.action, call.mask, by_log_prob, by_entropy, reuse_logits
    )
    call.check_possible(log_prob, counts)
    return loss


def _row_losses(
    call: CategoricalCall,
    objective: PolicyObjective,
    z_loss_coef: float,
    reference: Tensor | None = None,
    exact_kl_coef: float = 0.0,
) -> Tensor:
    counts = call.counting(objective.token_weight)
    log_prob, entropy = statistics(call, objective.needs_entropy, counts)
    # 0 · −∞ has no value: an impossible action with the advantage 0 contributes 0.
    vain = objective.silent_rows() & (log_prob == float("-inf"))
    loss = objective.loss(log_prob.masked_fill(vain, 0.0), log_prob if entropy is None else entropy)
    if z_loss_coef != 0.0:
        loss = loss + _counted(call, objective, z_loss_coef * call.log_normalizer() ** 2)
    if reference is not None:
        if counts is not None:
            reference = torch.where(counts.unsqueeze(-1), reference, 0.0)
        loss = loss + _counted(call, objective, exact_kl_coef * divergences(call, reference))
    return loss


def _counted(call: CategoricalCall, objective: PolicyObjective, loss: Tensor) -> Tensor:
    """A part of the loss of each row, times its weight; 0 where the row does not count."""
    counts, weight = call.counting(objective.token_weight), objective.token_weight
    if counts is not None:
        loss = torch.where(counts, loss, 0.0)
    return loss if weight is None else loss * weight


def _reduced(call: CategoricalCall, loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.sum() / _rows(call)
    if reduction == "sum":
        return loss.sum()
    if reduction == "sequence":
        return loss.sum(-1)
    if reduction == "none":
        return loss
    raise InvalidValueError(
        "`reduction`", repr(reduction), "'mean', 'sum', 'sequence' or 'none'", "choose one of them"
    )


def _rows(call: CategoricalCall) -> Tensor | int:
    """How many samples are not ignored; 1 for none, whose sum is 0."""
    return max(1, call.shape.numel()) if call.kept is None else call.kept.sum().clamp_min(1)
