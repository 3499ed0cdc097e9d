"""The arguments of a linear operation: checked, flattened to rows, and reduced at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.ops._linear_autograd import summed_loss, token_losses
from eligibility.ops._linear_head import Head, mask_rows
from eligibility.ops._plain import compute_dtype
from eligibility.ops._policy_objective import PolicyObjective
from eligibility.shapes import (
    are_values_readable,
    check_boolean,
    check_floating,
    check_integer,
    check_shape,
)

_MASK_ELEMENTS = 1 << 22  # of a sparse mask that are dense at a time


@dataclass(frozen=True)
class LinearCall:
    """One call: the head, and rows instead of any number of leading axes."""

    head: Head
    hidden: Tensor  # [N, D]
    token: Tensor  # [N], int64
    shape: torch.Size  # the leading axes
    ignore_index: int

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
        token_weight: Tensor | None = None,
    ) -> LinearCall:
        """Raise for what does not fit together; then flatten. Under autocast, cast as it would.

        Whether the mask allows a token does not matter where ``token_weight`` is 0.
        """
        _check_head(hidden, weight, bias, temperature, softcap)
        check_integer(token, "token")
        check_shape(token, hidden.shape[:-1], "token", "one index for each hidden state")
        hidden, weight = _autocast(hidden), _autocast(weight)
        bias = None if bias is None else _autocast(bias)
        vocabulary, features = weight.shape
        rows = token.reshape(-1).long()
        if mask is not None:
            mask = _checked_mask(mask, token.shape, vocabulary)
        head = Head(weight, bias, float(temperature), softcap, mask)
        if are_values_readable(hidden, weight, token):
            _check_range(rows, vocabulary, ignore_index)
            if mask is not None:
                counts = rows != ignore_index
                if token_weight is not None and token_weight.shape == token.shape:
                    counts &= token_weight.reshape(-1) != 0
                _check_allowed(rows, mask, counts.nonzero().squeeze(1))
        return cls(head, hidden.reshape(-1, features), rows, token.shape, ignore_index)

    def per_token(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor that holds one number a token, as rows."""
        check_floating(tensor, name)
        check_shape(tensor, self.shape, name, "one number for each token")
        return tensor.reshape(-1).to(compute_dtype(self.hidden))

    def per_token_or_none(self, tensor: Tensor | None, name: str) -> Tensor | None:
        """The same for an argument that may be left out."""
        return None if tensor is None else self.per_token(tensor, name)

    def reduce(self, objective: PolicyObjective, reduction: str) -> Tensor:
        """The loss: per token, or summed or averaged with the gradient on the way forward."""
        where = (self.head, self.hidden, self.token, self.ignore_index)
        if reduction == "none":
            return token_losses(*where, objective).reshape(self.shape)
        if reduction == "sequence":
            return token_losses(*where, objective).reshape(self.shape).sum(-1)
        if reduction == "sum":
            return summed_loss(*where, objective)
        if reduction == "mean":
            count = (self.token != self.ignore_index).sum().clamp_min(1)
            return summed_loss(*where, replace(objective, scale=1.0 / count.double()))
        raise InvalidValueError(
            "`reduction`",
            repr(reduction),
            "'mean', 'sum', 'sequence' or 'none'",
            "choose one of them",
        )


def _check_head(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, softcap: float | None
) -> None:
    check_floating(hidden, "hidden")
    check_floating(weight, "weight")
    if weight.ndim != 2 or weight.shape[0] == 0 or hidden.ndim == 0:
        wrong, name = (hidden, "hidden") if hidden.ndim == 0 else (weight, "weight")
        raise ShapeError(
            f"`{name}`",
            f"shape {list(wrong.shape)}",
            "hidden [*batch, D] and weight [V, D] with V >= 1",
            "the unembedding has one row for each token of the vocabulary",
        )
    if hidden.shape[-1] != weight.shape[1]:
        raise ShapeError(
            "`hidden`",
            f"{hidden.shape[-1]} features",
            f"D = {weight.shape[1]}, the width of weight {list(weight.shape)}",
            "pass the hidden states that the last layer multiplies; the weight is [V, D]",
        )
    if bias is not None:
        check_floating(bias, "bias")
        check_shape(bias, weight.shape[:1], "bias", "one number for each row of weight")
    for tensor, name in ((weight, "weight"), (bias, "bias")):
        if tensor is not None and _autocast(tensor).dtype != _autocast(hidden).dtype:
            raise InvalidTypeError(
                f"`{name}`",
                f"dtype {_short(tensor)}",
                f"{_short(hidden)}, the dtype of hidden",
                f"convert one of them, for instance with {name}.to(hidden.dtype)",
            )
    for number, name in ((temperature, "temperature"), (softcap, "softcap")):
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise InvalidValueError(
                f"`{name}`", f"{number:g}", "a finite number > 0", "choose a positive one"
            )


def _checked_mask(mask: Tensor, batch: torch.Size, vocabulary: int) -> Tensor:
    """The mask as ``[V]``, ``[N, V]`` or sparse CSR ``[N, V]``."""
    if mask.layout == torch.sparse_csr:
        check_shape(
            mask, torch.Size((batch.numel(), vocabulary)), "mask", "a CSR row for each token"
        )
        return mask
    if mask.layout != torch.strided:
        raise InvalidTypeError(
            "`mask`", f"layout {mask.layout}", "a dense or a CSR tensor", "call .to_sparse_csr()"
        )
    check_boolean(mask, "mask")
    if mask.shape == (vocabulary,):
        return mask
    check_shape(
        mask, torch.Size((*batch, vocabulary)), "mask", "one row for each token, or [V] for all"
    )
    return mask.reshape(-1, vocabulary)


def _check_range(token: Tensor, vocabulary: int, ignore_index: int) -> None:
    counts = token[token != ignore_index]
    if counts.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(counts))
    if low < 0 or high >= vocabulary:
        raise InvalidValueError(
            "`token`",
            f"a minimum of {low}" if low < 0 else f"a maximum of {high}",
            f"indices in [0, {vocabulary}), or ignore_index = {ignore_index}",
            f"weight has V = {vocabulary} rows, one for each token",
        )


def _check_allowed(token: Tensor, mask: Tensor, counts: Tensor) -> None:
    """Raise unless the mask allows each token that counts; such a row allows something."""
    for rows in torch.split(counts, max(1, _MASK_ELEMENTS // mask.shape[-1])):
        allowed = mask_rows(mask, rows)
        column = token[rows].unsqueeze(1)
        own = allowed[token[rows]] if allowed.ndim == 1 else allowed.gather(1, column).squeeze(1)
        if not bool(own.all()):
            row = int(rows[~own][0])
            raise InvalidValueError(
                "`token`",
                f"token {int(token[row])} in row {row}, which its mask forbids",
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
