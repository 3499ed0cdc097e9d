r"""The categorical policy with its vocabulary sharded over processes.

Each rank holds some consecutive part of the vocabulary: columns of the logits ``[*batch, V_r]`` or
rows of the unembedding ``[V_r, D]``, in the order of the ranks. Tokens, hidden states and what is
made of the results are the same on every rank.

A rank reduces its part to three numbers a token: the logarithm of its mass ``lse_r``, the entropy
``H_r`` within it, and the logit of the token if it is here. One all-gather of those, and every rank
knows the whole:

    lse = log Σ_r exp lse_r,   w_r = exp(lse_r − lse),   H = Σ_r w_r (H_r − log w_r),

the grouping property of the entropy, in which nothing cancels. On the way back each rank needs
nothing from the others, except that the gradient of hidden states is the sum of all ranks'.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.ops.categorical import categorical_statistics
from eligibility.ops.linear_categorical import LinearStatistics, linear_statistics
from eligibility.shapes import check_integer, check_shape


def vocab_parallel_statistics(
    logits: Tensor,
    token: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    ignore_index: int = -100,
) -> LinearStatistics:
    r"""log π(token), entropy and log Σ exp z of logits whose columns are sharded.

    Args:
        logits: This rank's columns of z, shape ``[*batch, V_r]``; shards may differ in size. Or a
            ``DTensor`` sharded on its last axis, which brings its own group.
        token: Indices in [0, V) of the whole vocabulary, or ``ignore_index``, shape ``[*batch]``.
        group: The processes that share the vocabulary; default: all.
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
    logits, group = _local(logits, -1, "logits", group)
    shard = _Shard(token, logits.shape[-1], group, ignore_index)
    check_shape(token, logits.shape[:-1], "token", "one index for each row of logits")
    here = categorical_statistics(logits, shard.token)
    own = logits.gather(-1, shard.token.unsqueeze(-1)).squeeze(-1).to(here.log_prob.dtype)
    return shard.combine(own, here.entropy, own - here.log_prob)


def vocab_parallel_linear_statistics(
    hidden: Tensor,
    weight: Tensor,
    token: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    group: dist.ProcessGroup | None = None,
    ignore_index: int = -100,
) -> LinearStatistics:
    r"""log π(token), entropy and log Σ exp z of a linear head whose unembedding is sharded.

    Args:
        hidden: h, the same on every rank, shape ``[*batch, D]``.
        weight: This rank's rows of the unembedding, shape ``[V_r, D]``; shards may differ in size.
            Or a ``DTensor`` sharded on its first axis, which brings its own group.
        token: Indices in [0, V) of the whole vocabulary, or ``ignore_index``, shape ``[*batch]``.
        bias: This rank's part of the bias, shape ``[V_r]``.
        temperature, softcap: As `eligibility.linear_log_prob`.
        group, ignore_index: As `vocab_parallel_statistics`.

    Returns:
        A `LinearStatistics`, the same on every rank; each field ``[*batch]``, differentiable once.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `vocab_parallel_statistics`.

    Notes:
        Neither the logits of a shard nor those of the whole are ever in memory. The gradient of
        ``hidden`` is summed over the ranks in float32 or wider, the only communication on the way
        back. Each rank spends 8 N V_r D operations.

    Example:
        >>> import torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> h, w = torch.zeros(1, 2), torch.ones(4, 2)
        >>> vocab_parallel_linear_statistics(h, w, torch.tensor([3])).entropy
        tensor([1.3863])
        >>> dist.destroy_process_group()
    """
    weight, group = _local(weight, 0, "weight", group)
    shard = _Shard(token, weight.shape[0], group, ignore_index)
    here = linear_statistics(
        _summed_gradient(hidden, group),
        weight,
        shard.token,
        bias=bias,
        temperature=temperature,
        softcap=softcap,
    )
    return shard.combine(here.log_prob + here.log_normalizer, here.entropy, here.log_normalizer)


class _Shard:
    """This rank's part of the vocabulary and, for each token, its index there."""

    def __init__(
        self, token: Tensor, size: int, group: dist.ProcessGroup | None, ignore_index: int
    ) -> None:
        check_integer(token, "token")
        sizes = _exchanged(torch.tensor([size], device=token.device), group).flatten().tolist()
        start = sum(sizes[: dist.get_rank(group)])
        self._ignored = token == ignore_index
        _check_range(token[~self._ignored], sum(sizes), ignore_index)
        inside = token - start
        self._is_here = (inside >= 0) & (inside < size) & ~self._ignored
        self._group = group
        # Where the token is elsewhere, any index will do: what it gives is not used.
        self.token = torch.where(self._is_here, inside, 0)

    def combine(self, own: Tensor, entropy: Tensor, log_normalizer: Tensor) -> LinearStatistics:
        """The statistics of the whole vocabulary from those of every part."""
        own = torch.where(self._is_here, own, float("-inf"))
        numbers = _gather(torch.stack([own, entropy, log_normalizer]), self._group)
        own, entropy, log_normalizer = numbers.unbind(1)  # [ranks, *batch] each
        total = torch.logsumexp(log_normalizer, 0)
        log_share = log_normalizer - total
        finite = torch.where(log_share == float("-inf"), 0.0, log_share)
        whole = (log_share.exp() * (entropy - finite)).sum(0)
        parts = (own.amax(0) - total, whole, total)
        return LinearStatistics(*(torch.where(self._ignored, 0.0, part) for part in parts))


class _Gather(torch.autograd.Function):
    """Every rank's tensor, ``[ranks, …]``; as all have the same loss, each keeps its own slope."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.rank = dist.get_rank(group)
        return _exchanged(tensor, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream[ctx.rank], None


class _SummedGradient(torch.autograd.Function):
    """The tensor itself; its gradient is the sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        wide = torch.promote_types(upstream.dtype, torch.float32)
        total = upstream.to(wide, copy=True, memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total.to(upstream.dtype), None


def _gather(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    result: Tensor = _Gather.apply(tensor, group)  # type: ignore[no-untyped-call]  # torch
    return result


def _summed_gradient(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    result: Tensor = _SummedGradient.apply(tensor, group)  # type: ignore[no-untyped-call]  # torch
    return result


def _exchanged(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return torch.stack(parts)


def _local(
    tensor: Tensor, axis: int, name: str, group: dist.ProcessGroup | None
) -> tuple[Tensor, dist.ProcessGroup | None]:
    """This rank's part, and the group that shares the rest."""
    if not dist.is_initialized():
        raise InvalidValueError(
            "`group`",
            "no process group",
            "one, with a rank for each part of the vocabulary",
            "call torch.distributed.init_process_group first, or start with torchrun",
        )
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(tensor, DTensor):
        return tensor, group
    if tensor.placements != (Shard(axis % tensor.ndim),):
        raise InvalidTypeError(
            f"`{name}`",
            f"a DTensor with placements {tensor.placements}",
            f"Shard({axis % tensor.ndim}) alone, on a mesh of one axis",
            "redistribute it, or pass this rank's part and its group",
        )
    return tensor.to_local(), tensor.device_mesh.get_group()


def _check_range(token: Tensor, vocabulary: int, ignore_index: int) -> None:
    if token.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(token))
    if low < 0 or high >= vocabulary:
        raise InvalidValueError(
            "`token`",
            f"a minimum of {low}" if low < 0 else f"a maximum of {high}",
            f"indices in [0, {vocabulary}), or ignore_index = {ignore_index}",
            f"the shards of all ranks together have V = {vocabulary} tokens",
        )
