"""Binomial: n coins with the same probability p, y of them 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions.utils import broadcast_all

from eligibility.arguments import check_trials
from eligibility.distributions._coin import Coin, log_failure_and_success
from eligibility.distributions._drop_in import NO_SHAPE, size_of_draw
from eligibility.ops.backends import plain
from eligibility.shapes import check_sample_shape, check_shape, check_whole


class Binomial(Coin, torch.distributions.Binomial):
    """n coins of `eligibility.Bernoulli`; torch's Binomial, exact at p = 0 and 1.

    Args:
        total_count: n >= 0, an integer or shape ``[*batch]``; it may differ from row to row.
        probs: p in [0, 1], a number or shape ``[*batch]``.
        logits: The log-odds l, a number or shape ``[*batch]``.
        validate_args: Whether to check values; default: torch's setting. Shapes are always checked.

    Raises:
        InvalidTypeError, InvalidValueError: The arguments make no distribution.

    Notes:
        The gradient of ``log_prob`` is the exact ``(y − n p)/(p (1 − p))``, or ``y − n σ(l)``;
        a count of 0 contributes exactly 0, also where p = 0. The factorials of large counts cancel:
        everything is computed in float64 and rounded once.

    Example:
        >>> p = torch.tensor(0.0, requires_grad=True)
        >>> Binomial(5, probs=p).log_prob(torch.tensor(0.0)).backward()
        >>> p.grad
        tensor(-5.)
    """

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        check_trials(total_count)
        given = self._take(probs, logits)
        if isinstance(total_count, Tensor) and total_count.ndim > 0 and given.ndim > 0:
            why = f"the shape of {self.given_parameter}, or a number"
            check_shape(total_count, given.shape, "total_count", why)
        count, self._param = broadcast_all(total_count, given)
        self.total_count = count.type_as(self._param)
        self._describe(self._param.shape, torch.Size(), validate_args)
        if self._may_check(self._param, count):
            check_whole(count, "total_count")
            self._check_parameter()

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        super()._expand_into(new, batch_shape)
        new.total_count = self.total_count.expand(batch_shape)

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts, shape ``[*sample_shape, *batch]``."""
        shape = self._extended_shape(size_of_draw(sample_shape, generator, self._param.device))
        with torch.no_grad():
            probs = self._chance
            count = self.total_count.to(probs.dtype)
            drawn = torch.binomial(count.expand(shape), probs.expand(shape), generator=generator)
            return drawn.to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), shape of ``value``.

        Args:
            value: Counts in [0, n], shape ``[*samples, *batch]``, or one for the whole batch.

        Raises:
            ShapeError, InvalidValueError: ``value`` holds no such counts.
        """
        self._check_value(value)
        fine = self._fine
        ones = value.to(fine.dtype)
        zeros = self.total_count.to(fine.dtype) - ones
        if self._is_from_probs:
            success = torch.where(ones == 0, 1.0, fine).log()
            failure = torch.log1p(-torch.where(zeros == 0, 0.0, fine))
        else:
            failure, success = log_failure_and_success(fine, from_probs=False)
        return log_mass(ones, zeros, failure, success).to(self._param.dtype)

    def _check_value(self, value: Tensor) -> None:
        check_sample_shape(value, self._batch_shape, self._event_shape)
        if self._may_check(value):
            check_whole(value, "value", maximum=self.total_count)

    def entropy(self) -> Tensor:
        """−Σ P log P over 0 … n in nats, shape ``[*batch]``; n may differ from row to row."""
        failure, success = self._log_pmf.unbind(-1)
        table = log_mass_table(self.total_count.to(failure.dtype), failure, success)
        return plain.entropy(table.movedim(0, -1)).to(self._param.dtype)


def log_mass(ones: Tensor, zeros: Tensor, failure: Tensor, success: Tensor) -> Tensor:
    """log P of ``ones`` successes and ``zeros`` failures, from log p and log(1 − p); 0 · ∞ = 0."""
    orders = torch.lgamma(ones + zeros + 1) - torch.lgamma(ones + 1) - torch.lgamma(zeros + 1)
    powers = torch.where(ones == 0, 0.0, ones * success)
    return orders + powers + torch.where(zeros == 0, 0.0, zeros * failure)


def log_mass_table(count: Tensor, failure: Tensor, success: Tensor) -> Tensor:
    """log P of 0, 1, …, max n successes on the first axis; −∞ beyond the n of a row."""
    top = int(count.max()) if count.numel() else 0
    outcomes = torch.arange(top + 1, dtype=count.dtype, device=count.device)
    outcomes = outcomes.reshape(-1, *(1 for _ in count.shape))
    ones = torch.minimum(outcomes, count)
    mass = log_mass(ones, count - ones, failure, success)
    return torch.where(outcomes > count, float("-inf"), mass)
