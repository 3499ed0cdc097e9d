"""The unembedding and what is done to its logits, with their definition in torch's operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.ops import _plain


@dataclass(frozen=True)
class Head:
    """``z = softcap · tanh((W h + bias) / softcap) / temperature``, −∞ where the mask is False."""

    weight: Tensor  # [V, D]
    bias: Tensor | None  # [V]
    temperature: float
    softcap: float | None
    mask: Tensor | None  # [V], [N, V], or sparse CSR [N, V] whose stored entries are the allowed

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """All the logits at once: differentiable to any order, and as large as they are."""
        z = F.linear(hidden, self.weight, self.bias)
        z = self.shaped(z.to(_plain.compute_dtype(z)))
        if self.mask is not None:
            z = torch.where(dense_mask(self.mask), z, float("-inf"))
        return z

    def shaped(self, z: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """After soft-cap and temperature; what the bias forbids by −∞ stays so."""
        if self.softcap is not None:
            z = _plain.softcapped(z, self.softcap)
        return z if self.temperature == 1.0 else z / self.temperature

    def statistics(
        self, hidden: Float[Tensor, "N D"], token: Int[Tensor, " N"], ignore_index: int
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
        """log_prob, entropy and log_normalizer of every row, by definition; 0 where ignored."""
        ignored = token == ignore_index
        z = self.logits(torch.where(ignored.unsqueeze(-1), 0.0, hidden))
        log_probs = _plain.log_pmf(z)
        log_prob = _plain.at_action(log_probs, torch.where(ignored, 0, token))
        parts = (log_prob, _plain.entropy(log_probs), torch.logsumexp(z, -1))
        return tuple(torch.where(ignored, 0.0, part) for part in parts)  # type: ignore[return-value]


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
