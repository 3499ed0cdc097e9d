r"""Policy gradients through a language model's last layer, without its logits in memory.

``hidden`` ``[*batch, D]`` times the unembedding ``weight`` ``[V, D]`` gives logits ``[*batch, V]``:
for 8192 tokens and a vocabulary of 151936 they take 2.5 GB in bfloat16, and their softmax and
gradients as much again. Here only a chunk of rows exists at a time. All of these functions are
defined by `eligibility.categorical_statistics` of

    softcap · tanh(F.linear(hidden, weight, bias) / softcap) / temperature

and agree with it in everything: masks, dtypes of results (float32 for half-precision inputs), and
derivatives. First derivatives take the fast way; second ones, the transforms of ``torch.func``,
forward-mode tangents and ``torch.compile`` run the definition itself, logits and all.

A loss that is reduced to one number takes its gradient on the way forward, for 6 N V D operations
in all, the three matrix products; the backward pass then only scales it. What returns a number per
token or per sequence (`linear_log_prob`, `linear_statistics`, ``reduction="none"``) may meet any
gradient there later and computes the logits twice: 8 N V D. The exact KL to a reference of D'
features needs its logits too, 2 N V D' more, or 4 where the policy's are computed twice.

The vocabulary may be shared between processes: each has some consecutive rows of the unembedding,
in the order of the ranks, with the bias, the masks' columns and the reference's rows that belong to
them. Hidden states, tokens and whatever has one number a token are the same in all of them. A
``DTensor`` brings its processes along; else they are the ``group``. Each process then spends its
part of the operations above, a chunk of rows takes one all-gather of three numbers a token (log
mass, entropy, logit of the token; five with an exact KL, two without entropy), and the gradient of
the hidden states is summed over the processes in float32 or wider on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree

from eligibility.errors import InvalidValueError
from eligibility.ops._linear_arguments import LinearCall
from eligibility.ops._linear_reference import LinearReference, ReferenceChunks
from eligibility.ops._policy_objective import PolicyObjective, check_policy_coefficients
from eligibility.ops._vocab_shard import ProcessGroup
from eligibility.ops.policy_loss import KLEstimator, Reduction


@dataclass(frozen=True)
class LinearStatistics:
    """What one pass over the hidden states gives; 0 for ignored tokens.

    Attributes:
        log_prob: log π(token), nats, shape ``[*batch]``.
        entropy: −Σ π log π, nats, shape ``[*batch]``.
        log_normalizer: log Σ exp z, shape ``[*batch]``.
        kl: KL(π ‖ π_ref), shape ``[*batch]``; None without a reference.
    """

    log_prob: Tensor
    entropy: Tensor
    log_normalizer: Tensor
    kl: Tensor | None = None


def _flatten(result: LinearStatistics) -> tuple[list[Any], None]:
    return [result.log_prob, result.entropy, result.log_normalizer, result.kl], None


def _unflatten(tensors: Any, _: None) -> LinearStatistics:
    return LinearStatistics(*tensors)


# So that a function that returns it can be given to torch.vmap and torch.func.
_pytree.register_pytree_node(LinearStatistics, _flatten, _unflatten)


def linear_log_prob(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""log π(token) of a linear head, ``z_token − log Σ exp z`` with ``z = W h + bias``.

    Args:
        hidden: h, shape ``[*batch, D]``.
        weight: W, the unembedding, shape ``[V, D]``, dtype of ``hidden``.
        token: The chosen indices in [0, V), or ``ignore_index``, shape ``[*batch]``.
        bias: Added to the logits, shape ``[V]``; −∞ forbids a token.
        temperature: Divides the logits, > 0; after the soft-cap.
        softcap: c > 0 turns logits z into ``c · tanh(z / c)``.
        mask: True where a token is legal: ``[*batch, V]``, or ``[V]`` for all rows, or a sparse CSR
            tensor ``[N, V]`` (N the product of batch), whose stored entries are the legal tokens.
        ignore_index: Rows with this token give 0 and receive a gradient of exactly 0.
        group: The processes that share the vocabulary: ``weight``, ``bias`` and ``mask`` are then
            this rank's part of it. None: all of it is here, or ``weight`` is a ``DTensor`` sharded
            on its first axis.

    Returns:
        Log-probabilities in nats, shape ``[*batch]``; float32 for half-precision inputs.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: A token is out of range or illegal, or a row allows nothing.

    Notes:
        Differentiable in ``hidden``, ``weight`` and ``bias``; what needs no gradient costs none. In
        half precision the logit of the token itself is computed in float32, the others are rounded
        by the matrix product; the gradient of ``weight`` is summed in float32.

    Example:
        >>> import torch
        >>> h, w, t = torch.randn(5, 8), torch.randn(11, 8), torch.tensor([0, 3, 10, 4, 4])
        >>> slow = torch.log_softmax(torch.nn.functional.linear(h, w), -1)[range(5), t]
        >>> torch.allclose(linear_log_prob(h, w, t), slow, atol=1e-5)
        True
    """
    return linear_statistics(
        hidden,
        weight,
        token,
        bias=bias,
        temperature=temperature,
        softcap=softcap,
        mask=mask,
        ignore_index=ignore_index,
        group=group,
    ).log_prob


def linear_statistics(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reference: LinearReference | ReferenceChunks | None = None,
    group: ProcessGroup | None = None,
) -> LinearStatistics:
    r"""log π(token), the entropy and log Σ exp z together, in one pass over the hidden states.

    Args:
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index: As `linear_log_prob`.
        reference: A policy π_ref, for KL(π ‖ π_ref): a `LinearReference`, or a function that makes
            its raw logits ``[R, V]`` for positions ``[R]`` among all tokens (leading axes
            flattened; ``V_r`` columns of a sharded vocabulary), called for a chunk at a time.
        group: As `linear_log_prob`.

    Returns:
        A `LinearStatistics`, each field ``[*batch]`` and differentiable.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `linear_log_prob`.

    Example:
        >>> import torch
        >>> result = linear_statistics(torch.zeros(2, 3), torch.ones(4, 3), torch.tensor([1, -100]))
        >>> result.log_prob, result.entropy
        (tensor([-1.3863,  0.0000]), tensor([1.3863, 0.0000]))
    """
    call = LinearCall.check(
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index, group, reference
    )
    known = call.statistics()
    return LinearStatistics(*known[:3], kl=None if reference is None else known.kl)


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
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""The loss ``w (−A log π(token) − β H + κ KL + ζ (log Σ exp z)²)`` of a linear head.

    Args:
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index: As `linear_log_prob`.
        advantage: A, the reinforcement minus its baseline, shape ``[*batch]``.
        token_weight: w, shape ``[*batch]``, default 1; a token of weight 0 contributes exactly 0.
        entropy_coef: β >= 0, the bonus on the entropy H.
        z_loss_coef: ζ >= 0, of the squared log-normaliser, which it keeps near 0.
        reference: π_ref of the exact KL(π ‖ π_ref), as `linear_statistics`.
        kl_coef: κ >= 0, the weight of that KL; it needs ``reference``.
        reduction: "mean" divides the sum by the number of tokens that are not ``ignore_index``
            (never by the weights); of no tokens it is 0. "sum"; "sequence" sums over the last axis
            of ``[*batch]`` only; "none".
        group: As `linear_log_prob`.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision inputs.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `linear_log_prob`, or a reference and
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
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""The clipped loss ``w (−min(r A, clip(r, 1−ε₋, 1+ε₊) A) − β H + κ KL + ζ (log Σ exp z)²)``.

    Args:
        hidden, weight, token, bias, temperature, softcap, mask, ignore_index: As `linear_log_prob`.
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
        group: As `linear_log_prob`.

    Returns:
        The loss: a scalar, or shape ``[*batch]``, or that without its last axis; float32 for
        half-precision inputs.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `linear_log_prob`, or a coefficient is
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
    exact = _reference_of_use(reference, kl_coef, kl_estimator)
    if kl_estimator == "exact":
        check_policy_coefficients(clip, 0.0, "k3", None)
        _check_absent(ref_log_prob, "ref_log_prob", kl_estimator)
    else:
        check_policy_coefficients(clip, kl_coef, kl_estimator, ref_log_prob)
        _check_absent(reference, "reference", kl_estimator)
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
            f"{kl_coef:g} for an exact KL without reference",
            "the reference policy",
            "pass reference=LinearReference(hidden, weight), or leave kl_coef at 0",
        )
    return reference if kl_coef != 0.0 else None


def _check_absent(given: object, name: str, kl_estimator: str) -> None:
    if given is not None:
        raise InvalidValueError(
            f"`{name}`",
            f"one, beside kl_estimator={kl_estimator!r}",
            "only what the estimator reads",
            "'k1', 'k2' and 'k3' read ref_log_prob, 'exact' reads reference",
        )
