"""The credits that programs give, as matrices: what each reward moves of each decision's weight.

Letters: I decisions of a path, N rewards, G discounts. Every shape is computed for several
discounts at once, [G, 1, 1]: on paths of a few decisions one costs as much as twenty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.judgement.evidence import Evidence


class Places:
    """Where the decisions of a path are: [I] each."""

    def __init__(self, evidence: Evidence) -> None:
        here = evidence.present[0]
        both = np.stack([evidence.environment[0][here], evidence.episode[0][here]], axis=1)
        self.segment: Integers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        self.time: Integers = evidence.time[0][here]
        self.environment: Integers = evidence.environment[0][here]
        self.terminated: Booleans = evidence.terminated[0][here]
        self.over: Booleans = self.terminated | evidence.truncated[0][here]
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

    @cached_property
    def own(self) -> Booleans:
        """[I, I] whether two decisions are of one actor."""
        return np.asarray(self.environment[:, None] == self.environment[None, :])

    @cached_property
    def lag_of_actor(self) -> Integers:
        """[I, I] how many of the actor's decisions later the second one is."""
        rank = (self.own & (self.index[None, :] < self.index[:, None])).sum(axis=1)
        return np.asarray(rank[None, :] - rank[:, None])

    def before(self, marked: Booleans) -> Integers:
        """[I] how many of the actor's decisions before each are ``marked`` [I]."""
        earlier = self.own & marked & (self.index[None, :] < self.index[:, None])
        return np.asarray(earlier.sum(axis=1))


Shape = Callable[[Places, Array], Array]


def _power(g: Array, exponent: Integers, where: Booleans) -> Array:
    powers: Array = np.where(where, g ** np.where(where, exponent, 0).astype(float), 0.0)
    return powers


def rewards_to_go(p: Places, g: Array) -> Array:
    """[G, I, N] γ^(time between) for every later reward of the episode."""
    return _power(g, p.lag, p.same & (p.lag >= 0))


def _whole(p: Places, g: Array) -> Array:
    return _power(g, np.broadcast_to(p.time[None, :], p.lag.shape), p.same)


def _dated_to_go(p: Places, g: Array) -> Array:
    """The reward-to-go times γ^t, for means that are taken of it after that."""
    return _whole(p, g) * (p.lag >= 0)


def _immediate(p: Places, g: Array) -> Array:
    return np.eye(len(p.time)) * np.ones_like(g)


def _of_rows(p: Places, g: Array, target: Integers) -> Array:
    """The reward-to-go of another time of the same episode."""
    base = rewards_to_go(p, g)
    made = np.zeros_like(base)
    for i, (segment, time) in enumerate(zip(p.segment, target, strict=True)):
        found = np.flatnonzero((p.segment == segment) & (p.time == time))
        if len(found):
            made[:, i] = base[:, found[0]]
    return made


def _until(p: Places) -> Booleans:
    """[I, I] whether the second decision comes no later than the mirror of the first."""
    return np.asarray(p.same & (p.time[None, :] <= p.left[:, None]))


def _carried(p: Places, g: Array) -> Array:
    return _power(g, p.lag_of_actor, p.own & (p.lag_of_actor >= 0))


def _carried_over_limits(p: Places, g: Array) -> Array:
    """Only an end by the problem stops the sum, and none by the time limit does."""
    return _carried_up_to(p, g, p.terminated)


def _carried_and_cut_late(p: Places, g: Array) -> Array:
    """The end of the actor's next decision stops the sum."""
    late = (p.own & (p.lag_of_actor == 1) & p.over).any(axis=1)
    return _carried_up_to(p, g, np.asarray(late))


def _carried_up_to(p: Places, g: Array, stops: Booleans) -> Array:
    before = p.before(stops)
    return np.where(before[:, None] == before[None, :], _carried(p, g), 0.0)


def _without_last(shape: Shape) -> Shape:
    """The same of a loop that leaves out each actor's last step."""

    def shaped(p: Places, g: Array) -> Array:
        inner = ~p.last_of_actor
        return shape(p, g) * inner * inner[:, None]

    return shaped


def _carried_from_before(p: Places, g: Array) -> Array:
    """Each return starts from the first return of the episode before it."""
    made = rewards_to_go(p, g)
    for i in p.index:
        own = p.environment == p.environment[i]
        before = own & (p.segment != p.segment[i]) & (p.index < i)
        if before.any():
            last = p.segment[np.flatnonzero(before)[-1]]
            first = np.flatnonzero(p.segment == last)[0]
            made[:, i] += g[:, 0] ** float(p.left[i] + 1) * made[:, first]
    return made


def _over_actors(p: Places, g: Array) -> Array:
    lag = p.index[None, :] - p.index[:, None]
    return _power(g, lag, lag >= 0)


def _next_of_batch(p: Places, g: Array) -> Array:
    base = rewards_to_go(p, g)
    return np.concatenate([base[:, 1:], np.zeros_like(base[:, :1])], axis=1)


def _of_batch(p: Places, g: Array) -> Array:
    """All actions get the same sum."""
    base = rewards_to_go(p, g)
    return np.broadcast_to(base.sum(axis=1, keepdims=True), base.shape)


def _mean(kept: Booleans) -> Array:
    """[I, I] what takes of each row the mean of those that are kept [I, I]; none if none is."""
    return np.asarray(kept / np.maximum(kept.sum(axis=1, keepdims=True), 1))


def _of_centred(p: Places, g: Array, together: Booleans) -> Array:
    """The reward-to-go of rewards less the mean of those that are ``together`` [N, N] with them."""
    base = rewards_to_go(p, g)
    return base - base @ _mean(together)


# The right ones first: of several that explain M, the first is taken.
SHAPES: tuple[tuple[str, Shape], ...] = (
    ("", rewards_to_go),
    ("whole-episode-return", _whole),
    ("", _dated_to_go),
    ("immediate-reward", _immediate),
    ("immediate-reward-twice", lambda p, g: rewards_to_go(p, g) + np.eye(len(p.time))),
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
    ("last-reward-dropped", lambda p, g: rewards_to_go(p, g) * (p.left > 0)[None, :]),
    ("rewards-centred", lambda p, g: _of_centred(p, g, np.ones_like(p.same))),
    ("rewards-centred", lambda p, g: _of_centred(p, g, p.same)),
    ("return-carried-over-episodes", _carried),
    ("return-carried-over-episodes", _carried_over_limits),
    ("return-carried-over-episodes", _without_last(_carried)),
    ("return-carried-over-episodes", _without_last(_carried_over_limits)),
    ("return-carried-over-episodes", _carried_from_before),
    ("return-carried-over-episodes", _carried_and_cut_late),
    ("return-carried-over-actors", _over_actors),
    ("", _of_batch),
    ("", lambda p, g: p.same @ rewards_to_go(p, g)),
)


def _others(p: Places, alike: Booleans) -> Array:
    """The mean of those rows of other episodes that are alike."""
    return _mean(~p.same & alike)


# [I, I] each: what takes a mean of the rows.
MEANS: tuple[tuple[str, Callable[[Places], Array]], ...] = (
    ("", lambda p: np.zeros(p.same.shape)),
    ("batch", lambda p: _mean(np.ones_like(p.same))),
    ("so-far", lambda p: _mean(p.index[None, :] <= p.index[:, None])),
    ("episode", lambda p: _mean(p.same)),
    ("returns", lambda p: _mean(np.isin(p.index, p.first) & np.ones_like(p.same))),
    ("other-episodes", lambda p: _others(p, np.ones_like(p.same))),
    ("other-returns", lambda p: _others(p, np.isin(p.index, p.first) & np.ones_like(p.same))),
    ("time", lambda p: _mean(p.lag == 0)),
    ("time-of-all", lambda p: (p.lag == 0) / len(np.unique(p.first))),
    ("other-times", lambda p: _others(p, p.lag == 0)),
)
