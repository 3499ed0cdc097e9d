"""Multinomial: n draws from K categories, y_k of them k."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.arguments import check_trials
from eligibility.distributions._coin import log_failure_and_success
from eligibility.distributions._draws import Draws
from eligibility.distributions._drop_in import NO_SHAPE, check_full_shape, size_of_draw
from eligibility.distributions.binomial import log_mass_table
from eligibility.distributions.masked_categorical import Categorical
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import plain
from eligibility.ops.sampling import draw_counts
from eligibility.rules.rule import read_parameter
from eligibility.shapes import check_counts, check_shape, check_whole, double_precision


class Multinomial(Draws, torch.distributions.Multinomial):
    """torch's Multinomial with a mask and a ``total_count`` that may differ from row to row.

    Args:
        total_count: n >= 0, an integer, or an integer-valued tensor ``[*batch]``.
        probs: The weights w >= 0, shape ``[*batch, K]``; they need not sum to 1.
        logits: The scores z, shape ``[*batch, K]``; −∞ forbids a category.
        mask: True where a category is legal, ``[*batch, K]`` or ``[K]``.
        validate_args: Whether to check values; default: torch's setting. Shapes are always checked.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: The arguments make no distribution.

    Notes:
        The gradient of ``log_prob`` is ``y − n softmax(z)``, or ``y_k/w_k − n/Σw``; see
        `eligibility.Categorical` for what holds at a weight of 0. The factorials of large counts
        cancel: everything is computed in float64 and rounded once.

    Example:
        >>> counts = torch.tensor([[2, 1], [0, 4]])
        >>> dist = Multinomial(torch.tensor([3, 4]), logits=torch.zeros(2, 2))
        >>> dist.log_prob(counts).exp()
        tensor([0.3750, 0.0625])
    """

    _categorical: Categorical
    total_count: int | Tensor  # type: ignore[assignment]  # torch's is an integer only

    def __init__(
        self,
        total_count: int | Tensor = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        check_trials(total_count)
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, mask=mask, validate_args=validate_args)
        batch_shape = self._categorical.batch_shape
        if isinstance(total_count, Tensor) and total_count.ndim > 0:
            check_shape(total_count, batch_shape, "total_count", "the batch shape, or a number")
        self._describe(batch_shape, self._categorical.param_shape[-1:], validate_args)
        count = self._count
        if self._may_check(count):
            check_whole(count, "total_count")

    @property
    def _count(self) -> Tensor:
        return torch.as_tensor(self.total_count, device=self._param.device)

    @property
    def mean(self) -> Tensor:
        """n π, shape ``[*batch, K]``."""
        return self._count.unsqueeze(-1) * self.probs

    @property
    def variance(self) -> Tensor:
        """n π (1 − π), shape ``[*batch, K]``."""
        return self.mean * (1 - self.probs)

    def _expand_into(self, new: Any, batch_shape: torch.Size) -> None:
        super()._expand_into(new, batch_shape)
        count = self.total_count
        new.total_count = count.expand(batch_shape) if isinstance(count, Tensor) else count

    def sample(
        self, sample_shape: Any = NO_SHAPE, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts, shape ``[*sample_shape, *batch, K]``; 0 where the probability is."""
        weights = self._categorical._to_draw_from()
        count = self._count.expand(self._batch_shape)
        shape = size_of_draw(sample_shape, generator, self._param.device)
        drawn = draw_counts(weights, count, shape, generator)
        return drawn.to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), shape ``[*samples, *batch]``.

        Args:
            value: Counts that sum to ``total_count``, shape ``[*samples, *batch, K]``.

        Raises:
            ShapeError, InvalidValueError: ``value`` holds no such counts.
        """
        self._check_value(value)
        base, fine = self._categorical, double_precision(self._param.device)
        counts = value.to(fine)
        if base.weights is None:
            powers = torch.where(counts == 0, 0.0, counts * base._log_pmf_in(fine)).sum(-1)
        else:
            weights = base.weights.to(fine)
            chosen = torch.where(counts == 0, 1.0, weights).log()
            powers = (counts * chosen).sum(-1) - counts.sum(-1) * weights.sum(-1).log()
        orders = torch.lgamma(counts.sum(-1) + 1) - torch.lgamma(counts + 1).sum(-1)
        return (orders + powers).to(self._param.dtype)

    def _check_value(self, value: Tensor) -> None:
        check_full_shape(self, value)
        if not self._may_check(value):
            return
        check_counts(value, self.total_count, "value")
        if self.mask is not None and bool(((value > 0) & ~self.mask).any()):
            raise InvalidValueError(
                "`value`",
                "a count > 0 of a category that the mask forbids",
                "counts of 0 there",
                "sample from the masked distribution",
            )

    def entropy(self) -> Tensor:
        """The entropy in nats, shape ``[*batch]``: n H(π) − log n! + Σ_k E[log y_k!]."""
        log_pmf = self._categorical._log_pmf_in(double_precision(self._param.device))
        count = self._count.to(log_pmf.dtype).expand(self._batch_shape)
        failure, _ = log_failure_and_success(log_pmf.exp(), from_probs=True)
        table = log_mass_table(count.unsqueeze(-1).expand(failure.shape), failure, log_pmf)
        outcomes = torch.arange(table.shape[0], dtype=count.dtype, device=count.device)
        outcomes = outcomes.reshape(-1, *(1 for _ in failure.shape))
        orders = (table.exp() * torch.lgamma(outcomes + 1)).sum((0, -1))
        result = count * plain.entropy(log_pmf) - torch.lgamma(count + 1) + orders
        return result.to(self._param.dtype)


@read_parameter.register
def _(dist: Multinomial, name: str) -> Any:
    return getattr(dist, name) if name == "total_count" else read_parameter(dist._categorical, name)
