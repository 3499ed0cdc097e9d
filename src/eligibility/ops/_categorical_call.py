"""The arguments of an operation over logits: checked, and the statistics of the rows that count."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.ops import _plain
from eligibility.ops._statistics import statistics
from eligibility.shapes import (
    are_values_readable,
    check_allowed,
    check_categories,
    check_floating,
    check_integer,
    check_mask,
    check_mask_rows,
    check_shape,
)


@dataclass(frozen=True)
class CategoricalCall:
    """One call: the logits as they go into the softmax, and which rows count.

    Attributes:
        logits: After soft-cap and temperature, shape ``[*batch, K]``.
        action: Indices, 0 where a row is ignored, shape ``[*batch]``.
        mask: As it was given.
        kept: False where a row is ignored, shape ``[*batch]``; None: none is.
    """

    logits: Tensor
    action: Tensor
    mask: Tensor | None
    kept: Tensor | None

    @classmethod
    def check(
        cls,
        logits: Tensor,
        action: Tensor,
        mask: Tensor | None,
        temperature: float,
        softcap: float | None,
        ignore_index: int | None,
    ) -> CategoricalCall:
        """Raise for what does not fit together; what serves the rows checks the actions' range."""
        logits = checked_logits(logits, mask, temperature, softcap)
        check_integer(action, "action")
        check_shape(action, logits.shape[:-1], "action", "one index for each row of logits")
        kept = None
        if ignore_index is not None:
            kept = action != ignore_index
            action = torch.where(kept, action, 0)
        return cls(logits, action, mask, kept)

    def counting(self, weight: Tensor | None) -> Tensor | None:
        """Which rows count: neither ignored nor of weight 0; None: all."""
        if weight is None:
            return self.kept
        return weight != 0 if self.kept is None else self.kept & (weight != 0)

    def statistics(self, with_entropy: bool, counts: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """log π(a) and, if wanted, the entropy: 0, with a gradient of 0, in rows that do not count.

        Raises:
            InvalidValueError: A row that counts has an illegal action, or a row allows nothing.
        """
        log_prob, entropy = statistics(self.logits, self.action, self.mask, with_entropy)
        self.check_possible(log_prob, counts)
        if counts is None:
            return log_prob, entropy
        entropy = None if entropy is None else torch.where(counts, entropy, 0.0)
        return torch.where(counts, log_prob, 0.0), entropy

    def log_normalizer(self) -> Tensor:
        """log Σ exp z of the legal actions, shape ``[*batch]``; its gradient is π."""
        wide = self.logits.to(_plain.compute_dtype(self.logits))
        return torch.logsumexp(_plain.masked(wide, self.mask), -1)

    def check_possible(self, log_prob: Tensor, counts: Tensor | None) -> None:
        """Find the cause if a mask leaves a log-probability that is not finite."""
        mask = self.mask
        if mask is None or not are_values_readable(log_prob) or bool(log_prob.isfinite().all()):
            return
        check_mask_rows(mask)
        rows = mask.expand(*self.action.shape, mask.shape[-1])
        if counts is not None:
            # Where nothing counts, the first legal action stands for whatever was given.
            legal = rows.to(torch.uint8).argmax(-1)
            check_allowed(torch.where(counts, self.action, legal), rows)
        else:
            check_allowed(self.action, rows)


def checked_logits(
    logits: Tensor,
    mask: Tensor | None,
    temperature: float,
    softcap: float | None,
    name: str = "logits",
) -> Tensor:
    """The logits as they go into the softmax: ``softcap · tanh(z / softcap) / temperature``."""
    check_floating(logits, name)
    check_categories(logits, name)
    if mask is not None:
        check_mask(mask, logits, of=name)
    for number, argument in ((temperature, "temperature"), (softcap, "softcap")):
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise InvalidValueError(
                f"`{argument}`", f"{number:g}", "a finite number > 0", "choose a positive one"
            )
    if softcap is not None:
        logits = _plain.softcapped(logits, softcap)
    return logits if temperature == 1.0 else _plain.cooled(logits, temperature)
