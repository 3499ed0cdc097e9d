r"""The categorical policy over logits: log π(a), entropy and KL.

All functions are differentiable to any order, also forward, under `torch.vmap` and
`torch.compile`; they compute in float32 when the logits are bfloat16 or float16, and return float32
then.

A ``mask`` is True where an action is legal. An illegal action has probability 0, contributes
exactly 0 to entropy and KL, and receives a gradient of exactly 0. A logit of −∞ does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from eligibility.arguments import check_tensors
from eligibility.ops.rows.categorical_call import CategoricalCall, check_logits_arguments
from eligibility.ops.rows.statistics import divergences, entropies, statistics
from eligibility.shapes import are_values_readable, check_mask_rows, check_shape


@dataclass(frozen=True)
class CategoricalStatistics:
    """What one pass over the logits gives.

    Attributes:
        log_prob: log π(a) of the chosen actions, nats, shape of the action.
        entropy: −Σ π log π, nats, shape ``[*batch]`` also where there are samples; 0 in a row all
            of whose samples are ignored.
    """

    log_prob: Tensor
    entropy: Tensor


def register_result(cls: type[Any]) -> None:
    """Let a function that returns such a record be given to torch.vmap and torch.func."""
    names = tuple(field.name for field in fields(cls))

    def unflatten(leaves: Any, _: None) -> Any:
        result = object.__new__(cls)  # the transforms also put axis numbers in it
        result.__dict__.update(zip(names, leaves, strict=True))
        return result

    _pytree.register_pytree_node(
        cls, lambda result: ([getattr(result, name) for name in names], None), unflatten
    )


register_result(CategoricalStatistics)


def categorical_log_prob(
    logits: Tensor,
    action: Tensor | None,
    *,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""log π(a) = z_a − log Σ exp z.

    Args:
        logits: z, shape ``[*batch, K]``; −∞ forbids an action.
        action: The chosen indices in [0, K), shape ``[*batch]``; several samples of each row:
            ``[*samples, *batch]``, as torch's distributions draw them. None: counts are given.
        counts: y >= 0, how often each category was drawn, shape ``[*batch, K]``, instead.
        mask: True where an action is legal, ``[*batch, K]`` or ``[K]``.
        temperature: Divides the logits, > 0; after the soft-cap.
        softcap: c > 0 turns logits z into ``c tanh(z/c)``.
        ignore_index: Rows with this action give 0, with a gradient of exactly 0.

    Returns:
        Log-probabilities in nats, shape of ``action``; of counts, shape ``[*batch]``, that of the
        draws in their order, ``Σ y log π``: the multinomial coefficient, a constant, is left out.
        float32 for half-precision logits.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: An index is out of range or illegal, a count is negative, or a row allows
            nothing.

    Notes:
        The gradient at the logits is ``y − n π``, with y the one-hot action and n = 1, or y the
        counts and n their sum.

    Example:
        >>> import torch
        >>> z, a = torch.tensor([[0., 1., 2.], [1., 1., 1.]]), torch.tensor([2, 0])
        >>> categorical_log_prob(z, a)
        tensor([-0.4076, -1.0986])
        >>> torch.allclose(categorical_log_prob(z, a), z.log_softmax(-1)[range(2), a])
        True
    """
    call = CategoricalCall.check(logits, action, counts, mask, temperature, softcap, ignore_index)
    return statistics(call, with_entropy=False, counts=call.kept)[0]


def categorical_entropy(
    logits: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    r"""The entropy −Σ π log π, with 0 log 0 = 0.

    Args:
        logits, mask, temperature, softcap: As `categorical_log_prob`.

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
    check_logits_arguments(logits, mask, temperature, softcap)
    _check_mask_rows(mask)
    return entropies(logits, mask, temperature, softcap)


def categorical_statistics(
    logits: Tensor,
    action: Tensor | None,
    *,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    ignore_index: int | None = None,
) -> CategoricalStatistics:
    r"""log π(a) and the entropy together, in one pass over the logits.

    Args:
        logits, action, counts, mask, temperature, softcap, ignore_index: As
            `categorical_log_prob`.

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
    call = CategoricalCall.check(logits, action, counts, mask, temperature, softcap, ignore_index)
    log_prob, entropy = statistics(call, with_entropy=True, counts=call.kept)
    assert entropy is not None  # it was asked for; this is for the type checker
    kept = call.row_is_kept()
    if kept is not None:
        entropy = torch.where(kept, entropy, 0.0)
    return CategoricalStatistics(log_prob, entropy)


def categorical_kl(
    logits: Tensor,
    other: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    r"""KL(π ‖ π') = Σ π (log π − log π'), exact, from two sets of logits.

    Args:
        logits: The logits of π, shape ``[*batch, K]``; −∞ forbids an action.
        other: The logits of π', same shape.
        mask: True where an action is legal for both, ``[*batch, K]`` or ``[K]``.
        temperature, softcap: As `categorical_log_prob`, for both.

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
    check_logits_arguments(logits, mask, temperature, softcap)
    check_tensors(logits, "logits", other=other)
    check_logits_arguments(other, None, temperature, softcap, "other")
    check_shape(other, logits.shape, "other", "the shape of logits")
    _check_mask_rows(mask)
    return divergences(CategoricalCall(logits, None, None, mask, None, temperature, softcap), other)


def _check_mask_rows(mask: Tensor | None) -> None:
    if mask is not None and are_values_readable(mask):
        check_mask_rows(mask)
