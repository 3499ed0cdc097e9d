"""The faults that show in which rewards each decision follows, whatever their factors are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eligibility.audit.arrays import Integers
from eligibility.audit.judgement.credit_shapes import Places
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.reading import EXPLAINS


def structure(measured: Measured) -> str:
    """The fault that shows in which rewards each decision follows, whatever their factors are.

    Of the rewards-to-go in another order, and of rewards of others that an action is praised for:
    what a mean subtracts is blame.
    """
    if measured.kind != "linear" or measured.outside > EXPLAINS:
        return ""
    places, credit = Places(measured.evidence), measured.credit
    own_order = [np.flatnonzero(places.environment == e) for e in np.unique(places.environment)]
    praise = credit * np.sign(np.trace(credit) or credit.sum())
    told = np.abs(praise) > EXPLAINS * np.abs(praise).max()
    own = places.same & (places.lag >= 0)
    # of each decision, whose reward-to-go it has; the last place stands for none
    rows = [np.flatnonzero((own == row).all(axis=1)) for row in told]
    if all(len(found) == 1 or not row.any() for found, row in zip(rows, told, strict=True)):
        target = np.array([found[0] if len(found) else len(rows) for found in rows])
        for order in ([places.index], own_order):  # of the batch, or of each environment
            for rule, moved in (("reversed-returns", _backwards), ("shifted-rewards", _later)):
                if len(rows) > 1 and np.array_equal(target, moved(order, len(rows))):
                    return rule
    praised = praise > EXPLAINS * np.abs(praise).max()
    if praised[places.same & (places.lag < 0)].any() and not told[own].all():
        return "rewards-so-far"
    others = places.environment[:, None] != places.environment[None, :]
    if (praised & others).any():
        return "return-carried-over-actors"
    later = ~others & ~places.same & (places.index[None, :] > places.index[:, None])
    segments = np.unique(places.segment)
    blocks = [np.ix_(places.segment == a, places.segment == b) for a in segments for b in segments]
    carried = [praised[block] for block in blocks if later[block].any()]
    whole = all(block.all() or not block.any() for block in carried)  # a fit praises here and there
    return "return-carried-over-episodes" if whole and any(map(np.any, carried)) else ""


def _backwards(orders: Sequence[Integers], count: int) -> Integers:
    """[I] of each decision the one as far from the end of its order as it is from the start."""
    moved = np.arange(count)
    for order in orders:
        moved[order] = order[::-1]
    return moved


def _later(orders: Sequence[Integers], count: int) -> Integers:
    """[I] of each decision the next of its order; of the last one ``count``."""
    moved = np.full(count, count)
    for order in orders:
        moved[order[:-1]] = order[1:]
    return moved
