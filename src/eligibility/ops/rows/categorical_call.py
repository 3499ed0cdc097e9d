"""The arguments of an operation over logits: checked, and the statistics of the rows that count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from eligibility.arguments import check_tensors
from eligibility.errors import InvalidTypeError
from eligibility.ops.backends import cpu, fused_rows, plain, triton
from eligibility.ops.backends.triton import Rows
from eligibility.scalars import check_index, check_numbers
from eligibility.shapes import (
    FLOATING,
    TENSOR_TYPES,
    are_values_readable,
    check_action,
    check_allowed,
    check_categories,
    check_dtype,
    check_local,
    check_mask,
    check_mask_rows,
    check_not_negative,
    check_shape,
)


@dataclass(frozen=True)
class CategoricalCall:
    """One call: the logits, how they go into the softmax, what was chosen, and which rows count."""

    raw: Tensor  # the logits as they were given, shape ``[*batch, K]``
    # Indices, 0 where a row is ignored, shape ``[*samples, *batch]``; None: counts.
    action: Tensor | None
    # How often each category was chosen, shape ``[*batch, K]``, instead of actions.
    counts: Tensor | None
    mask: Tensor | None
    kept: Tensor | None  # False where a row is ignored, shape of ``action``; None: none is
    temperature: float
    softcap: float | None

    @classmethod
    def check(
        cls,
        logits: Tensor,
        action: Tensor | None,
        counts: Tensor | None,
        mask: Tensor | None,
        temperature: float,
        softcap: float | None,
        ignore_index: int | None,
    ) -> CategoricalCall:
        """Raise for what does not fit together; what serves the rows checks the actions' range."""
        check_logits_arguments(logits, mask, temperature, softcap)
        check_tensors(logits, "logits", action=action, counts=counts)
        kept = None
        if action is None:
            _check_counts(counts, logits, ignore_index)
        else:
            if action.shape != logits.shape[:-1] or counts is not None:
                _check_action(action, counts, logits.shape[:-1])
            if ignore_index is not None:
                check_index(ignore_index, "ignore_index")
                kept = torch.ne(action, ignore_index)
                action = torch.where(kept, action, 0)
        return cls(logits, action, counts, mask, kept, temperature, softcap)

    @property
    def shape(self) -> torch.Size:
        """One number for each sample of each row."""
        return self.raw.shape[:-1] if self.action is None else self.action.shape

    def is_native(self, *columns: Tensor | None) -> bool:
        """Whether the native kernel can take the call, and these: there is something to take."""
        if self.raw.numel() == 0 or (self.action is not None and self.action.numel() == 0):
            return False
        return cpu.serves(self.raw, self.action, self.counts, self.mask, self.kept, *columns)

    @property
    def logits(self) -> Tensor:
        """The logits as they go into the softmax."""
        return plain.shaped(self.raw, self.temperature, self.softcap)

    def counting(self, weight: Tensor | None) -> Tensor | None:
        """Which rows count: neither ignored nor of weight 0; None: all."""
        if weight is None:
            return self.kept
        return weight != 0 if self.kept is None else self.kept & (weight != 0)

    def row_is_kept(self) -> Tensor | None:
        """Which rows of logits have a sample that is not ignored, ``[*batch]``; None: all."""
        if self.kept is None or self.shape == self.raw.shape[:-1]:
            return self.kept
        return self.kept.flatten(0, self.kept.ndim - self.raw.ndim).any(0)

    def rows(self) -> int:
        """How many samples are not ignored; 1 for none, whose sum is 0. It reads numbers."""
        if self.kept is not None:
            return max(1, int(self.kept.sum()))
        return max(1, (self.raw.shape[:-1] if self.action is None else self.action.shape).numel())

    def chosen(self, log_probs: Tensor) -> Tensor:
        """The log-probability of what was chosen, from those of all categories."""
        if self.action is not None:
            rows = log_probs.expand(*self.action.shape, log_probs.shape[-1])
            return plain.at_action(rows, self.action)
        assert self.counts is not None  # one of the two is given
        counts = self.counts.to(log_probs.dtype)
        return (counts * torch.where(counts == 0, 0.0, log_probs)).sum(-1)

    def log_normalizer(self) -> Tensor:
        """log Σ exp z of the legal actions, shape ``[*batch]``; its gradient is π."""
        if self.fused is not None:
            return self.fused.log_normalizer.reshape(self.raw.shape[:-1])
        wide = self.logits.to(plain.compute_dtype(self.logits))
        return torch.logsumexp(plain.masked(wide, self.mask), -1)

    @property
    def is_fusable(self) -> bool:
        """Whether the Triton kernels can take the call: they know one action for each row."""
        if not triton.serves(self.raw) or self.counts is not None:
            return False
        is_single = self.shape == self.raw.shape[:-1] and self.shape.numel() > 0
        return is_single and fused_rows.serves(self.raw)

    @property
    def fused(self) -> fused_rows.RowStatistics | None:
        """The statistics by the Triton kernels, ``[N]``; of no action where none is given."""
        return self._fused if self.is_fusable else None

    @cached_property  # torch.compile cannot trace one; it never comes here
    def _fused(self) -> fused_rows.RowStatistics:
        return fused_rows.statistics(self.kernel_rows())

    def kernel_rows(self, reference: Tensor | None = None) -> Rows:
        """The rows without leading axes, with the logits of a reference policy."""
        categories, action = self.raw.shape[-1], self.action
        if action is None:
            action = self.raw.new_zeros(self.raw.shape[:-1], dtype=torch.int64)
        elif action.is_cpu:
            check_action(action, categories)
        return Rows(
            self.raw.reshape(-1, categories),
            action.reshape(-1),
            None if self.mask is None else self.mask.reshape(-1, categories),
            self.temperature,
            self.softcap,
            None if reference is None else reference.reshape(-1, categories),
        )

    def check_possible(self, log_prob: Tensor, counts: Tensor | None) -> None:
        """Find the cause if a mask leaves a log-probability that is not finite."""
        if self.mask is None or not are_values_readable(log_prob):
            return
        if not bool(log_prob.isfinite().all()):
            self.explain_impossible(counts)

    def explain_impossible(self, counts: Tensor | None) -> None:
        """Raise if it is the mask that makes something impossible that counts."""
        mask = self.mask
        if mask is None:
            return
        check_mask_rows(mask)
        rows = mask.expand(*self.shape, mask.shape[-1])
        if self.action is None:
            assert self.counts is not None
            chosen = (self.counts != 0) & ~rows
            if counts is not None:
                chosen = chosen & counts.unsqueeze(-1)
            if bool(chosen.any()):
                check_allowed(
                    chosen.to(torch.uint8).argmax(-1)[chosen.any(-1)], rows[chosen.any(-1)]
                )
        elif counts is not None:
            # Where nothing counts, the first legal action stands for whatever was given.
            legal = rows.to(torch.uint8).argmax(-1)
            check_allowed(torch.where(counts, self.action, legal), rows)
        else:
            check_allowed(self.action, rows)


def check_logits_arguments(
    logits: Tensor,
    mask: Tensor | None,
    temperature: float,
    softcap: float | None,
    name: str = "logits",
) -> None:
    """Raise for logits, a mask, a temperature or a soft-cap that do not fit together."""
    if not _is_usual(logits):
        check_dtype(logits, name)
        check_categories(logits, name)
        check_local(logits, name)
    if mask is not None:
        check_tensors(logits, name, mask=mask)
        if mask.shape != logits.shape:
            check_mask(mask, logits, of=name)
    check_numbers(temperature=temperature, softcap=softcap)


def _is_usual(logits: object) -> bool:
    """Whether the three checks of logits above find nothing to say."""
    return (
        type(logits) in TENSOR_TYPES
        and isinstance(logits, Tensor)
        and logits.dtype in FLOATING
        and logits.layout is torch.strided
        and not logits.is_nested
        and logits.ndim > 0
        and logits.shape[-1] > 0
    )


def _check_action(action: Tensor, counts: Tensor | None, batch: torch.Size) -> None:
    if counts is not None:
        raise InvalidTypeError(
            "`counts`", "both counts and an action", "either", "pass None for the action"
        )
    own = action.ndim - len(batch)
    if own < 0 or action.shape[own:] != batch:
        why = "one index for each row of logits; axes for samples may stand in front"
        check_shape(action, batch, "action", why)


def _check_counts(counts: Tensor | None, logits: Tensor, ignore_index: int | None) -> None:
    if counts is None:
        raise InvalidTypeError(
            "`action`", "None, without counts", "indices or counts", "pass one of the two"
        )
    check_shape(counts, logits.shape, "counts", "one number for each logit")
    if ignore_index is not None:
        raise InvalidTypeError(
            "`ignore_index`",
            "both ignore_index and counts",
            "an action",
            "pass a weight of 0 instead",
        )
    if are_values_readable(counts):
        check_not_negative(counts, "counts")
