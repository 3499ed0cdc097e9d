"""Bernoulli: one coin with probability p = P(y = 1), or log-odds l = log(p/(1 − p))."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions.utils import broadcast_all, lazy_property

from eligibility.distributions._drop_in import NO_SHAPE, DropIn, one_of, safe_log
from eligibility.ops import _plain
from eligibility.ops.sampling import fine_dtype
from eligibility.shapes import (
    check_floating,
    check_log_odds,
    check_sample_shape,
    check_unit_interval,
    check_whole,
)

Self = TypeVar("Self", bound="Bernoulli")


class Bernoulli(DropIn, torch.distributions.Bernoulli):
    """Williams' unit: torch's Bernoulli without the clamp, exact in its tails.

    Args:
        probs: p in [0, 1], a number or shape ``[*batch]``.
        logits: The log-odds l, a number or shape ``[*batch]``; ±∞ make the outcome certain.
        validate_args: Whether to check values; default: torch's setting. Shapes are always checked.

    Raises:
        InvalidTypeError, InvalidValueError: The arguments make no distribution.

    Notes:
        The gradient of ``log_prob`` is the exact ``(y − p)/(p (1 − p))``, ±∞ for an impossible
        outcome, or ``y − σ(l)``, computed as σ(−l) for y = 1. ``entropy`` and KL
        leave out the infinite one-sided derivative of p log p at p = 0, so that no NaN arises.

    Example:
        >>> unit = Bernoulli(logits=torch.tensor(20.0, requires_grad=True))
        >>> unit.eligibility(torch.tensor(1.0))["logits"]
        tensor(2.0612e-09, grad_fn=...)

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (5) and (7).
    """

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        given, from_probs = one_of(probs, logits)
        (given,) = broadcast_all(given)
        name = "probs" if from_probs else "logits"
        check_floating(given, name)
        self.given_parameter = name
        self._param = given
        self._describe(given.shape, torch.Size(), validate_args)
        if self._may_check(given):
            (check_unit_interval if from_probs else check_log_odds)(given.detach(), name)

    def expand(self: Self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution for a larger batch, without new memory."""
        new: Self = type(self).__new__(type(self)) if _instance is None else _instance
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
        """``[*batch, 2]``: log(1 − p) and log p."""
        return torch.stack(log_failure_and_success(self._wide, self._is_from_probs), -1)

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw 0. and 1., shape ``[*sample_shape, *batch]``; never what has probability 0."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            probs = self._wide if self._is_from_probs else torch.sigmoid(self._wide)
            probs = probs.to(fine_dtype(probs.device))
            drawn = torch.rand(shape, dtype=probs.dtype, device=probs.device, generator=generator)
            return (drawn < probs).to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), shape of ``value``.

        Args:
            value: 0 or 1, of any dtype, shape ``[*samples, *batch]``, or one for the whole batch.

        Raises:
            ShapeError, InvalidValueError: ``value`` holds no such outcomes.
        """
        self._check_value(value)
        one, wide = value == 1, self._wide
        if self._is_from_probs:
            success, failure = torch.where(one, wide, 1.0), torch.where(one, 0.0, wide)
            log_prob = success.log() + torch.log1p(-failure)
        else:
            log_prob = torch.nn.functional.logsigmoid(torch.where(one, wide, -wide))
        return log_prob.to(self._param.dtype)

    def _check_value(self, value: Tensor) -> None:
        check_sample_shape(value, self._batch_shape, self._event_shape)
        if self._may_check(value):
            check_whole(value, "value", maximum=1)

    def entropy(self) -> Tensor:
        """−p log p − (1 − p) log(1 − p) in nats, shape ``[*batch]``."""
        return _plain.entropy(self._log_pmf).to(self._param.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.given_parameter}: {list(self._batch_shape)})"


def log_failure_and_success(parameter: Tensor, from_probs: bool) -> tuple[Tensor, Tensor]:
    """log(1 − p) and log p of a coin; neither by a subtraction that loses it, and no NaN."""
    if not from_probs:
        logsigmoid = torch.nn.functional.logsigmoid
        return logsigmoid(-parameter), logsigmoid(parameter)
    possible = parameter < 1
    failure = torch.log1p(-torch.where(possible, parameter, 0.0))
    return torch.where(possible, failure, float("-inf")), safe_log(parameter)
