"""The reference policy of an exact KL through the linear head: its logits, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from torch import Tensor

from eligibility.errors import ShapeError
from eligibility.ops.backends.plain import compute_dtype
from eligibility.shapes import check_floating

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
        check_floating(found, "reference(rows)")
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
