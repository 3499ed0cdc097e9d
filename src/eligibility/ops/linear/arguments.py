"""The arguments of a linear operation: checked, flattened to rows, and reduced at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.ops._policy_objective import PolicyObjective, TokenStatistics, check_reduction
from eligibility.ops._processes import Group, ProcessGroup, gathered, local_part, process_group
from eligibility.ops._vocab_shard import VocabShard
from eligibility.ops.backends.plain import compute_dtype
from eligibility.ops.linear.autograd import statistics, summed_loss, token_losses
from eligibility.ops.linear.head import (
    ELSEWHERE,
    IGNORED,
    Head,
    LinearReference,
    Reference,
    ReferenceChunks,
    mask_rows,
)
from eligibility.scalars import check_callable, check_index, check_numbers
from eligibility.shapes import (
    are_values_readable,
    check_device,
    check_dtype,
    check_local,
    check_shape,
    check_tensor,
)

_MASK_ELEMENTS = 1 << 22  # of a sparse mask that are dense at a time


@dataclass(frozen=True)
class LinearCall:
    """One call: the head, and rows instead of any number of leading axes."""

    head: Head
    hidden: Tensor  # [N, D]
    token: Tensor  # [N], int64, a row of the head's weight; or IGNORED, or ELSEWHERE
    shape: torch.Size  # the leading axes

    @classmethod
    def check(
        cls,
        hidden: Tensor,
        weight: Tensor,
        token: Tensor,
        bias: Tensor | None,
        temperature: float,
        softcap: float | None,
        mask: Tensor | None,
        ignore_index: int,
        group: Group | None,
        reference: LinearReference | ReferenceChunks | None = None,
        token_weight: Tensor | None = None,
    ) -> LinearCall:
        """Raise for what does not fit together; then flatten. Under autocast, cast as it would.

        Whether the mask allows a token does not matter where ``token_weight`` is 0.
        """
        processes = None if group is None else process_group(group)
        check_tensor(weight, "weight")
        weight = _part(weight, "weight", processes)
        bias = None if bias is None else _part(bias, "bias", processes)
        _check_head(hidden, weight, bias, temperature, softcap)
        check_index(ignore_index, "ignore_index")
        check_given(token, "token", "pass the indices that were sampled")
        check_tensors(hidden, "hidden", token=token, token_weight=token_weight)
        check_shape(token, hidden.shape[:-1], "token", "one index for each hidden state")
        hidden, weight = _autocast(hidden), _autocast(weight)
        bias = None if bias is None else _autocast(bias)
        vocabulary, features = weight.shape
        if mask is not None:
            mask = _checked_mask(mask, token, vocabulary)
        against = None
        if reference is not None:
            against = _rows_of(reference, token.shape, vocabulary, processes)
        shard = None
        if processes is not None:
            shard = VocabShard.among(processes, vocabulary, token, hidden)
        head = Head(weight, bias, float(temperature), softcap, mask, against, shard)
        rows = token.reshape(-1).long()
        if are_values_readable(hidden, weight, token):
            check_range(rows, vocabulary, shard, ignore_index)
        rows = columns(rows, ignore_index, shard)
        if mask is not None and are_values_readable(hidden, weight, token):
            counts = rows >= 0
            if token_weight is not None and token_weight.shape == token.shape:
                counts &= token_weight.reshape(-1) != 0
            _check_allowed(rows, mask, counts.nonzero().squeeze(1), 0 if not shard else shard.start)
        return cls(head, hidden.reshape(-1, features), rows, token.shape)

    def statistics(self) -> TokenStatistics:
        """The statistics of every token, in the shape of the tokens."""
        found = statistics(self.head, self.hidden, self.token)
        return TokenStatistics(*(part.reshape(self.shape) for part in found))

    def per_token(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor that holds one number a token, as rows."""
        check_given(tensor, name, "pass one number for each token")
        check_tensors(self.hidden, "hidden", **{name: tensor})
        check_shape(tensor, self.shape, name, "one number for each token")
        return tensor.reshape(-1).to(compute_dtype(self.hidden))

    def per_token_or_none(self, tensor: Tensor | None, name: str) -> Tensor | None:
        """The same for an argument that may be left out."""
        return None if tensor is None else self.per_token(tensor, name)

    def reduce(self, objective: PolicyObjective, reduction: str) -> Tensor:
        """The loss: per token, or summed or averaged with the gradient on the way forward."""
        where = (self.head, self.hidden, self.token)
        check_reduction(reduction, self.shape)
        if reduction == "none":
            return token_losses(*where, objective).reshape(self.shape)
        if reduction == "sequence":
            return token_losses(*where, objective).reshape(self.shape).sum(-1)
        if reduction == "sum":
            return summed_loss(*where, objective)
        count = (self.token != IGNORED).sum().clamp_min(1)
        return summed_loss(*where, objective._replace(scale=1.0 / count.double()))


def _part(tensor: Tensor, name: str, group: ProcessGroup | None) -> Tensor:
    """What this process has to multiply with: its part of the vocabulary, or all of it."""
    return gathered(tensor) if group is None else local_part(tensor, 0, name, group)


def _check_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    temperature: float,
    softcap: float | None,
    owner: str = "",
) -> None:
    check_dtype(hidden, f"{owner}hidden")
    check_local(hidden, f"{owner}hidden")
    check_dtype(weight, f"{owner}weight")
    check_device(weight, hidden, f"{owner}weight", f"{owner}hidden")
    if bias is not None:
        check_dtype(bias, f"{owner}bias")
        check_device(bias, hidden, f"{owner}bias", f"{owner}hidden")
    check_numbers(temperature=temperature, softcap=softcap)
    if weight.ndim != 2 or weight.shape[0] == 0 or hidden.ndim == 0:
        wrong, name = (hidden, "hidden") if hidden.ndim == 0 else (weight, "weight")
        raise ShapeError(
            f"`{owner}{name}`",
            f"shape {list(wrong.shape)}",
            "hidden [*batch, D] and weight [V, D] with V >= 1",
            "the unembedding has one row per token of the vocabulary",
        )
    if hidden.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"`{owner}hidden`",
            f"{hidden.shape[-1]} features",
            f"D = {weight.shape[1]}, the width of weight {list(weight.shape)}",
            "pass the hidden states that the last layer multiplies; the weight is [V, D]",
        )
    if bias is not None:
        check_shape(bias, weight.shape[:1], f"{owner}bias", "one number for each row of weight")
    for tensor, name in ((weight, "weight"), (bias, "bias")):
        if tensor is not None and _autocast(tensor).dtype != _autocast(hidden).dtype:
            raise InvalidTypeError(
                f"`{owner}{name}`",
                f"dtype {_short(tensor)}",
                f"{_short(hidden)}, the dtype of hidden",
                f"convert one of them, for instance with {name}.to(hidden.dtype)",
            )


def _checked_mask(mask: Tensor, token: Tensor, vocabulary: int) -> Tensor:
    """The mask as ``[V]``, ``[N, V]`` or sparse CSR ``[N, V]``."""
    batch = token.shape
    if not isinstance(mask, Tensor) or mask.layout == torch.strided:
        check_tensors(token, "token", mask=mask)
    check_device(mask, token, "mask", "token")
    if mask.layout == torch.sparse_csr:
        check_shape(
            mask, torch.Size((batch.numel(), vocabulary)), "mask", "a CSR row for each token"
        )
        return mask
    if mask.layout != torch.strided:
        raise InvalidTypeError(
            "`mask`", f"layout {mask.layout}", "a dense or a CSR tensor", "call .to_sparse_csr()"
        )
    if mask.shape == (vocabulary,):
        return mask
    check_shape(
        mask, torch.Size((*batch, vocabulary)), "mask", "one row for each token, or [V] for all"
    )
    return mask.reshape(-1, vocabulary)


def _rows_of(
    given: LinearReference | ReferenceChunks,
    batch: torch.Size,
    vocabulary: int,
    group: ProcessGroup | None,
) -> Reference:
    """The reference, checked, over rows."""
    if not isinstance(given, LinearReference):
        check_callable(given, "reference", "pass a LinearReference, or a function of rows")
        return Reference(None, given, vocabulary)
    hidden, bias = given.hidden, given.bias
    weight = _part(given.weight, "reference.weight", group)
    bias = None if bias is None else _part(bias, "reference.bias", group)
    _check_head(hidden, weight, bias, 1.0, None, "reference.")
    expected = torch.Size((*batch, hidden.shape[-1]))
    check_shape(hidden, expected, "reference.hidden", "a hidden state for each token")
    expected = torch.Size((vocabulary, weight.shape[1]))
    check_shape(weight, expected, "reference.weight", "a row for each row of weight")
    tensors = {"hidden": hidden, "weight": weight, "bias": bias}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise InvalidValueError(
                f"`reference.{name}`",
                "a tensor that requires gradients",
                "a constant: the KL has no gradient for its reference here",
                f"pass {name}.detach(), or compute it under torch.no_grad()",
            )
    linear = LinearReference(
        _autocast(hidden).reshape(-1, hidden.shape[-1]),
        _autocast(weight),
        None if bias is None else _autocast(bias),
    )
    return Reference(linear, None, vocabulary)


def columns(token: Tensor, ignore_index: int, shard: VocabShard | None) -> Tensor:
    """The part's own numbers of the tokens, or IGNORED or ELSEWHERE."""
    ignored = token == ignore_index
    if shard is not None:
        token = token - shard.start
        is_here = (token >= 0) & (token < shard.sizes[shard.rank])
        token = torch.where(is_here, token, ELSEWHERE)
    return torch.where(ignored, IGNORED, token)


def check_range(
    token: Tensor, vocabulary: int, shard: VocabShard | None, ignore_index: int
) -> None:
    """Raise unless the tokens that are not ignored are in the whole vocabulary."""
    counts = token[token != ignore_index]
    if counts.numel() == 0:
        return
    whose = "weight has V = {} rows, one for each token"
    if shard is not None:
        vocabulary = sum(shard.sizes)
        whose = "the shards of all ranks together have V = {} tokens"
    low, high = (int(end) for end in torch.aminmax(counts))
    if low < 0 or high >= vocabulary:
        raise InvalidValueError(
            "`token`",
            f"a minimum of {low}" if low < 0 else f"a maximum of {high}",
            f"indices in [0, {vocabulary}), or ignore_index = {ignore_index}",
            whose.format(vocabulary),
        )


def _check_allowed(token: Tensor, mask: Tensor, counts: Tensor, start: int) -> None:
    """Raise unless the mask allows each token that counts; such a row allows something."""
    for rows in torch.split(counts, max(1, _MASK_ELEMENTS // mask.shape[-1])):
        allowed = mask_rows(mask, rows)
        column = token[rows].unsqueeze(1)
        own = allowed[token[rows]] if allowed.ndim == 1 else allowed.gather(1, column).squeeze(1)
        if not bool(own.all()):
            row = int(rows[~own][0])
            raise InvalidValueError(
                "`token`",
                f"token {start + int(token[row])} in row {row}, which its mask forbids",
                "tokens that the mask allows",
                "an illegal token has probability 0: correct the mask, "
                "or set the token to ignore_index",
            )


def _autocast(tensor: Tensor) -> Tensor:
    """As autocast treats the operands of a product: float64 stays."""
    device = tensor.device.type
    if not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def _short(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
