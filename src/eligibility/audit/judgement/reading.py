"""What a measured credit says: its shape, what is subtracted from it, and its discount.

M_i = a_i (L_i(γ) − β m_i): L is the credit of a rule, m a mean of its rows, and the factor a_i of
each row and β are read off. The discount γ is the one with which least is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.job import SIZES
from eligibility.audit.judgement.advantage import ACTION_VALUE
from eligibility.audit.judgement.catalogue import Told
from eligibility.audit.judgement.credit_shapes import MEANS, SHAPES, Places, Shape, rewards_to_go
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.sections import refined_together

EXPLAINS = 1e-5  # share of M that a reading may leave
_OUTSIDE = 1e-3  # share of the slopes outside the span of the eligibilities that is not rounding
_GRID = np.linspace(0.0, 1.0, 21)
# Credits that are the reward-to-go with a factor of each row.
_FACTORS = {credit.rule for credit in CREDITS if credit.factor is not None}
_MOST = 10.0  # of a mean that is subtracted: with more of it nothing but the mean is left
_ROUNDING = 1e-12  # share left by a discount that needs no refinement
_PROMISING = 0.3  # share left at the grid's best discount, below which it is refined


@dataclass(frozen=True, eq=False)
class Reading:
    """One explanation of a credit.

    Attributes:
        rule: A rule of the catalogue's credits; empty: the reward-to-go.
        mean: What is subtracted: "", "batch", "so-far", "episode", "time", "time-of-all",
            "returns", "other-episodes", "other-returns" or "other-times".
        beta: How much of it.
        discount: γ, or γλ where values are bootstrapped; NaN if M does not depend on it.
        dated: The γ of a factor γ^t on the rows; 1: there is none.
        factor: [I] of each row, a_i.
        left: Share of M that is not explained.
    """

    rule: str
    mean: str
    beta: float
    discount: float
    dated: float
    factor: Array
    left: float


@lru_cache(maxsize=1)  # every survey of a program asks for the same ones
def read(measured: Measured) -> tuple[Reading, ...]:
    """Every reading, the plainest first: on one path several may be the same."""
    return tuple(_read(measured))


def _read(measured: Measured) -> Iterator[Reading]:
    if measured.kind not in ("linear", "rescaled") or measured.outside > EXPLAINS:
        return
    places = Places(measured.evidence)
    means = [(mean, of(places)) for mean, of in MEANS
             if not (mean and places.single) or mean in ("batch", "so-far")]  # fmt: skip
    for name, shape in SHAPES:
        fits = _Fits(measured.credit, places, shape)
        for mean, matrix in means:
            reading = fits.reading(name, mean, matrix)
            if reading is not None:
                yield reading


def told_by(measured: Measured, readings: Sequence[Reading]) -> Told | None:
    """What compositions the credit can come from; None if it could not be read.

    What the rewards move of a gradient is Σ_i M_i e_i for each of them: where that lies outside the
    span of the eligibilities e_i there is none.
    """
    if measured.outside > _OUTSIDE:
        return Told(frozenset(), frozenset(), False, False)
    if measured.kind == "valued":
        return Told(frozenset({ACTION_VALUE}), frozenset({""}), False, False)
    if measured.kind == "silent":
        return Told(frozenset({"returns-unused"}), frozenset({""}), False, False)
    if measured.kind == "stepwise":
        return Told(
            frozenset({"integer-returns"}), frozenset(name for name, _ in MEANS), False, False
        )
    every = frozenset(credit.rule for credit in CREDITS)
    if measured.kind == "other":  # not affine in the rewards
        means = frozenset(name for name, _ in MEANS)
        return Told(every, means, True, True, measured.evidence, slopes=measured.credit)
    if not readings and (measured.kind != "linear" or measured.outside > EXPLAINS):
        return None
    rules = {reading.rule for reading in readings} or set(every)
    plain = [reading for reading in readings if not reading.rule]
    uneven = [reading for reading in plain if np.ptp(np.abs(reading.factor)) > EXPLAINS]
    if uneven:
        rules |= _FACTORS
    size = float(np.abs(measured.credit).max())
    same = Places(measured.evidence).same
    apart = np.abs(measured.credit[:, None] - measured.credit[None, :]).max(axis=2)
    coupled = bool(apart[same].max() <= EXPLAINS * size)
    return Told(
        frozenset(rules),
        frozenset(reading.mean for reading in readings) or frozenset(name for name, _ in MEANS),
        measured.kind == "rescaled",
        coupled,
        measured.evidence,
        measured.credit if measured.kind == "linear" else None,
    )


def reinforce_credit(evidence: Evidence, discount: float) -> Array:
    """[I, N] the credit of REINFORCE: γ^(time of the reward) for every later one of the episode."""
    places = Places(evidence)
    to_go = rewards_to_go(places, np.array([[[discount]]]))[0]
    dated: Array = to_go * discount ** places.time[:, None]
    return dated


def used_decisions(measured: Measured | None, evidence: Evidence) -> Sequence[int]:
    """How many decisions a batch may have that leaves the last ones to the next update."""
    if measured is None:  # a batch of whole episodes is full within the last one
        taken = evidence.present.sum(axis=1)
        return range(int(taken.min()), max(1, int(taken.max()) - SIZES[0].horizon), -1)
    size = np.abs(measured.credit).max(axis=1)
    count = 1 + int(np.flatnonzero(size > EXPLAINS * size.max(initial=0.0)).max(initial=-1))
    return (count,) if count < len(size) else ()


class _Fits:
    """The fits of one shape to M, for each mean that may be subtracted."""

    def __init__(self, credit: Array, places: Places, shape: Shape) -> None:
        self._credit, self._places, self._shape = credit, places, shape
        self._on_grid = shape(places, _GRID[:, None, None])
        self._depends = bool(np.ptp(self._on_grid, axis=0).max() > 0)

    def reading(self, name: str, mean: str, matrix: Array) -> Reading | None:
        """The reading by a mean, taken by ``matrix`` [I, I], at the discount that leaves least."""
        size = float(np.linalg.norm(self._credit))

        def left(discounts: Array) -> Array:
            base = self._shape(self._places, discounts[:, None, None])
            return _solve(self._credit, base, matrix @ base)[2] / size

        best = 1.0
        if self._depends:
            found = _solve(self._credit, self._on_grid, matrix @ self._on_grid)[2] / size
            if found.min() > _PROMISING:
                return None
            known = np.array([_GRID[int(found.argmin())], *_ratios(self._credit)])
            shares = left(known)
            if shares.min() > _ROUNDING:
                known = np.append(known, refined_together(left, float(known[0]), _GRID[1]))
                shares = left(known)
            best = float(known[int(shares.argmin())])
            if name and best < _OUTSIDE:
                return None  # without its powers it is another rule
        base = self._shape(self._places, np.array([[[best]]]))
        factors, betas, off = (each[0] for each in _solve(self._credit, base, matrix @ base))
        if off > EXPLAINS * size or (mean and not EXPLAINS < betas < _MOST):
            return None
        live = np.abs(factors[np.abs(base[0]).sum(axis=1) > 0])
        if (name or mean) and live.min(initial=1.0) <= EXPLAINS * live.max(initial=0.0):
            return None  # a row of zeros is borne out by anything
        discount, dated = best if self._depends else float("nan"), _dated(self._places, factors)
        return Reading(name, mean, float(betas), discount, dated, factors, float(off) / size)


def _ratios(credit: Array) -> Iterator[float]:
    """Ratios of neighbours in M: of a linear program they are its discount without rounding."""
    with np.errstate(all="ignore"):
        ratios = (credit[:, 1:] / credit[:, :-1]).ravel()
    close = ratios[np.isfinite(ratios) & (ratios > 0.01) & (ratios <= 1.0 + 1e-9)]
    yield from np.unique(close.round(13)).tolist()


def _solve(credit: Array, base: Array, mean: Array) -> tuple[Array, Array, Array]:
    """a [G, I] and β [G] of M_i = a_i (L_i − β m_i), and the size [G] of what is left."""
    beta = _subtracted(credit, base, mean) if mean.any() else np.zeros(len(base))
    rows = base - beta[:, None, None] * mean
    square = (rows * rows).sum(axis=-1)
    factor = np.divide(
        (credit * rows).sum(axis=-1), square, out=np.zeros(square.shape), where=square > 0
    )
    off = credit - factor[..., None] * rows
    return factor, beta, np.sqrt((off * off).sum(axis=(1, 2)))


def _subtracted(credit: Array, base: Array, mean: Array) -> Array:
    """β [G]: the median of −b / a over the rows' least squares of a L_i + b m_i to M_i."""
    own, shared = (base * base).sum(axis=-1), (mean * mean).sum(axis=-1)
    both = (base * mean).sum(axis=-1)
    on_own, on_shared = (credit * base).sum(axis=-1), (credit * mean).sum(axis=-1)
    determinant = own * shared - both**2
    told = determinant > 1e-9 * own * shared
    # Cramer's rule; the determinant cancels in the ratio
    a, b = shared * on_own - both * on_shared, own * on_shared - both * on_own
    told &= np.abs(a) > 1e-9 * determinant
    # those that tell nothing come last
    ratios = np.sort(np.divide(b, a, out=np.full(a.shape, np.inf), where=told), axis=-1)
    count, rows = told.sum(axis=-1), np.arange(len(told))
    middle = [ratios[rows, np.maximum(at, 0) // 2] for at in (count - 1, count)]
    return np.where(count > 0, -(middle[0] + middle[1]) / 2.0, 0.0)


def _dated(places: Places, factor: Array) -> float:
    """The γ by whose powers γ^t the rows' factors fall; 1 if they do not."""
    live = np.abs(factor) > 1e-9 * np.abs(factor).max(initial=0.0)
    if not live.any() or np.ptp(places.time[live]) == 0:
        return 1.0
    first = live & (places.time == places.time[live].min())
    later = live & (places.time == places.time[live].min() + 1)
    if not later.any():
        return 1.0
    with np.errstate(all="ignore"):
        fallen = float(np.median(factor[later]) / np.median(factor[first]))
    if not 0.0 < fallen < 1.0 - 1e-9:
        return 1.0
    alike = factor[live] / fallen ** places.time[live]
    if np.ptp(alike) > EXPLAINS * np.abs(alike).max():
        return 1.0
    return fallen


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
