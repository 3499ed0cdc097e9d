"""Losses of one token as functions of its log-probability and its entropy, and their slopes.

Whatever the loss, its gradient at the logits of a row is fixed by the slopes, one number each:
that is why one product with the unembedding is enough (see ``sweep``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.scalars import check_choice, check_numbers, check_pair


class TokenStatistics(NamedTuple):
    """What is known of every row once its logits have been seen, each ``[N]``.

    The last two belong to a reference policy, and mean nothing where there is none.
    """

    log_prob: Tensor
    entropy: Tensor
    log_normalizer: Tensor
    kl: Tensor  # KL(π ‖ π_ref)
    ref_log_normalizer: Tensor

    @classmethod
    def of(cls, table: Tensor) -> TokenStatistics:
        """From a table ``[5, N]``."""
        return cls(*table.unbind(0))


class Slopes(NamedTuple):
    """Per row: the loss and its derivatives by the row's statistics; None stands for zeros."""

    loss: Tensor  # [N]
    log_prob: Tensor  # [N]
    entropy: Tensor | None  # [N]
    log_normalizer: Tensor | None  # [N]
    kl: Tensor | None = None  # [N]

    def are_active(self) -> Tensor:
        """In which rows the gradient is not exactly 0, ``[N]``."""
        active = self.log_prob != 0
        for slope in (self.entropy, self.log_normalizer, self.kl):
            if slope is not None:
                active = active | (slope != 0)
        return active


@dataclass(frozen=True)
class Upstream:
    """The gradients that arrive in a backward pass, given as an objective."""

    log_prob: Tensor  # [N]
    entropy: Tensor | None  # [N]
    log_normalizer: Tensor | None  # [N]
    kl: Tensor | None = None  # [N]

    @property
    def needs_entropy(self) -> bool:
        """The gradient of the entropy contains the entropy."""
        return self.entropy is not None

    @property
    def is_linear(self) -> bool:
        """The slopes do not depend on the statistics: they are what arrived."""
        return True

    def at(self, rows: Tensor | slice) -> Upstream:
        """The same for some of the tokens."""
        others = (self.entropy, self.log_normalizer, self.kl)
        return Upstream(
            self.log_prob[rows], *(None if slope is None else slope[rows] for slope in others)
        )

    def slopes(self, part: slice, known: TokenStatistics) -> Slopes:
        """The upstream gradients of a part of the tokens."""
        here = self.at(part)
        nothing = torch.zeros_like(known.log_prob)
        return Slopes(nothing, here.log_prob, here.entropy, here.log_normalizer, here.kl)


class PolicyObjective(NamedTuple):
    """``−(surrogate + entropy_coef · entropy) + kl_coef · kl + z_loss_coef · log_normalizer²``,
    times the token's weight: every coefficient and column of a loss, over logits or a linear head.

    Without ``old_log_prob`` the surrogate is ``A · log_prob``; with it, the clipped
    ``min(r A, clip(r) A)`` of the ratio ``r = exp(log_prob − old_log_prob)``. The KL is estimated
    from ``log_prob − ref_log_prob``, or "exact": it is then one of the row's statistics.
    """

    # The first four are for each token: [N], or the shape of the call.
    advantage: Tensor
    token_weight: Tensor | None = None
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    # The rest are for all tokens.
    entropy_coef: float = 0.0
    clip: tuple[float, float] = (0.2, 0.2)
    kl_coef: float = 0.0
    kl_estimator: str = "k3"
    z_loss_coef: float = 0.0
    scale: Tensor | float = 1.0  # of every token, for a mean

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy takes part."""
        return self.entropy_coef != 0.0

    @property
    def is_linear(self) -> bool:
        """Whether the slopes are the same whatever the statistics are."""
        return self.old_log_prob is None and self.kl_coef == 0.0 and self.z_loss_coef == 0.0

    @property
    def needs_kl(self) -> bool:
        """Whether the exact KL takes part."""
        return self.kl_estimator == "exact" and self.kl_coef != 0.0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The columns that there are."""
        return tuple([column for column in self[:4] if column is not None])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> PolicyObjective:
        """The same with its columns changed."""
        columns = [None if column is None else change(column) for column in self[:4]]
        return PolicyObjective(*columns, *self[4:])  # type: ignore[arg-type,call-arg]  # as they were

    def flattened(self) -> PolicyObjective:
        """The same with one axis of tokens."""
        return self.mapped(lambda column: column.reshape(-1))

    def factors(self) -> Tensor:
        """What the loss of each token is multiplied by."""
        ones = torch.ones_like(self.advantage) if self.token_weight is None else self.token_weight
        return ones * self.scale

    def silent_actions(self) -> Tensor:
        """Which tokens' log-probabilities cannot contribute to the loss, whatever they are."""
        silent = torch.zeros_like(self.advantage, dtype=torch.bool)
        if self.entropy_coef == 0.0 and (self.kl_coef == 0.0 or self.needs_kl):
            silent = self.advantage == 0
        return silent if self.token_weight is None else silent | (self.token_weight == 0)

    def silent_rows(self) -> Tensor:
        """Which tokens cannot contribute to loss and gradient, whatever their logits are."""
        if self.z_loss_coef == 0.0 and not self.needs_kl:
            return self.silent_actions()
        if self.token_weight is not None:
            return self.token_weight == 0
        return torch.zeros_like(self.advantage, dtype=torch.bool)

    def loss(
        self,
        log_prob: Float[Tensor, "*batch"],
        entropy: Float[Tensor, "*own"],
        log_normalizer: Float[Tensor, "*rows"] | None = None,
        kl: Float[Tensor, "*here"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The loss of each token, in operations that torch differentiates."""
        value = -self._surrogate(log_prob)
        if self.needs_entropy:
            value = value - self.entropy_coef * entropy
        if self.ref_log_prob is not None and self.kl_coef != 0.0:
            value = value + self.kl_coef * self._kl(log_prob - self.ref_log_prob)
        if self.needs_kl and kl is not None:
            value = value + self.kl_coef * kl
        if self.z_loss_coef != 0.0 and log_normalizer is not None:
            value = value + self.z_loss_coef * log_normalizer**2
        return value * self._factor

    def slopes(self, part: slice, known: TokenStatistics) -> Slopes:
        """Loss and slopes of a part of the tokens, in closed form."""
        here, log_prob = self.at(part), known.log_prob
        loss = here.loss(log_prob, known.entropy, known.log_normalizer, known.kl)
        by_log_prob = here._surrogate_slope(log_prob).neg_()
        if here.ref_log_prob is not None and here.kl_coef != 0.0:
            by_log_prob += here.kl_coef * here._kl_slope(log_prob - here.ref_log_prob)
        by_entropy = by_normalizer = by_kl = None
        if here.needs_entropy:
            by_entropy = torch.full_like(log_prob, -here.entropy_coef) * here._factor
        if here.z_loss_coef != 0.0:
            by_normalizer = 2.0 * here.z_loss_coef * known.log_normalizer * here._factor
        if here.needs_kl:
            by_kl = torch.full_like(log_prob, here.kl_coef) * here._factor
        return Slopes(loss, by_log_prob * here._factor, by_entropy, by_normalizer, by_kl)

    @property
    def _factor(self) -> Tensor | float:
        return self.scale if self.token_weight is None else self.token_weight * self.scale

    def _surrogate(self, log_prob: Tensor) -> Tensor:
        if self.old_log_prob is None:
            return self.advantage * log_prob
        ratio = torch.exp(log_prob - self.old_log_prob)
        clipped = ratio.clamp(1 - self.clip[0], 1 + self.clip[1])
        return torch.minimum(ratio * self.advantage, clipped * self.advantage)

    def _surrogate_slope(self, log_prob: Tensor) -> Tensor:
        if self.old_log_prob is None:
            return self.advantage.to(log_prob.dtype, copy=True)
        ratio = torch.exp(log_prob - self.old_log_prob)
        clipped = ratio.clamp(1 - self.clip[0], 1 + self.clip[1])
        chosen = ratio * self.advantage <= clipped * self.advantage
        return torch.where(chosen, ratio * self.advantage, 0.0)

    def _kl(self, difference: Tensor) -> Tensor:
        if self.kl_estimator == "k1":
            return difference
        if self.kl_estimator == "k2":
            return 0.5 * difference**2
        return torch.expm1(-difference) + difference

    def _kl_slope(self, difference: Tensor) -> Tensor:
        if self.kl_estimator == "k1":
            return torch.ones_like(difference)
        if self.kl_estimator == "k2":
            return difference
        return -torch.expm1(-difference)

    def at(self, rows: Tensor | slice) -> PolicyObjective:
        """The objective of some of the tokens."""
        return self.mapped(lambda column: column[rows])


def check_policy_coefficients(
    clip: object, kl_coef: object, kl_estimator: object
) -> tuple[float, float]:
    """How far the ratio may leave 1; raise unless all coefficients are in their ranges."""
    expected = "(ε₋, ε₊) with 0 <= ε₋ <= 1 and ε₊ >= 0"
    low, high = check_pair(clip, "clip", expected)
    if not (0 <= low <= 1 and high >= 0):
        raise InvalidValueError(
            "`clip`",
            f"({low:g}, {high:g})",
            expected,
            "pass how far the ratio may leave 1, below and above",
        )
    check_numbers(kl_coef=kl_coef)
    check_choice(kl_estimator, "kl_estimator")
    return low, high


def check_estimated(kl_coef: float, ref_log_prob: Tensor | None) -> None:
    """Raise where a KL is to be estimated from nothing."""
    if kl_coef != 0 and ref_log_prob is None:
        raise InvalidValueError(
            "`kl_coef`",
            f"{kl_coef:g} without ref_log_prob",
            "the reference's log-probabilities",
            "pass ref_log_prob, or leave kl_coef at 0",
        )


def check_reduction(reduction: object, batch: torch.Size) -> None:
    """Raise unless ``reduction`` is one, and there is an axis for a sequence."""
    check_choice(reduction, "reduction")
    if reduction == "sequence" and not batch:
        raise ShapeError(
            "`reduction`",
            "'sequence' for a batch without axes",
            "[*batch] with the steps of a sequence on its last axis",
            "add an axis, or reduce with 'mean', 'sum' or 'none'",
        )


def check_unread(given: object, name: str, kl_estimator: str, policy: str) -> None:
    """Raise for a reference that the estimator does not read; "exact" reads ``policy``."""
    if given is not None:
        raise InvalidValueError(
            f"`{name}`",
            f"one, with kl_estimator={kl_estimator!r}",
            "only what the estimator reads",
            f"'k1', 'k2' and 'k3' read ref_log_prob, 'exact' reads {policy}",
        )


# What a backend asks for the slopes, once the statistics of some rows are known.
Objective = PolicyObjective | Upstream
