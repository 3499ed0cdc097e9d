r"""Policy gradients through a language model's last layer, without its logits in memory.

``hidden`` ``[*batch, D]`` times the unembedding ``weight`` ``[V, D]`` gives logits ``[*batch, V]``:
for 8192 tokens and a vocabulary of 151936 they take 2.5 GB in bfloat16, and their softmax and
gradients as much again. Here only a chunk of rows exists at a time. All of these functions are
defined by `eligibility.categorical_statistics` of

    softcap · tanh(F.linear(hidden, weight, bias) / softcap) / temperature

and agree with it in everything: masks, dtypes of results (float32 for half-precision inputs), and
derivatives. First derivatives take the fast way; second ones, the transforms of ``torch.func``,
forward-mode tangents and ``torch.compile`` run the definition itself, logits and all.

A number per token may meet any gradient later, so the logits are computed twice: 8 N V D operations
in all. A loss that is reduced to one number (`eligibility.ops.linear_policy_loss`) takes 6. The
exact KL to a reference of D' features needs its logits too, 4 N V D' more, or 2 with such a loss.

The vocabulary may be shared between processes: each has some consecutive rows of the unembedding,
in the order of the ranks, with the bias, the masks' columns and the reference's rows that belong to
them. Hidden states, tokens and whatever has one number a token are the same in all of them. That is
asked for by ``group``, a process group or one dimension of a device mesh, and checked: the tokens
and a sample of the hidden states are compared. Without a group, a weight that is a ``DTensor``, as
under FSDP, is gathered. With one, each process spends its part of the operations above, a chunk of
rows takes one all-gather of three numbers a token (log mass, entropy, logit of the token; five with
an exact KL, two without entropy), and the gradient of the hidden states is summed over the
processes in float32 or wider on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from eligibility.ops._processes import Group
from eligibility.ops.categorical import register_result
from eligibility.ops.linear.arguments import LinearCall
from eligibility.ops.linear.head import LinearReference, ReferenceChunks


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


register_result(LinearStatistics)


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
    group: Group | None = None,
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
        group: The processes that share the vocabulary, a process group or one dimension of a
            device mesh: ``weight``, ``bias`` and ``mask`` are then this rank's part of it, or
            ``DTensor`` sharded over the group on their first axis. None: all of it is here; a
            ``DTensor``, as under FSDP, is gathered, and its gradient averaged over its processes.

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
    group: Group | None = None,
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
