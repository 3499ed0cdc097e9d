r"""The categorical policy with its vocabulary sharded over processes.

Each rank holds some consecutive part of the vocabulary: columns of the logits ``[*batch, V_r]`` or
rows of the unembedding ``[V_r, D]``, in the order of the ranks. Tokens, hidden states and what is
made of the results are the same on every rank. The losses of a linear head take a ``group``
themselves: see `eligibility.linear_reinforce_loss`. How the parts make up the whole is said in
``_vocab_shard``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.ops._policy_objective import TokenStatistics
from eligibility.ops._processes import Group, local_part, process_group
from eligibility.ops._vocab_shard import VocabShard
from eligibility.ops.categorical import categorical_statistics
from eligibility.ops.linear.arguments import check_range, columns
from eligibility.ops.linear.head import IGNORED, LinearReference, ReferenceChunks
from eligibility.ops.linear_categorical import LinearStatistics, linear_statistics
from eligibility.scalars import check_index
from eligibility.shapes import check_categories, check_dtype, check_shape, check_tensor


def vocab_parallel_statistics(
    logits: Tensor, token: Tensor, *, group: Group | None = None, ignore_index: int = -100
) -> LinearStatistics:
    r"""log π(token), entropy and log Σ exp z of logits whose columns are sharded.

    Args:
        logits: This rank's columns of z, shape ``[*batch, V_r]``; shards may differ in size. Or a
            ``DTensor`` sharded on its last axis, which brings its own group.
        token: Indices in [0, V) of the whole vocabulary, or ``ignore_index``, shape ``[*batch]``.
        group: The processes that share the vocabulary, a process group or one dimension of a
            device mesh; default: those of the ``DTensor``, or all.
        ignore_index: Rows with this token give 0 and receive a gradient of exactly 0.

    Returns:
        A `LinearStatistics`, the same on every rank; each field ``[*batch]``, differentiable once.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: A token is out of range, or there is no process group.

    Notes:
        The backward pass takes the loss to be computed on every rank alike, and communicates
        nothing. Higher derivatives and the transforms of torch.func raise an error.

    Example:
        With one process the result is that of the whole:

        >>> import torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> z, a = torch.tensor([[0., 1., 2.]]), torch.tensor([2])
        >>> vocab_parallel_statistics(z, a).log_prob
        tensor([-0.4076])
        >>> torch.log_softmax(z, -1)[:, 2]
        tensor([-0.4076])
        >>> dist.destroy_process_group()
    """
    processes = process_group(group, logits)
    check_index(ignore_index, "ignore_index")
    check_tensor(logits, "logits")
    logits = local_part(logits, -1, "logits", processes)
    check_dtype(logits, "logits")
    check_categories(logits, "logits")
    check_given(token, "token", "pass the indices that were sampled")
    check_tensors(logits, "logits", token=token)
    check_shape(token, logits.shape[:-1], "token", "one index for each row of logits")
    shard = VocabShard.among(processes, logits.shape[-1], token, None)
    check_range(token, logits.shape[-1], shard, ignore_index)
    column = columns(token, ignore_index, shard)
    index = column.clamp_min(0)
    found = categorical_statistics(logits, index)
    own = logits.gather(-1, index.unsqueeze(-1)).squeeze(-1).to(found.log_prob.dtype)
    nothing = torch.zeros_like(own)
    local = TokenStatistics(found.log_prob, found.entropy, own - found.log_prob, nothing, nothing)
    whole = shard.combine(column >= 0, column == IGNORED, local, False)
    return LinearStatistics(*whole[:3])


def vocab_parallel_linear_statistics(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    reference: LinearReference | ReferenceChunks | None = None,
    group: Group | None = None,
    ignore_index: int = -100,
) -> LinearStatistics:
    r"""`eligibility.linear_statistics` with an unembedding that is sharded, by default over all.

    Args:
        hidden: h, the same on every rank, shape ``[*batch, D]``.
        weight: This rank's rows of the unembedding, shape ``[V_r, D]``; shards may differ in size.
            Or a ``DTensor`` sharded on its first axis, which brings its own group.
        token: Indices in [0, V) of the whole vocabulary, or ``ignore_index``, shape ``[*batch]``.
        bias: This rank's part of the bias, shape ``[V_r]``.
        temperature, softcap: As `eligibility.linear_log_prob`.
        mask: This rank's columns of it, as `eligibility.linear_log_prob`.
        reference: This rank's part of a reference policy, as `eligibility.linear_statistics`.
        group, ignore_index: As `vocab_parallel_statistics`.

    Returns:
        A `LinearStatistics`, the same on every rank; each field ``[*batch]``, differentiable once.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `vocab_parallel_statistics`.

    Notes:
        Neither the logits of a shard nor those of the whole are ever in memory. The gradient of
        ``hidden`` is summed over the ranks in float32 or wider, the only communication on the way
        back. Each rank spends 8 N V_r D operations; `eligibility.linear_reinforce_loss` and
        `eligibility.linear_clipped_policy_loss` with a ``group``, 6.

    Example:
        >>> import torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> h, w = torch.zeros(1, 2), torch.ones(4, 2)
        >>> vocab_parallel_linear_statistics(h, w, torch.tensor([3])).entropy
        tensor([1.3863])
        >>> dist.destroy_process_group()
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
        reference=reference,
        group=process_group(group, weight),
    )
