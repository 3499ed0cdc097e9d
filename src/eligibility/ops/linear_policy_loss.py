r"""Policy-gradient losses through a language model's last layer, without its logits in memory.

They are the losses of `eligibility.ops.policy_loss` over the logits of
`eligibility.ops.linear_categorical`, chunk by chunk. One that is reduced to one number takes its
gradient on the way forward, for 6 N V D operations in all, the three matrix products; the backward
pass then only scales it. A number per token or per sequence may meet any gradient there later, so
the logits are computed twice: 8 N V D.
"""

from __future__ import annotations

from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.ops._policy_objective import (
    PolicyObjective,
    check_estimated,
    check_policy_coefficients,
    check_unread,
)
from eligibility.ops._processes import Group
from eligibility.ops.linear.arguments import LinearCall
from eligibility.ops.linear.head import LinearReference, ReferenceChunks
from eligibility.ops.policy_loss import KLEstimator, Reduction
from eligibility.scalars import check_numbers


def linear_reinforce_loss(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    advantage: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    token_weight: Tensor | None = None,
    entropy_coef: float = 0.0,
    z_loss_coef: float = 0.0,
    reference: LinearReference | ReferenceChunks | None = None,
    kl_coef: float = 0.0,
    reduction: Reduction = "mean",
    group: Group | None = None,
) -> Tensor:
    r"""The loss ``w (−A log π(token) − β H + κ KL + ζ (log Σ exp z)²)`` of a linear head.

    Args:
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index: As
            `eligibility.linear_log_prob`.
        advantage: A, the reinforcement minus its baseline, shape ``[*batch]``.
        token_weight: w, shape ``[*batch]``, default 1; a token of weight 0 contributes exactly 0.
        entropy_coef: β >= 0, the bonus on the entropy H.
        z_loss_coef: ζ >= 0, of the squared log-normaliser, which it keeps near 0.
        reference: π_ref of the exact KL(π ‖ π_ref), as `linear_statistics`.
        kl_coef: κ >= 0, the weight of that KL; it needs ``reference``.
        reduction: "mean" divides the sum by the number of tokens that are not ``ignore_index``
            (never by the weights); of no tokens it is 0. "sum"; "sequence" sums over the last axis
            of ``[*batch]`` only; "none".
        group: As `linear_statistics`.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision inputs.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `linear_statistics`, or a reference and
            its coefficient do not come together.

    Notes:
        The gradient at the logits is ``w (−A (y − π) + β π (log π + H) + κ π (log π − log π_ref −
        KL) + 2 ζ π log Σ exp z)``; it is never stored whole. Where π_ref is 0 and π is not, the KL
        is ∞ and has no gradient. Tokens that cannot contribute (ignored, weight 0, or advantage 0
        and no entropy bonus, KL and z-loss) are left out of every product. Nothing is detached: an
        advantage that requires gradients receives them, and the loss then goes the way of
        ``reduction="none"``.

    Example:
        >>> import torch
        >>> h = torch.zeros(1, 2, requires_grad=True)
        >>> w = torch.tensor([[1., 0.], [0., 1.], [0., 0.], [0., 0.]])
        >>> linear_reinforce_loss(h, w, torch.tensor([0]), torch.tensor([2.0])).backward()
        >>> h.grad
        tensor([[-1.5000,  0.5000]])

    References:
        Williams 1992, Machine Learning 8:229-256, §4; extended to the categorical unit.
    """
    check_numbers(entropy_coef=entropy_coef, z_loss_coef=z_loss_coef, kl_coef=kl_coef)
    exact = _reference_of_use(reference, kl_coef, "exact")
    call = LinearCall.check(
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index, group, exact,
        token_weight,
    )  # fmt: skip
    objective = PolicyObjective(
        advantage=call.per_token(advantage, "advantage"),
        token_weight=call.per_token_or_none(token_weight, "token_weight"),
        entropy_coef=entropy_coef,
        z_loss_coef=z_loss_coef,
        kl_coef=kl_coef,
        kl_estimator="exact",
    )
    return call.reduce(objective, reduction)


def linear_clipped_policy_loss(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    advantage: Tensor,
    old_log_prob: Tensor,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    ref_log_prob: Tensor | None = None,
    reference: LinearReference | ReferenceChunks | None = None,
    kl_coef: float = 0.0,
    kl_estimator: KLEstimator = "k3",
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    token_weight: Tensor | None = None,
    entropy_coef: float = 0.0,
    z_loss_coef: float = 0.0,
    reduction: Reduction = "mean",
    group: Group | None = None,
) -> Tensor:
    r"""The clipped loss ``w (−min(r A, clip(r, 1−ε₋, 1+ε₊) A) − β H + κ KL + ζ (log Σ exp z)²)``.

    Args:
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index: As
            `eligibility.linear_log_prob`.
        advantage: A, shape ``[*batch]``.
        old_log_prob: log π_old(token) of the policy that sampled, shape ``[*batch]``;
            ``r = exp(log π − log π_old)``.
        clip: (ε₋, ε₊), how far below and above 1 the ratio counts; 0 <= ε₋ <= 1, ε₊ >= 0.
        ref_log_prob: log π_ref(token) of a reference policy, for the estimators, shape
            ``[*batch]``.
        reference: The reference policy itself, for the exact KL, as `linear_statistics`.
        kl_coef: κ >= 0, the weight of the KL(π ‖ π_ref).
        kl_estimator: With ``d = log π − log π_ref``: "k1" is d, "k2" is d²/2, "k3" is
            ``exp(−d) − 1 + d``; "exact" sums over all tokens, for one product more. As a loss, k1
            has an expected gradient of 0 on its own samples.
        token_weight, entropy_coef, z_loss_coef, reduction: As `linear_reinforce_loss`.
        group: As `linear_statistics`.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision inputs.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `linear_statistics`, or a coefficient is
            out of its range, or the reference is not given in the form that the estimator needs.

    Notes:
        A token whose ratio is clipped, with no entropy bonus and no KL, has a gradient of exactly 0
        and is left out of the two products that form gradients.

    Example:
        >>> import torch
        >>> h, w, t = torch.zeros(1, 2, requires_grad=True), torch.eye(2), torch.tensor([0])
        >>> old = torch.tensor([0.25]).log()  # the ratio is 2, beyond 1.2
        >>> linear_clipped_policy_loss(h, w, t, torch.tensor([1.0]), old)
        tensor(-1.2000, grad_fn=...)

    References:
        Schulman et al. 2017, Proximal policy optimization algorithms, arXiv:1707.06347, eq. (7).
        Schulman 2020, Approximating KL divergence (the estimators k1, k2, k3).
    """
    check_numbers(entropy_coef=entropy_coef, z_loss_coef=z_loss_coef)
    clip = check_policy_coefficients(clip, kl_coef, kl_estimator)
    exact = _reference_of_use(reference, kl_coef, kl_estimator)
    if kl_estimator == "exact":
        check_unread(ref_log_prob, "ref_log_prob", kl_estimator, "reference")
    else:
        check_estimated(kl_coef, ref_log_prob)
        check_unread(reference, "reference", kl_estimator, "reference")
    call = LinearCall.check(
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index, group, exact,
        token_weight,
    )  # fmt: skip
    objective = PolicyObjective(
        advantage=call.per_token(advantage, "advantage"),
        token_weight=call.per_token_or_none(token_weight, "token_weight"),
        entropy_coef=entropy_coef,
        z_loss_coef=z_loss_coef,
        old_log_prob=call.per_token(old_log_prob, "old_log_prob"),
        clip=clip,
        ref_log_prob=call.per_token_or_none(ref_log_prob, "ref_log_prob"),
        kl_coef=kl_coef,
        kl_estimator=kl_estimator,
    )
    return call.reduce(objective, reduction)


def _reference_of_use(
    reference: LinearReference | ReferenceChunks | None, kl_coef: float, kl_estimator: str
) -> LinearReference | ReferenceChunks | None:
    """The reference if the loss reads it: at a coefficient of 0 its logits cost nothing."""
    if kl_estimator == "exact" and kl_coef != 0.0 and reference is None:
        raise InvalidValueError(
            "`kl_coef`",
            f"{kl_coef:g} for an exact KL without a reference",
            "the reference policy",
            "pass reference=LinearReference(hidden, weight), or leave kl_coef at 0",
        )
    return reference if kl_coef != 0.0 else None
