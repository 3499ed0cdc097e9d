"""Categorical: one draw from K categories."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions.utils import lazy_property

from eligibility.distributions._drop_in import (
    NO_SHAPE,
    DropIn,
    one_of,
    rounded,
    safe_log,
    size_of_draw,
)
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import plain
from eligibility.ops.sampling import draw_categories
from eligibility.rules.rule import read_parameter
from eligibility.shapes import (
    are_values_readable,
    check_action,
    check_allowed,
    check_categories,
    check_device,
    check_dtype,
    check_logits,
    check_mask,
    check_mask_rows,
    check_probs,
    check_sample_shape,
)


class Categorical(DropIn, torch.distributions.Categorical):
    r"""``P(k) = w_k/Σw`` or ``softmax(z)_k``: torch's Categorical, exact and with a mask.

    Args:
        probs: The weights w >= 0, shape ``[*batch, K]``; they need not sum to 1.
        logits: The scores z, shape ``[*batch, K]``; −∞ forbids a category.
        mask: True where a category is legal, ``[*batch, K]`` or ``[K]``. Illegal ones have
            probability 0, and a gradient of exactly 0.
        validate_args: Whether to check values; default: torch's setting. Shapes and dtypes are
            always checked.

    Attributes:
        weights: The weights as they were given (0 where illegal); None if logits were.
        probs: w/Σw, shape ``[*batch, K]``.
        logits: log(w/Σw), shape ``[*batch, K]``; −∞, never a clamped number, where P = 0.
        mask: As it was given, or None.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The arguments make no distribution.

    Notes:
        ``log_prob`` of given weights is ``log w_a − log Σw``: its gradient at ``probs`` is the
        exact ``[k = a]/w_k − 1/Σw``, also for w_a = 0 and for weights × 100. ``logits``,
        ``entropy`` and KL leave out the infinite one-sided derivative of w log w at a weight of
        0, so that no NaN arises. Half precision is computed in float32 inside.

    Example:
        >>> policy = Categorical(probs=torch.tensor([0.0, 3.0, 7.0]))
        >>> policy.log_prob(torch.tensor(0))
        tensor(-inf)
        >>> policy.eligibility(torch.tensor(1))["probs"]
        tensor([-0.1000,  0.2333, -0.1000])
        >>> legal = torch.tensor([True, False, True])
        >>> Categorical(logits=torch.zeros(3), mask=legal).probs
        tensor([0.5000, 0.0000, 0.5000])
    """

    weights: Tensor | None
    mask: Tensor | None
    _total: Tensor  # Σw, shape [*batch]; only with weights

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given, from_probs = one_of(probs, logits)
        name = "probs" if from_probs else "logits"
        check_dtype(given, name)
        check_categories(given, name)
        if mask is not None:
            check_mask(mask, given, of=name)
            check_device(mask, given, "mask", name)
        self.given_parameter = name
        self._param = given
        if from_probs:
            self.weights = given if mask is None else torch.where(mask, given, 0.0)
            self._total = self.weights.sum(-1, dtype=plain.compute_dtype(given))
        else:
            self.weights = None
            self._log_pmf = plain.log_pmf(given, mask)
        self.mask = mask
        self._num_events = given.shape[-1]
        self._describe(given.shape[:-1], torch.Size(), validate_args)
        if self._may_check(given):
            self._check_parameter()

    def _check_parameter(self) -> None:
        """One number for each row tells whether all is well; if not, find out what is wrong."""
        if self._param.numel() == 0:
            return
        if self.weights is None:
            # A NaN, an infinity or a row of −∞ makes NaN of each log-probability of its row.
            total = self._log_pmf.detach().select(-1, 0).sum().item()
            sound = not math.isnan(total)
        else:
            low = self.weights.detach().min().item()
            least, most = (x.item() for x in self._total.detach().aminmax())
            sound = low >= 0 and least > 0 and most < math.inf
        if sound:
            return
        if self.mask is not None:
            check_mask_rows(self.mask)
        if self.weights is None:
            check_logits(plain.masked(self._param.detach(), self.mask))
        else:
            check_probs(self.weights.detach())
        raise InvalidValueError(
            f"`{self.given_parameter}`",
            "a row that cannot be normalised",
            "numbers whose sum is finite",
            "divide the weights by their maximum",
        )

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        shape = torch.Size((*batch_shape, self._num_events))
        new.given_parameter = self.given_parameter
        new._param = self._param.expand(shape)
        new.weights = None
        if self.weights is None:
            new._log_pmf = self._log_pmf.expand(shape)
        else:
            new.weights = self.weights.expand(shape)
            new._total = self._total.expand(batch_shape)
        new.mask = None if self.mask is None else self.mask.expand(shape)
        new._num_events = self._num_events

    @lazy_property
    def _log_pmf(self) -> Tensor:
        """log π in the dtype to compute in."""
        return self._log_pmf_in(self._total.dtype)

    def _log_pmf_in(self, dtype: torch.dtype) -> Tensor:
        """log π of what was given, computed in ``dtype``."""
        if self.weights is None:
            return plain.log_pmf(self._param.to(dtype), self.mask)
        wide = self.weights.to(dtype)
        return safe_log(wide) - wide.sum(-1, keepdim=True).log()

    @lazy_property
    def logits(self) -> Tensor:
        return rounded(self._log_pmf, self._param.dtype)

    @lazy_property
    def probs(self) -> Tensor:
        if self.weights is None:
            return rounded(self._log_pmf.exp(), self._param.dtype)
        return rounded(self.weights / self._total.unsqueeze(-1), self._param.dtype)

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw indices, shape ``[*sample_shape, *batch]``; never one of probability 0."""
        shape = size_of_draw(sample_shape, generator, self._param.device)
        return draw_categories(self._to_draw_from(), shape, generator)

    def _to_draw_from(self) -> Tensor:
        """Weights that can be drawn from: from NaN nothing can be, validated or not."""
        if not self._validate_args and are_values_readable(self._param):
            self._check_parameter()
        return self._log_pmf.detach().exp() if self.weights is None else self.weights

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), shape of ``value``.

        Args:
            value: Indices in [0, K), shape ``[*samples, *batch]``, or one for the whole batch.

        Raises:
            ShapeError, InvalidTypeError, InvalidValueError: ``value`` holds no such indices.
        """
        check_sample_shape(value, self._batch_shape, self._event_shape)
        check_dtype(value, "value", "integer")  # the look-up itself finds an index out of range
        if value.ndim == 0:
            value = value.expand(self._batch_shape)
        if self.weights is None:
            log_prob = self._at(self._log_pmf, value)
        else:
            chosen = rounded(self._at(self.weights, value), self._total.dtype)
            log_prob = chosen.log() - self._total.log()
        if self.mask is not None and self._may_check(log_prob) and _has_impossible(log_prob):
            check_allowed(value, self.mask, "value")
        return rounded(log_prob, self._param.dtype)

    def _check_value(self, value: Tensor) -> None:
        check_sample_shape(value, self._batch_shape, self._event_shape)
        check_dtype(value, "value", "integer")
        if self._may_check(value):
            check_action(value, self._num_events, "value")
            if self.mask is not None:
                check_allowed(value, self.mask, "value")

    def _at(self, rows: Tensor, value: Tensor) -> Tensor:
        if value.shape != self._batch_shape:
            rows = rows.expand(*value.shape, self._num_events)
        if value.device.type != "cpu" and self._may_check(value):
            check_action(value, self._num_events, "value")
        try:
            return plain.at_action(rows, value)
        except (RuntimeError, IndexError):
            # On a CPU torch finds an index out of range itself: the check costs nothing before.
            if are_values_readable(value):
                check_action(value, self._num_events, "value")
            raise

    def entropy(self) -> Tensor:
        """−Σ π log π in nats, shape ``[*batch]``; 0 log 0 = 0."""
        return rounded(plain.entropy(self._log_pmf), self._param.dtype)

    def __repr__(self) -> str:
        masked = "" if self.mask is None else ", masked"
        return f"{type(self).__name__}({self.given_parameter}: {list(self._param.shape)}{masked})"


def _has_impossible(log_prob: Tensor) -> bool:
    return bool((log_prob == float("-inf")).any())


@read_parameter.register
def _(dist: Categorical, name: str) -> Tensor:
    given = dist.weights if name == "probs" else None
    return getattr(dist, name) if given is None else given
