"""Bernoulli: one coin with probability p = P(y = 1), or log-odds l = log(p/(1 − p))."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.distributions._coin import Coin
from eligibility.distributions._drop_in import NO_SHAPE, size_of_draw
from eligibility.ops.backends import plain
from eligibility.shapes import check_sample_shape, check_whole


class Bernoulli(Coin, torch.distributions.Bernoulli):
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
        self._param = self._take(probs, logits)
        self._describe(self._param.shape, torch.Size(), validate_args)
        if self._may_check(self._param):
            self._check_parameter()

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw 0. and 1., shape ``[*sample_shape, *batch]``; never what has probability 0."""
        shape = self._extended_shape(size_of_draw(sample_shape, generator, self._param.device))
        with torch.no_grad():
            probs = self._chance
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
        one, wide = value == 1, self._param.to(plain.compute_dtype(self._param))
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
        return plain.entropy(self._log_pmf).to(self._param.dtype)
