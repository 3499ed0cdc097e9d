"""The weights that a loss gave to the tokens, with everything that they can depend on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.language.measurement import Observed

_OBSERVED = (
    "scores", "probs", "ref_probs", "log_probs", "ref_log_probs", "drawn", "tokens", "mask",
    "lengths", "ended", "width", "rewards",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sample:
    """Some outcomes of an audit: ``M`` batches of ``B`` answers, ``W`` positions.

    The other fields are those of `Observed`, of these batches.

    Attributes:
        outcomes: [M] which of the outcomes they are.
        ascent: [M, B, W, V] the part of the negative gradients at the logits that is looked at.
        states: [M, B, W] integers: of which world, prompt and earlier tokens each was drawn.
        group_size: Answers to a prompt.
        slice_rows: Rows of a micro-batch.
        groups: [B] the group that each row's reward belongs to; None: that of the row.
    """

    outcomes: Integers
    ascent: Array
    scores: Array
    probs: Array
    ref_probs: Array
    log_probs: Array
    ref_log_probs: Array
    drawn: Array
    tokens: Integers
    states: Integers
    mask: Booleans
    lengths: Integers
    ended: Booleans
    width: Integers
    rewards: Array
    group_size: int
    slice_rows: int
    groups: Array | None = None

    @property
    def size(self) -> float:
        """Norm of all gradients on the answers' own positions."""
        return float(np.linalg.norm(self.ascent[self.mask]))

    @cached_property
    def log_ratio_to_ref(self) -> Array:
        """[M, B, W] log π − log ref of the tokens, 0 on padding."""
        return np.where(self.mask, self.log_probs - self.ref_log_probs, 0.0)

    @cached_property
    def log_ratio(self) -> Array:
        """[M, B, W] log π − log of the draw, 0 on padding."""
        return np.where(self.mask, self.log_probs - self.drawn, 0.0)

    def by_group(self, values: Array) -> Array:
        """[M, B] mean over each group, at each of its rows."""
        if self.groups is None:
            return _block_mean(values, self.group_size)
        same = self.groups[:, None] == self.groups
        return np.asarray(values @ (same / same.sum(0)))

    def crossed(self, values: Array) -> Array:
        """[M, B] what groups [P] are where they are broadcast along [P, P] the wrong way."""
        size = self.group_size
        return np.tile(_block_mean(values, size)[:, ::size], (1, size))

    def by_number(self, values: Array) -> Array:
        """[M, B] mean over the answers of all prompts that have the same number in their group."""
        table = values.reshape(len(values), -1, self.group_size)
        return np.broadcast_to(table.mean(1, keepdims=True), table.shape).reshape(values.shape)

    @property
    def square(self) -> bool:
        """Whether there are as many groups as answers in each, so that they can be confused."""
        return bool(self.rewards.shape[1] == self.group_size**2 > 1)

    def by_slice(self, values: Array) -> Array:
        """[M, B] mean over each micro-batch, at each of its rows."""
        return _block_mean(values, self.slice_rows)

    def told_apart(self) -> Sample:
        """The batches of several prompts in which no two answers to one of them are the same.

        The gradients of a program's own loop do not tell which of two such rows is which.
        """
        if not 1 < self.group_size < self.rewards.shape[1]:
            return self
        rows = np.where(self.mask, self.tokens, -1)
        rows = rows.reshape(len(rows), -1, self.group_size, rows.shape[-1])
        same = (rows[:, :, :, None] == rows[:, :, None]).all(-1).sum((1, 2, 3))
        kept = np.flatnonzero(same == rows.shape[1] * self.group_size)
        return self.take(kept) if len(kept) else self

    def take(self, index: Integers) -> Sample:
        """The sample of some of the batches."""
        kept: dict[str, Any] = {
            field.name: value[index]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray) and field.name != "groups"
        }
        return replace(self, **kept)


def sample_of(
    observed: Observed, ascent: Array, slice_rows: int | None, negated: bool = False
) -> Sample:
    """The finite outcomes of the worlds with the rewards as they are, with some of the gradient.

    Args:
        observed: The outcomes.
        ascent: [N, B, W, V] the part of the gradient that is looked at.
        slice_rows: Rows of a micro-batch; None: all.
        negated: Whether the worlds with the negated rewards are in it as well.
    """
    finite = np.isfinite(observed.odd).all(axis=(1, 2, 3))  # in both worlds of a pair
    wanted = negated | (observed.world % 2 == 0)
    kept = np.flatnonzero(finite & wanted & (observed.probability > 0))
    rows = observed.rewards.shape[1]
    return Sample(
        outcomes=kept,
        ascent=ascent[kept],
        states=_states(observed)[kept],
        group_size=observed.language.group_size,
        slice_rows=min(slice_rows or rows, rows),
        **{name: getattr(observed, name)[kept] for name in _OBSERVED},
    )


def _states(observed: Observed) -> Integers:
    """[N, B, W] a number for each row of each world's tables."""
    language = observed.language
    prompt = np.arange(observed.rewards.shape[1]) // language.group_size
    table = observed.world[:, None] * language.prompts + prompt
    return np.asarray(table[..., None] * language.table_rows + observed.position)


def _block_mean(values: Array, size: int) -> Array:
    """[M, B] means of blocks of rows, the last of which may be smaller."""
    rows = values.shape[1]
    starts = np.arange(0, rows, size)
    counts = np.diff(np.append(starts, rows))
    means = np.add.reduceat(values, starts, axis=1) / counts
    return np.repeat(means, counts, axis=1)
