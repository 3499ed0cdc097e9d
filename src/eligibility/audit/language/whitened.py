"""Advantages that are whitened together with what is not reward: a divergence, a critic's values.

Their deviation depends on the rewards and on the rest, so no part of the gradient belongs to the
rewards alone. But within a batch, or a group, a weight is α (A − m) with two unknown numbers, and
A is linear in the rewards, the divergence and the values: so is A = weight / α + m.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.language.laws import DIVISORS
from eligibility.audit.language.reading import Reading, project
from eligibility.audit.language.regularisers import (
    FROM_EACH_TOKEN,
    IN_REWARD,
    Regularisers,
    later,
    state_values,
)
from eligibility.audit.language.sample import Sample
from eligibility.audit.sections import refined

_TERMS = ("k1 in the reward", "k2 in the reward", "k3 in the reward")
_GRID = np.linspace(0.5, 1.0, 26)  # of λ
_PROMISING = 0.1  # share that may be missing at the best λ of the grid, for the search to go on
_ROUNDING = 1e3  # by how much less exact a number is that is solved for


@dataclass(frozen=True)
class _Form:
    """What an advantage may be made of."""

    term: str
    by_token: bool
    divisor: str
    baseline: str


def read_whitened(sample: Sample, exact: float) -> tuple[Reading, Regularisers] | None:
    """The first form that explains the weights of every batch; None: there is none.

    Args:
        sample: With the whole gradients, of rewards of both signs.
        exact: Shares below it are rounding.
    """
    weights, left = project(sample, sample.scores)
    if not sample.size or left > exact:
        return None
    for form in _forms():
        measured = weights / DIVISORS[form.divisor](sample)[..., None]
        found = _fitted(sample, measured, form, exact)
        if found is not None:
            return found
    return None


def _forms() -> Iterator[_Form]:
    for baseline, term, divisor in itertools.product(
        ("", "value"), _TERMS, ("constant", "own-length")
    ):
        for by_token in (True,) if baseline else (True, False):
            yield _Form(term, by_token, divisor, baseline)


def _fitted(
    sample: Sample, weights: Array, form: _Form, exact: float
) -> tuple[Reading, Regularisers] | None:
    decay = _best_decay(sample, weights, form) if form.baseline else 1.0
    missing, solved, advantages = _solved(sample, weights, form, decay)
    if missing > _ROUNDING * exact:
        return None
    law = _scale(sample, weights, advantages, exact)
    if law is None:
        return None
    scale, size, epsilon, per_token = law
    divisor = "batch-tokens" if per_token and form.divisor == "constant" else form.divisor
    if scale == "batch" and sample.rewards.shape[1] == sample.group_size:
        scale = "group"  # the only one
    mean = "tokens" if scale.startswith("tokens") else scale
    reading = Reading(
        {"own": size, mean: -size}, divisor, scale, epsilon, decay=decay, residual=missing
    )
    name = form.term + FROM_EACH_TOKEN if form.by_token else form.term
    kept = {name: -size * float(solved[0])} if abs(solved[0]) > _ROUNDING * exact else {}
    baseline = ("value" if decay == 1.0 else "gae") if form.baseline else ""
    return reading, Regularisers(kept, divisor, missing, baseline)


def _best_decay(sample: Sample, weights: Array, form: _Form) -> float:
    """The λ with the least that is missing."""

    def missing(decay: float) -> float:
        return _solved(sample, weights, form, decay)[0]

    values = [missing(decay) for decay in _GRID]
    best = int(np.argmin(values))
    if best == len(_GRID) - 1 and values[best] < 1e-6:
        return 1.0
    if values[best] > _PROMISING:
        return float(_GRID[best])
    return refined(missing, float(_GRID[best]), float(_GRID[1] - _GRID[0]))


def _solved(
    sample: Sample, weights: Array, form: _Form, decay: float
) -> tuple[float, Array, Array]:
    """What is missing, the coefficients of what is added to the rewards, and the advantages."""
    mask = sample.mask
    ahead = sample.lengths[..., None] - 1 - np.arange(mask.shape[2])
    rewards = sample.rewards[..., None] * float(decay) ** np.maximum(ahead, 0)
    term = np.where(mask, IN_REWARD[form.term](sample), 0.0)
    whole = np.broadcast_to(term.sum(-1, keepdims=True), term.shape)
    columns = [later(term, decay) if form.by_token else whole]
    if form.baseline:
        values = np.zeros((*mask.shape, int(np.unique(sample.states[mask]).size)))
        values[mask] = state_values(sample, decay)
        columns += list(np.moveaxis(values, -1, 0))
    parts = np.stack([rewards, *columns], axis=-1)
    batch = np.broadcast_to(np.arange(len(mask))[:, None, None], mask.shape)[mask]
    left = _beside(parts[mask], weights[mask], batch, len(mask))
    solved = np.linalg.lstsq(left[:, 1:], -left[:, 0], rcond=1e-10)[0]
    missing = np.linalg.norm(left[:, 0] + left[:, 1:] @ solved) / np.linalg.norm(rewards[mask])
    return float(missing), np.asarray(solved), np.asarray(rewards + parts[..., 1:] @ solved)


def _beside(parts: Array, weights: Array, batch: Integers, count: int) -> Array:
    """[tokens, columns] without what is a multiple of a batch's weights, or constant in it."""

    def centred(values: Array) -> Array:
        sums = np.zeros((count, *values.shape[1:]))
        np.add.at(sums, batch, values)
        number = np.bincount(batch, minlength=count).reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(values - (sums / number)[batch])

    direction, rest = centred(weights), centred(parts)
    squares = np.bincount(batch, direction**2, minlength=count)
    along = np.zeros((count, parts.shape[1]))
    np.add.at(along, batch, direction[:, None] * rest)
    share = np.divide(along, squares[:, None], out=np.zeros_like(along), where=squares[:, None] > 0)
    return np.asarray(rest - direction[:, None] * share[batch])


def _scale(
    sample: Sample, weights: Array, advantages: Array, exact: float
) -> tuple[str, float, float, bool] | None:
    """The deviation that divides the advantages, their size, ε, and whether tokens divide too."""
    mask = sample.mask
    rows = np.zeros_like(mask)
    rows[..., 0] = True
    for name, counted in (("tokens", mask), ("batch", rows)):
        number = counted.sum((1, 2))
        mean = np.where(counted, advantages, 0.0).sum((1, 2)) / number
        apart = np.where(mask, advantages - mean[:, None, None], 0.0)
        deviation = np.sqrt((np.where(counted, apart, 0.0) ** 2).sum((1, 2)) / number)
        kept = deviation > 1e-6 * deviation.max()
        size = (weights * apart).sum((1, 2)) / np.maximum((apart**2).sum((1, 2)), 1e-300)
        wrong = np.where(mask, weights - size[:, None, None] * apart, 0.0)[kept]
        if np.linalg.norm(wrong) > _ROUNDING * exact * np.linalg.norm(weights[mask]):
            continue
        corrected = deviation * np.sqrt(number / np.maximum(number - 1, 1))
        for law, per_token in itertools.product((deviation, corrected), (False, True)):
            count = mask.sum((1, 2)) if per_token else np.ones(len(mask))
            if (size[kept] <= 0).any():
                continue
            inverse = 1.0 / (size * count)[kept]
            pair = np.stack([law[kept], np.ones(kept.sum())], axis=1)
            found = np.linalg.lstsq(pair, inverse, rcond=None)[0]
            off = np.linalg.norm(inverse - pair @ found) / np.linalg.norm(inverse)
            if off < _ROUNDING * exact:
                full = "tokens, corrected" if law is corrected and name == "tokens" else name
                return full, 1.0 / float(found[0]), float(found[1] / found[0]), per_token
    return None
