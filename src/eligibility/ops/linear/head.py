"""The unembedding and what is done to its logits, with their definition in torch's operations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.ops._policy_objective import TokenStatistics
from eligibility.ops._vocab_shard import VocabShard
from eligibility.ops.backends import plain
from eligibility.ops.linear.reference import Reference

# In place of a token: one that is ignored, and one in another process's part of the vocabulary.
IGNORED, ELSEWHERE = -1, -2


@dataclass(frozen=True)
class Head:
    """``z = softcap · tanh((W h + bias) / softcap) / temperature``, −∞ where the mask is False."""

    weight: Tensor  # [V, D]
    bias: Tensor | None  # [V]
    temperature: float
    softcap: float | None
    mask: Tensor | None  # [V], [N, V], or sparse CSR [N, V] whose stored entries are the allowed
    reference: Reference | None = None  # of the exact KL
    shard: VocabShard | None = None  # the part of the vocabulary that is here; None: all of it

    @property
    def widest(self) -> int:
        """V, or that of the largest part: the same in every process."""
        return self.weight.shape[0] if self.shard is None else max(self.shard.sizes)

    @property
    def constants(self) -> tuple[Tensor | None, ...]:
        """The tensors other than weight and bias, which autograd watches for changes."""
        given = () if self.reference is None else self.reference.tensors
        return (self.mask, *given)

    def again(self, weight: Tensor, bias: Tensor | None, mask: Tensor | None) -> Head:
        """The same, with the tensors that autograd has kept."""
        return replace(self, weight=weight, bias=bias, mask=mask)

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """All the logits at once: differentiable to any order, and as large as they are."""
        z = F.linear(hidden, self.weight, self.bias)
        return self._masked(self.shaped(z.to(plain.compute_dtype(z))))

    def shaped(self, z: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """After soft-cap and temperature; what the bias forbids by −∞ stays so."""
        return plain.shaped(z, self.temperature, self.softcap)

    def statistics(self, hidden: Float[Tensor, "N D"], token: Int[Tensor, " N"]) -> TokenStatistics:
        """The statistics of every row by definition, 0 where ignored."""
        ignored = token == IGNORED
        z = self.logits(torch.where(ignored.unsqueeze(-1), 0.0, hidden))
        log_probs = plain.log_pmf(z)
        log_prob = plain.at_action(log_probs, token.clamp_min(0))
        kl = ref_log_normalizer = torch.zeros_like(log_prob)
        if self.reference is not None:
            raw = self.reference.logits(torch.arange(len(token), device=token.device))
            raw = torch.where(ignored.unsqueeze(-1), 0.0, raw.to(z.dtype))
            r = self._masked(self.shaped(raw))
            kl, ref_log_normalizer = plain.kl(log_probs, plain.log_pmf(r)), r.logsumexp(-1)
        entropy, log_normalizer = plain.entropy(log_probs), torch.logsumexp(z, -1)
        parts = (log_prob, entropy, log_normalizer, kl, ref_log_normalizer)
        return TokenStatistics(*(torch.where(ignored, 0.0, part) for part in parts))

    def _masked(self, z: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        if self.mask is None:
            return z
        return torch.where(dense_mask(self.mask), z, float("-inf"))


def dense_mask(mask: Tensor) -> Bool[Tensor, "*N V"]:
    """The mask as booleans, also where it came as a sparse CSR tensor."""
    if mask.layout != torch.sparse_csr:
        return mask
    return mask_rows(mask, torch.arange(mask.shape[0], device=mask.device))


def mask_rows(mask: Tensor, rows: Int[Tensor, " R"]) -> Bool[Tensor, "*R V"]:
    """The mask of some rows as booleans; one row ``[V]`` that holds for all stays one row."""
    if mask.layout != torch.sparse_csr:
        return mask if mask.ndim == 1 else mask[rows]
    starts, columns = mask.crow_indices(), mask.col_indices()
    first, counts = starts[rows], starts[rows + 1] - starts[rows]
    row = torch.repeat_interleave(torch.arange(len(rows), device=mask.device), counts)
    offset = torch.arange(len(row), device=mask.device) - (counts.cumsum(0) - counts)[row]
    allowed = torch.zeros(len(rows), mask.shape[1], dtype=torch.bool, device=mask.device)
    allowed[row, columns[first[row] + offset]] = True
    return allowed
