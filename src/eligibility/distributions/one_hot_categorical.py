"""OneHotCategorical: one draw from K categories, as a vector with a single 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.distributions._draws import Draws
from eligibility.distributions._drop_in import NO_SHAPE, check_full_shape
from eligibility.distributions.masked_categorical import Categorical
from eligibility.shapes import check_counts


class OneHotCategorical(Draws, torch.distributions.OneHotCategorical):
    """torch's OneHotCategorical, exact and with a mask; see `eligibility.Categorical`.

    Args:
        probs: The weights w >= 0, shape ``[*batch, K]``; they need not sum to 1.
        logits: The scores z, shape ``[*batch, K]``; −∞ forbids a category.
        mask: True where a category is legal, ``[*batch, K]`` or ``[K]``.
        validate_args: Whether to check values; default: torch's setting. Shapes are always checked.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The arguments make no distribution.

    Example:
        >>> policy = OneHotCategorical(logits=torch.zeros(4))
        >>> policy.eligibility(torch.tensor([1, 0, 0, 0]))["logits"]
        tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    """

    _categorical: Categorical

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits, mask=mask, validate_args=validate_args)
        event_shape = self._categorical.param_shape[-1:]
        self._describe(self._categorical.batch_shape, event_shape, validate_args)

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw one-hot vectors, shape ``[*sample_shape, *batch, K]``."""
        drawn = self._categorical.sample(sample_shape, generator=generator)
        return torch.nn.functional.one_hot(drawn, self._event_shape[0]).to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), shape ``[*samples, *batch]``.

        Args:
            value: One-hot vectors, shape ``[*samples, *batch, K]``.

        Raises:
            ShapeError, InvalidValueError: ``value`` holds no such vectors.
        """
        self._check_one_hot(value)
        return self._categorical.log_prob(value.argmax(-1))

    def _check_one_hot(self, value: Tensor) -> None:
        check_full_shape(self, value)
        if self._may_check(value):
            check_counts(value, 1, "value")

    def _check_value(self, value: Tensor) -> None:
        self._check_one_hot(value)
        if self._may_check(value):
            self._categorical._check_value(value.argmax(-1))
