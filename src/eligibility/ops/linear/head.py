"""The unembedding and what is done to its logits, with their definition in torch's operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.errors import ShapeError
from eligibility.ops._policy_objective import TokenStatistics
from eligibility.ops._vocab_shard import VocabShard
from eligibility.ops.backends import plain
from eligibility.ops.backends.plain import compute_dtype
from eligibility.shapes import check_dtype

ReferenceChunks = Callable[[Tensor], Tensor]  # positions [R] of rows -> their raw logits [R, V]


@dataclass(frozen=True)
class LinearReference:
    r"""Another policy for the same tokens, also with logits ``W h + bias``.

    It is a constant: its tensors must not require gradients. Soft-cap, temperature and mask are
    those of the policy.

    Attributes:
        hidden: Its hidden states h, shape ``[*batch, D']``; ``D'`` need not be the policy's D.
        weight: Its unembedding W, shape ``[V, D']``, dtype of its hidden states.
        bias: Added to its logits, shape ``[V]``.

    Example:
        >>> import torch
        >>> LinearReference(torch.zeros(2, 3), torch.zeros(5, 3)).weight.shape
        torch.Size([5, 3])
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Reference:
    """A reference whose arguments are checked, over rows instead of any number of leading axes."""

    linear: LinearReference | None  # hidden [N, D']
    chunks: ReferenceChunks | None
    vocabulary: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made of."""
        if self.linear is None:
            return ()
        given = (self.linear.hidden, self.linear.weight, self.linear.bias)
        return tuple(tensor for tensor in given if tensor is not None)

    def logits(self, at: Tensor) -> Tensor:
        """The raw logits of some rows, ``[R, V]``."""
        if self.linear is not None:
            return F.linear(self.linear.hidden[at], self.linear.weight, self.linear.bias)
        assert self.chunks is not None  # it is one or the other
        found = self.chunks(at).detach()
        check_dtype(found, "reference(rows)")
        if found.shape != (len(at), self.vocabulary):
            raise ShapeError(
                "`reference(rows)`",
                f"shape {list(found.shape)}",
                f"{[len(at), self.vocabulary]}, a row of logits for each of the rows asked for",
                "the rows are positions among all tokens, leading axes flattened",
            )
        return found

    def own(self, at: Tensor, column: Tensor) -> Tensor | None:
        """The raw logits ``[R]`` of one column a row in float32, where those above are rounded."""
        linear = self.linear
        if linear is None or compute_dtype(linear.weight) == linear.weight.dtype:
            return None
        own = (linear.hidden[at].float() * linear.weight[column]).sum(1)
        return own if linear.bias is None else own + linear.bias[column]


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
        mask = self.mask
        if mask.layout == torch.sparse_csr:
            mask = mask_rows(mask, torch.arange(len(mask), device=mask.device))
        return torch.where(mask, z, float("-inf"))


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
