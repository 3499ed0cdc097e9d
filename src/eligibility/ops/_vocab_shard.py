r"""One process's part of a vocabulary, and how the parts make up the whole.

A process reduces its part of a row to three numbers: the logarithm of its mass ``lse_r``, the
entropy ``H_r`` within it, and the logit of the token if it is here. One all-gather of those, and
every process knows the whole, by the grouping property of the entropy, in which nothing cancels:

    lse = log Σ_r exp lse_r,   w_r = exp(lse_r − lse),   H = Σ_r w_r (H_r − log w_r).

With a reference policy there are two more, the KL within the part and the reference's mass there:

    KL = Σ_r w_r (KL_r + log w_r − log v_r)    with v_r the reference's share.

Why a gather and not a sum: sums of exponentials want one shift that all processes know before they
have seen each other's logits. A bound such as ‖h‖ max ‖w‖ lies hundreds of nats above the logits
that occur, and the sums vanish; the true maximum takes a separate collective. A gather is one
collective, exact whatever the logits are, and what it moves beyond a sum is a few bytes a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from eligibility.ops._policy_objective import PolicyObjective, Slopes, TokenStatistics
from eligibility.ops._processes import ProcessGroup, check_agreement, fingerprint


@dataclass(frozen=True)
class VocabShard:
    """Consecutive parts of the vocabulary, in the order of the processes of a group."""

    group: ProcessGroup | None  # None: all processes
    sizes: tuple[int, ...]  # of the parts
    rank: int

    @classmethod
    def among(
        cls, group: ProcessGroup | None, size: int, token: Tensor, hidden: Tensor | None
    ) -> VocabShard:
        """The parts of all, of which this one has ``size`` tokens; they tell each other.

        In the same message they tell what they were given, which must be the same everywhere.
        """
        table = exchanged(fingerprint(size, token, hidden), group).cpu()
        check_agreement(table, hidden)
        return cls(group, tuple(table[:, 0].tolist()), dist.get_rank(group))

    @property
    def start(self) -> int:
        """The first token that is here."""
        return sum(self.sizes[: self.rank])

    def combine(
        self, here: Tensor, ignored: Tensor, local: TokenStatistics, with_kl: bool
    ) -> TokenStatistics:
        """The statistics of the whole vocabulary, differentiable once in those of this part.

        ``here``: whether the token is in this part, shape ``[*batch]``; elsewhere the ``log_prob``
        of ``local`` means nothing. ``ignored``: where the result is 0.
        """
        numbers = torch.stack(_numbers(here, local, True, with_kl))
        whole = _grouped(_gather(numbers, self.group), True, with_kl)[0]
        return TokenStatistics(*(torch.where(ignored, 0.0, part) for part in whole))


@dataclass(frozen=True)
class ShardObjective:
    """An objective of the whole vocabulary, asked with the statistics of one part: it gathers."""

    whole: PolicyObjective
    shard: VocabShard
    here: Tensor  # [N], whether the token is in this part

    @property
    def needs_entropy(self) -> bool:
        """The entropy of the whole contains those of the parts."""
        return self.whole.needs_entropy

    @property
    def is_linear(self) -> bool:
        """The slopes depend on the share of this part."""
        return False

    def at(self, rows: Tensor | slice) -> ShardObjective:
        """The objective of some of the tokens."""
        return ShardObjective(self.whole.at(rows), self.shard, self.here[rows])

    def slopes(self, part: slice, known: TokenStatistics) -> Slopes:
        """The loss, and its slopes by the statistics of this part: one all-gather.

        By the chain rule through the grouping property. For the part r, in which ``log π = log p +
        log w``, a slope a by log π(token), b by H, c by lse and k by KL become slopes a where the
        token is here, w b, w k and, by ``lse_r``,

            a [here] + w (c − a + b (H_r − log w − H) + k (KL_r + log w − log v − KL)).
        """
        here = self.here[part]
        wants = (self.whole.needs_entropy, self.whole.needs_kl)
        numbers = exchanged(torch.stack(_numbers(here, known, *wants)), self.shard.group)
        whole, log_shares, log_ref_shares = _grouped(numbers, *wants)
        loss, a, b, c, k = self.whole.slopes(part, whole)
        log_share = log_shares[self.shard.rank]
        share = log_share.exp()
        finite = torch.where(share == 0, 0.0, log_share)
        a_here = torch.where(here, a, 0.0)
        inner = -a if c is None else c - a
        if b is not None:
            inner = inner + b * (known.entropy - finite - whole.entropy)
        if k is not None:
            against = finite - log_ref_shares[self.shard.rank] - whole.kl
            inner = inner + k * (known.kl + against)
        normalizer = a_here + torch.where(share == 0, 0.0, share * inner)
        return Slopes(
            loss,
            a_here,
            None if b is None else b * share,
            normalizer,
            None if k is None else k * share,
        )


def _numbers(
    here: Tensor, local: TokenStatistics, with_entropy: bool, with_kl: bool
) -> list[Tensor]:
    """What the others need to know of this part; a part that allows nothing has the mass 0."""
    nothing = local.log_normalizer == float("-inf")
    own = torch.where(here, local.log_prob + local.log_normalizer, float("-inf"))
    numbers = [own, local.log_normalizer]
    if with_entropy:
        numbers.append(local.entropy.masked_fill(nothing, 0.0))
    if with_kl:
        numbers.append(local.kl.masked_fill(nothing, 0.0))
        numbers.append(local.ref_log_normalizer.masked_fill(nothing, float("-inf")))
    return numbers


def _grouped(
    numbers: Tensor, with_entropy: bool, with_kl: bool
) -> tuple[TokenStatistics, Tensor, Tensor]:
    """The statistics of the whole from ``[ranks, numbers, *batch]``; log w_r and log v_r."""
    own, log_normalizer, *others = numbers.unbind(1)
    total = torch.logsumexp(log_normalizer, 0)
    log_share = log_normalizer - total
    share = log_share.exp()
    finite = torch.where(share == 0, 0.0, log_share)
    entropy = kl = ref_total = torch.zeros_like(total)
    log_ref_share = torch.zeros_like(log_share)
    if with_entropy:
        entropy = (share * (others.pop(0) - finite)).sum(0)
    if with_kl:
        inner, ref_log_normalizer = others
        ref_total = torch.logsumexp(ref_log_normalizer, 0)
        log_ref_share = ref_log_normalizer - ref_total
        against = torch.where(share == 0, 0.0, inner + finite - log_ref_share)
        kl = (share * against).sum(0)
    whole = TokenStatistics(own.amax(0) - total, entropy, total, kl, ref_total)
    return whole, log_share, log_ref_share


class _Gather(torch.autograd.Function):
    """Every rank's tensor, ``[ranks, …]``; as all have the same loss, each keeps its own slope."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.rank = dist.get_rank(group)
        return exchanged(tensor, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream[ctx.rank], None


class _SummedGradient(torch.autograd.Function):
    """The tensor itself; its gradient is the sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        wide = torch.promote_types(upstream.dtype, torch.float32)
        total = upstream.to(wide, copy=True, memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total.to(upstream.dtype), None


def _gather(tensor: Tensor, group: ProcessGroup | None) -> Tensor:
    result: Tensor = _Gather.apply(tensor, group)  # type: ignore[no-untyped-call]  # torch
    return result


def summed_gradient(tensor: Tensor, group: ProcessGroup | None) -> Tensor:
    """The tensor itself, the same on every rank; its gradient is the sum over the ranks."""
    result: Tensor = _SummedGradient.apply(tensor, group)  # type: ignore[no-untyped-call]  # torch
    return result


def exchanged(tensor: Tensor, group: ProcessGroup | None) -> Tensor:
    """Every rank's tensor of one shape, ``[ranks, …]``."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return torch.stack(parts)
