"""What a measured credit says: its shape, what is subtracted from it, and its discount.

M_i = a_i (L_i(γ) − β m_i): L is the credit of a rule, m a mean of its rows, and the factor a_i of
each row and β are read off. The discount γ is the one with which least is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.job import SIZES
from eligibility.audit.judgement.catalogue import Told
from eligibility.audit.judgement.credits import CREDITS
from eligibility.audit.judgement.critic import ACTION_VALUE
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.measured import Measured
from eligibility.audit.judgement.sections import refined

EXPLAINS = 1e-5  # share of M that a reading may leave
_OUTSIDE = 1e-3  # share of the slopes outside the span of the eligibilities that is not rounding
_GRID = np.linspace(0.0, 1.0, 21)
# Credits that are the reward-to-go with a factor of each row.
_FACTORS = {credit.rule for credit in CREDITS if credit.factor is not None}
_MOST = 10.0  # of a mean that is subtracted: with more of it nothing but the mean is left
_PROMISING = 0.3  # share left at the grid's best discount, below which it is refined


@dataclass(frozen=True, eq=False)
class Reading:
    """One explanation of a credit.

    Attributes:
        rule: A rule of the catalogue's credits; empty: the reward-to-go.
        mean: What is subtracted: "", "batch", "so-far", "episode", "returns",
            "other-episodes", "other-returns" or "other-times".
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
    for name, shape in _SHAPES:
        for mean, rows in _MEANS:
            if mean and places.single and mean not in ("batch", "so-far"):
                continue
            reading = _fitted(measured.credit, places, name, shape, mean, rows)
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
            frozenset({"integer-returns"}), frozenset(name for name, _ in _MEANS), False, False
        )
    every = frozenset(credit.rule for credit in CREDITS)
    if measured.kind == "other":  # not affine in the rewards
        return Told(every, frozenset(name for name, _ in _MEANS), divides=True, coupled=True)
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
        frozenset(reading.mean for reading in readings) or frozenset(name for name, _ in _MEANS),
        measured.kind == "rescaled",
        coupled,
        measured.evidence,
        measured.credit if measured.kind == "linear" else None,
    )


def reinforce_credit(evidence: Evidence, discount: float) -> Array:
    """[I, N] the credit of REINFORCE: γ^(time of the reward) for every later one of the episode."""
    places = Places(evidence)
    return _to_go(places, discount) * discount ** places.time[:, None]


def used_decisions(measured: Measured | None, evidence: Evidence) -> Sequence[int]:
    """How many decisions a batch may have that leaves the last ones to the next update."""
    if measured is None:  # a batch of whole episodes is full within the last one
        taken = evidence.present.sum(axis=1)
        return range(int(taken.min()), max(1, int(taken.max()) - SIZES[0].horizon), -1)
    size = np.abs(measured.credit).max(axis=1)
    count = 1 + int(np.flatnonzero(size > EXPLAINS * size.max(initial=0.0)).max(initial=-1))
    return (count,) if count < len(size) else ()


class Places:
    """Where the decisions of a path are: [I] each."""

    def __init__(self, evidence: Evidence) -> None:
        here = evidence.present[0]
        both = np.stack([evidence.environment[0][here], evidence.episode[0][here]], axis=1)
        self.segment: Integers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        self.time: Integers = evidence.time[0][here]
        self.environment: Integers = evidence.environment[0][here]
        self.terminated: Booleans = evidence.terminated[0][here]
        self.index: Integers = np.arange(len(self.time))
        last = {s: self.time[self.segment == s].max() for s in set(self.segment.tolist())}
        self.left: Integers = np.array([last[s] for s in self.segment.tolist()]) - self.time

    @cached_property
    def single(self) -> bool:
        """Whether there is one episode."""
        return len(set(self.segment.tolist())) == 1

    @cached_property
    def same(self) -> Booleans:
        """[I, I] whether two decisions are of one episode."""
        return np.asarray(self.segment[:, None] == self.segment[None, :])

    @cached_property
    def first(self) -> Integers:
        """The first decision of each episode."""
        return np.unique(self.segment, return_index=True)[1]

    @cached_property
    def last_of_actor(self) -> Booleans:
        """[I] whether the batch has no later decision of the same actor."""
        return np.array(
            [actor not in self.environment[i + 1 :] for i, actor in enumerate(self.environment)]
        )

    @cached_property
    def lag(self) -> Integers:
        """[I, I] how much later the second decision is."""
        return self.time[None, :] - self.time[:, None]


_Shape = Callable[[Places, float], Array]


def _power(discount: float, exponent: Integers, where: Booleans) -> Array:
    powers: Array = np.where(where, discount ** np.where(where, exponent, 0).astype(float), 0.0)
    return powers


def _to_go(p: Places, g: float) -> Array:
    return _power(g, p.lag, p.same & (p.lag >= 0))


def _whole(p: Places, g: float) -> Array:
    return _power(g, np.broadcast_to(p.time[None, :], p.lag.shape), p.same)


def _of_rows(p: Places, g: float, target: Integers) -> Array:
    """The reward-to-go of another time of the same episode."""
    base, made = _to_go(p, g), np.zeros(p.lag.shape)
    for i, (segment, time) in enumerate(zip(p.segment, target, strict=True)):
        found = np.flatnonzero((p.segment == segment) & (p.time == time))
        if len(found):
            made[i] = base[found[0]]
    return made


def _until(p: Places) -> Booleans:
    """[I, I] whether the second decision comes no later than the mirror of the first."""
    return np.asarray(p.same & (p.time[None, :] <= p.left[:, None]))


def _carried(p: Places, g: float) -> Array:
    own = p.environment[:, None] == p.environment[None, :]
    rank = np.array([(own[i] & (p.index < i)).sum() for i in p.index])
    lag = rank[None, :] - rank[:, None]
    return _power(g, lag, own & (lag >= 0))


def _carried_over_limits(p: Places, g: float) -> Array:
    """Only an end by the problem stops the sum, and none by the time limit does."""
    before = np.array(
        [
            (p.terminated & (p.environment == actor))[:k].sum()
            for k, actor in enumerate(p.environment)
        ]
    )
    uncut: Booleans = before[:, None] == before[None, :]
    return np.where(uncut, _carried(p, g), 0.0)


def _without_last(shape: _Shape) -> _Shape:
    """The same of a loop that leaves out each actor's last step."""

    def shaped(p: Places, g: float) -> Array:
        inner = ~p.last_of_actor
        return shape(p, g) * inner * inner[:, None]

    return shaped


def _carried_from_before(p: Places, g: float) -> Array:
    """Each return starts from the first return of the episode before it."""
    made = _to_go(p, g)
    for i in p.index:
        own = p.environment == p.environment[i]
        before = own & (p.segment != p.segment[i]) & (p.index < i)
        if before.any():
            last = p.segment[np.flatnonzero(before)[-1]]
            first = np.flatnonzero(p.segment == last)[0]
            made[i] += g ** float(p.left[i] + 1) * made[first]
    return made


def _over_actors(p: Places, g: float) -> Array:
    lag = p.index[None, :] - p.index[:, None]
    return _power(g, lag, lag >= 0)


def _next_of_batch(p: Places, g: float) -> Array:
    base = _to_go(p, g)
    return np.concatenate([base[1:], np.zeros((1, len(base)))])


# The right ones first: of several that explain M, the first is taken.
_SHAPES: tuple[tuple[str, _Shape], ...] = (
    ("", _to_go),
    ("whole-episode-return", _whole),
    ("immediate-reward", lambda p, g: np.eye(len(p.time))),
    ("immediate-reward-twice", lambda p, g: _to_go(p, g) + np.eye(len(p.time))),
    ("rewards-so-far", lambda p, g: _power(g, -p.lag, p.same & (p.lag <= 0))),
    (
        "discount-from-the-end",
        lambda p, g: _power(
            g, np.broadcast_to(p.left[None, :], p.lag.shape), p.same & (p.lag >= 0)
        ),
    ),
    ("reversed-returns", lambda p, g: _of_rows(p, g, p.left)),
    ("reversed-returns", lambda p, g: _power(g, p.left[:, None] - p.time, _until(p))),
    ("shifted-rewards", lambda p, g: _of_rows(p, g, p.time + 1)),
    ("shifted-rewards", lambda p, g: _of_rows(p, g, p.time - 1)),
    ("shifted-rewards", _next_of_batch),
    ("last-reward-dropped", lambda p, g: _to_go(p, g) * (p.left > 0)[None, :]),
    ("return-carried-over-episodes", _carried),
    ("return-carried-over-episodes", _carried_over_limits),
    ("return-carried-over-episodes", _without_last(_carried)),
    ("return-carried-over-episodes", _without_last(_carried_over_limits)),
    ("return-carried-over-episodes", _carried_from_before),
    ("return-carried-over-actors", _over_actors),
    # all actions get the same sum, of the batch or of their episode
    ("", lambda p, g: np.tile(_to_go(p, g).sum(axis=0), (len(p.time), 1))),
    ("", lambda p, g: p.same @ _to_go(p, g)),
)
_Mean = Callable[[Places, Array], Array]


def _others(p: Places, rows: Array, alike: Callable[[int, int], bool]) -> Array:
    """[I, N] the mean of those rows of other episodes that are alike, in the given sense."""
    made = np.zeros_like(rows)
    for i in p.index:
        kept = [k for k in p.index if p.segment[k] != p.segment[i] and alike(int(i), int(k))]
        if kept:
            made[i] = rows[kept].mean(axis=0)
    return made


_MEANS: tuple[tuple[str, _Mean], ...] = (
    ("", lambda p, rows: np.zeros_like(rows)),
    ("batch", lambda p, rows: np.tile(rows.mean(axis=0), (len(rows), 1))),
    ("so-far", lambda p, rows: np.cumsum(rows, axis=0) / (1.0 + p.index[:, None])),
    ("episode", lambda p, rows: np.array([rows[p.segment == s].mean(axis=0) for s in p.segment])),
    ("returns", lambda p, rows: np.tile(rows[p.first].mean(axis=0), (len(rows), 1))),
    ("other-episodes", lambda p, rows: _others(p, rows, lambda i, k: True)),
    ("other-returns", lambda p, rows: _others(p, rows, lambda i, k: k in p.first)),
    ("other-times", lambda p, rows: _others(p, rows, lambda i, k: p.time[i] == p.time[k])),
)


def _fitted(
    credit: Array, places: Places, name: str, shape: _Shape, mean: str, rows: _Mean
) -> Reading | None:
    """The reading by one shape and one mean, at the discount that leaves least."""
    size = float(np.linalg.norm(credit))

    def left(discount: float) -> float:
        base = shape(places, discount)
        return _solve(credit, base, rows(places, base))[2] / size

    depends = np.abs(shape(places, 0.3) - shape(places, 0.8)).max() > 0
    if not depends:
        best = 1.0
    else:
        found = [left(float(discount)) for discount in _GRID]
        start = float(_GRID[int(np.argmin(found))])
        if min(found) > _PROMISING:
            return None
        best = min((start, *_ratios(credit), refined(left, start, _GRID[1])), key=left)
        if name and best < _OUTSIDE:
            return None  # without its powers it is another rule
    base = shape(places, best)
    factor, beta, off = _solve(credit, base, rows(places, base))
    if off > EXPLAINS * size or (mean and not EXPLAINS < beta < _MOST):
        return None
    live = np.abs(factor[np.abs(base).sum(axis=1) > 0])
    if (name or mean) and live.min(initial=1.0) <= EXPLAINS * live.max(initial=0.0):
        return None  # a row of zeros is borne out by anything
    discount = best if depends else float("nan")
    return Reading(name, mean, beta, discount, _dated(places, factor), factor, off / size)


def _ratios(credit: Array) -> Iterator[float]:
    """Ratios of neighbours in M: of a linear program they are its discount without rounding."""
    with np.errstate(all="ignore"):
        ratios = (credit[:, 1:] / credit[:, :-1]).ravel()
    close = ratios[np.isfinite(ratios) & (ratios > 0.01) & (ratios <= 1.0 + 1e-9)]
    yield from np.unique(close.round(13)).tolist()


def _solve(credit: Array, base: Array, mean: Array) -> tuple[Array, float, float]:
    """a [I] and β of M_i = a_i (L_i − β m_i), and the size of what is left."""
    beta = _subtracted(credit, base, mean) if mean.any() else 0.0
    rows = base - beta * mean
    square = (rows * rows).sum(axis=1)
    factor = np.divide(
        (credit * rows).sum(axis=1), square, out=np.zeros(len(rows)), where=square > 0
    )
    return factor, beta, float(np.linalg.norm(credit - factor[:, None] * rows))


def _subtracted(credit: Array, base: Array, mean: Array) -> float:
    """β: the median of −b / a over the rows' least squares of a L_i + b m_i to M_i."""
    own, shared = (base * base).sum(axis=1), (mean * mean).sum(axis=1)
    both = (base * mean).sum(axis=1)
    on_own, on_shared = (credit * base).sum(axis=1), (credit * mean).sum(axis=1)
    determinant = own * shared - both**2
    told = determinant > 1e-9 * own * shared
    # Cramer's rule; the determinant cancels in the ratio
    a, b = shared * on_own - both * on_shared, own * on_shared - both * on_own
    told &= np.abs(a) > 1e-9 * determinant
    return -float(np.median(b[told] / a[told])) if told.any() else 0.0


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
