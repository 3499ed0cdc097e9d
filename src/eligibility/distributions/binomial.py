"""Binomial: n coins with the same probability p, y of them 1."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions.utils import broadcast_all, lazy_property

from eligibility.distributions._drop_in import NO_SHAPE, DropIn, one_of
from eligibility.distributions.bernoulli import log_failure_and_success
from eligibility.ops import _plain
from eligibility.ops.sampling import fine_dtype
from eligibility.shapes import (
    check_floating,
    check_log_odds,
    check_sample_shape,
    check_unit_interval,
    check_whole,
)

Self = TypeVar("Self", bound="Binomial")


class Binomial(DropIn, torch.distributions.Binomial):
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
        a count of 0 contributes exactly 0, also where p = 0.

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
        given, from_probs = one_of(probs, logits)
        count, given = broadcast_all(total_count, given)
        name = "probs" if from_probs else "logits"
        check_floating(given, name)
        self.total_count = count.type_as(given)
        self.given_parameter = name
        self._param = given
        self._describe(given.shape, torch.Size(), validate_args)
        if self._may_check(given, count):
            check_whole(count, "total_count")
            (check_unit_interval if from_probs else check_log_odds)(given.detach(), name)

    def expand(self: Self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution for a larger batch, without new memory."""
        new: Self = type(self).__new__(type(self)) if _instance is None else _instance
        new.total_count = self.total_count.expand(batch_shape)
        new._param = self._param.expand(batch_shape)
        new.given_parameter = self.given_parameter
        new._describe(torch.Size(batch_shape), torch.Size(), self._validate_args)
        return new

    @property
    def _is_from_probs(self) -> bool:
        return self.given_parameter == "probs"

    @lazy_property
    def logits(self) -> Tensor:
        if not self._is_from_probs:
            return self._param
        return torch.logit(self._wide).to(self._param.dtype)

    @lazy_property
    def probs(self) -> Tensor:
        if self._is_from_probs:
            return self._param
        return torch.sigmoid(self._wide).to(self._param.dtype)

    @property
    def _wide(self) -> Tensor:
        return self._param.to(_plain.compute_dtype(self._param))

    @property
    def _log_pmf(self) -> Tensor:
        """``[*batch, 2]``: log(1 − p) and log p of one coin."""
        return torch.stack(log_failure_and_success(self._wide, self._is_from_probs), -1)

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts, shape ``[*sample_shape, *batch]``."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            probs = self._wide if self._is_from_probs else torch.sigmoid(self._wide)
            probs = probs.to(fine_dtype(probs.device))
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
        wide = self._wide
        ones = value.to(wide.dtype)
        zeros = self.total_count - ones
        if self._is_from_probs:
            success = torch.where(ones == 0, 1.0, wide).log()
            failure = torch.log1p(-torch.where(zeros == 0, 0.0, wide))
        else:
            failure, success = log_failure_and_success(wide, from_probs=False)
        return log_mass(ones, zeros, failure, success).to(self._param.dtype)

    def _check_value(self, value: Tensor) -> None:
        check_sample_shape(value, self._batch_shape, self._event_shape)
        if self._may_check(value):
            check_whole(value, "value", maximum=self.total_count)

    def entropy(self) -> Tensor:
        """−Σ P log P over 0 … n in nats, shape ``[*batch]``; n may differ from row to row."""
        failure, success = self._log_pmf.unbind(-1)
        table = log_mass_table(self.total_count.to(failure.dtype), failure, success)
        return _plain.entropy(table.movedim(0, -1)).to(self._param.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.given_parameter}: {list(self._batch_shape)})"


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
