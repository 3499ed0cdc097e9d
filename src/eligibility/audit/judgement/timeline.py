"""How the decisions of a path hang together: which episode, which order, which actor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.judgement.evidence import LONG_BATCH, Evidence

_NONE = -1  # no such decision


@dataclass(frozen=True, eq=False)
class Timeline:
    """Relations between the decisions of a path, as positions and numbers of its episodes.

    Time and memory are linear in the decisions, so that batches of thousands of steps can be read.

    Rewards, log-probabilities, times and rows are those of the `Evidence`.

    Attributes:
        segment: [P, I] number of the decision's episode within its path, over all actors.
        following: [P, I] position of the next decision of the episode, or -1.
        following_of_actor: [P, I] position of the next decision of the same actor, or -1.
        at_row: [P, A, R] position of the decision of actor A in row R, or -1.
        column: [P, I] number of the decision's actor.
        following_in_batch: [P, I] position of the next decision of the path, or -1.
        first_before: [P, I] position of the first decision of the actor's episode before, or -1.
        position: [P, S, T] position of the decision of episode S at its time T, or -1.
        length: [P, I] steps of the decision's episode.
        steps: [P] decisions of the path.
        episodes: [P] episodes of the path.
    """

    reward: Array
    log_prob: Array
    time: Integers
    present: Booleans
    used: Booleans
    segment: Integers
    following: Integers
    following_of_actor: Integers
    row: Integers
    rows: Integers
    at_row: Integers
    column: Integers
    following_in_batch: Integers
    first_before: Integers
    position: Integers
    length: Integers
    steps: Integers
    episodes: Integers

    @property
    def long(self) -> bool:
        """Whether only the likeliest rules are tried."""
        return bool(self.present.shape[1] > LONG_BATCH)

    @property
    def last_of_batch(self) -> Booleans:
        """[P, I] whether no decision of the path comes after it."""
        index = np.arange(self.present.shape[1])
        last: Booleans = index[None, :] == self.steps[:, None] - 1
        return last

    @property
    def last_of_rollout(self) -> Booleans:
        """[P, I] whether the decision is in the last row of the rollout."""
        last: Booleans = self.row == self.rows[:, None] - 1
        return last

    @property
    def crowded(self) -> bool:
        """Whether several actors play side by side."""
        return int(self.at_row.shape[1]) > 1

    @property
    def gapless(self) -> bool:
        """Whether no row of the rollout is empty: no actor's action was ignored."""
        return bool((self.present.sum(axis=1) == self.rows * (self.column.max(axis=1) + 1)).all())

    @property
    def single(self) -> bool:
        """Whether every path is one episode."""
        return bool((self.episodes == 1).all())

    def is_cut(self, evidence: Evidence) -> bool:
        """Whether some episode has no end within its path."""
        ended = self.total(evidence.terminated | evidence.truncated, "episode") > 0
        return bool((self.present & ~ended).any())

    def discounted(self, discount: float) -> Array:
        """[P, I] reward-to-go: Σ_{j ≥ i} γ^(t_j − t_i) r_j within the episode."""
        return self.accumulated(self.reward, discount)

    def accumulated(self, values: Array, factor: float, steps: int = 0) -> Array:
        """[P, I] Σ_{j ≥ i} factor^(t_j − t_i) values_j within the episode.

        With ``steps`` above 0, the sum stops after that number of terms.
        """
        own = np.where(self.present, values, 0.0)
        total = own
        for _ in range((steps or self.longest) - 1):
            total = own + factor * self._taken(total, self.following)
        return total

    def carried(self, discount: float) -> Array:
        """[P, I] the same without a stop at the end of an episode."""
        return self.chained(self.reward, discount)

    def chained(self, values: Array, factor: float | Array) -> Array:
        """[P, I] x_i = values_i + factor_i · x_j, where j is the next decision of the actor."""
        return self._chained(values, factor, self.following_of_actor)

    def next_of_actor(self, values: Array, last: Array) -> Array:
        """[P, I] the value of the actor's next decision; behind its last one, ``last`` [P, I]."""
        after = self.following_of_actor
        return np.where(after == _NONE, last, self._taken(values, after))

    def carried_by_row(self, discount: float) -> Array:
        """[P, I] the same, discounted also for the rows in between whose actions were ignored."""
        return self._from_rows(self._by_row(self.reward, discount, accumulate=True))

    def carried_from_before(self, discount: float) -> Array:
        """[P, I] the return, started from the first return of the episode before instead of 0."""
        values = self.discounted(discount)
        rest = discount ** np.maximum(self.length - self.time, 0)
        rows = np.arange(len(values))
        for i in range(values.shape[1]):
            before = self.first_before[:, i]
            values[:, i] += np.where(before == _NONE, 0.0, rest[:, i] * values[rows, before])
        return values

    def carried_over_actors(self, discount: float) -> Array:
        """[P, I] the same over the whole batch in the order of collection, whoever acted."""
        return self._chained(self.reward, discount, self.following_in_batch)

    def episode_return(self, discount: float) -> Array:
        """[P, I] G_0 of the decision's episode."""
        return self.total(self.reward * discount**self.time, "episode")

    def from_the_end(self, discount: float) -> Array:
        """[P, I] Σ_{j ≥ i} γ^(T − 1 − j) r_j: the discount counted from the wrong end."""
        left = np.maximum(self.length - 1 - self.time, 0)
        return self.accumulated(self.reward * discount**left, 1.0)

    def so_far(self, discount: float) -> Array:
        """[P, I] Σ_{j ≤ i} γ^(t_i − t_j) r_j: rewards of the past."""
        own = np.where(self.present, self.reward, 0.0)
        total = own
        for _ in range(self.longest - 1):
            total = own + discount * self.shifted(total, -1)
        return total

    def mirrored(self, values: Array) -> Array:
        """[P, I] the episode's values in reversed order."""
        return self._at(values, self.length - 1 - self.time)

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return int(self.position.shape[2])

    def shifted(self, values: Array, by: int) -> Array:
        """[P, I] the value ``by`` steps later in the episode; 0 beyond its ends."""
        return self._at(values, self.time + by)

    def shifted_in_batch(self, values: Array) -> Array:
        """[P, I] the value of the next decision of the batch, also beyond the episode's end."""
        return self._taken(values, self.following_in_batch)

    def mirrored_in_rollout(self, values: Array, discount: float) -> Array:
        """[P, I] the values of each actor's rows in reversed order."""
        rows = self._by_row(values, discount)
        index = self.rows[:, None, None] - 1 - np.arange(rows.shape[2])
        taken = np.take_along_axis(rows, np.broadcast_to(index % rows.shape[2], rows.shape), axis=2)
        return self._from_rows(np.where(index >= 0, taken, 0.0))

    def shifted_in_rollout(self, values: Array, discount: float) -> Array:
        """[P, I] the value of the actor's next row, also beyond the episode's end."""
        rows = self._by_row(values, discount)
        following = np.zeros_like(rows)
        following[:, :, :-1] = rows[:, :, 1:]
        return self._from_rows(following)

    def total(self, values: Array | Booleans, scope: str) -> Array:
        """[P, I] sum over the decisions of the "batch", the decision's "episode" or its "time".

        Of several values [V, P, I], each by itself.
        """
        values = np.where(self.present, values, 0.0)
        if scope == "batch":
            whole: Array = (values * self.used).sum(axis=-1, keepdims=True) * self.present
            return whole
        place, count = self._places[scope]
        several = values.size // max(place.size, 1)
        if several != 1:
            place = (place + count * np.arange(several)[:, None]).ravel()
        sums = np.bincount(place, values.ravel(), count * several)
        spread: Array = np.where(self.present, sums[place].reshape(values.shape), 0.0)
        return spread

    @cached_property
    def _places(self) -> dict[str, tuple[Integers, int]]:
        """[P · I] by scope: the number of the decision's episode or time, and how many there are.

        What is no decision has the number 0, and adds nothing to it.
        """
        scopes = {
            "episode": (self.segment, self.position.shape[1]),
            "time": (self.time, self.position.shape[2]),
        }
        rows = np.arange(len(self.present))[:, None]
        return {
            scope: (np.where(self.present, own + width * rows, 0).ravel(), width * len(rows))
            for scope, (own, width) in scopes.items()
        }

    def powers(self, discount: float) -> Array:
        """[P, I] γ^t."""
        if discount not in self._powers:
            self._powers[discount] = np.asarray(discount**self.time, dtype=float)
        return self._powers[discount]

    @cached_property
    def _powers(self) -> dict[float, Array]:
        return {}

    def count(self, scope: str) -> Array:
        """[P, I] number of the decisions of a scope; 1 where there is no decision."""
        return self._counts[scope]

    @cached_property
    def _counts(self) -> dict[str, Array]:
        ones = np.ones(self.present.shape)
        scopes = ("batch", "episode", "time")
        return {scope: np.maximum(self.total(ones, scope), 1.0) for scope in scopes}

    @cached_property
    def firsts(self) -> Array:
        """[P, I] 1 at the first step of each episode, else 0."""
        firsts: Array = 1.0 - self.shifted(np.ones(self.present.shape), -1)
        return firsts

    @cached_property
    def returns(self) -> Array:
        """[P, I] number of the batch's episodes."""
        return self.total(self.firsts, "batch")

    def mean(self, values: Array, scope: str) -> Array:
        """[P, I] mean over the decisions of a scope."""
        return self.total(values, scope) / self.count(scope)

    def _chained(self, values: Array, factor: float | Array, following: Integers) -> Array:
        """[P, I] x_i = values_i + factor_i · x_{following_i}, from the last decision on."""
        total = np.where(self.present, values, 0.0)
        factors = np.broadcast_to(factor, total.shape)
        rows = np.arange(len(total))
        for i in reversed(range(total.shape[1])):
            after = following[:, i]
            total[:, i] += np.where(after == _NONE, 0.0, factors[:, i] * total[rows, after])
        return total

    def _by_row(self, values: Array, discount: float, accumulate: bool = False) -> Array:
        """[P, A, R] values at their rows; an empty one has the discounted value of the next row.

        With ``accumulate`` every row adds the discounted value of the next one to its own.
        """
        rows = np.arange(len(values))[:, None, None]
        filled = self.at_row != _NONE
        table: Array = np.where(filled, values[rows, self.at_row], 0.0)
        for r in reversed(range(table.shape[2] - 1)):
            carried = discount * table[:, :, r + 1]
            table[:, :, r] += carried if accumulate else np.where(filled[:, :, r], 0.0, carried)
        return table

    def _from_rows(self, table: Array) -> Array:
        rows = np.arange(len(table))[:, None]
        taken: Array = np.where(self.present, table[rows, self.column, self.row], 0.0)
        return taken

    def _at(self, values: Array, target: Integers) -> Array:
        """[P, I] the value of the same episode at time ``target``."""
        inside = self.present & (target >= 0) & (target < self.longest)
        rows = np.arange(len(values))[:, None]
        segment = np.where(self.present, self.segment, 0)
        found = self.position[rows, segment, np.clip(target, 0, self.longest - 1)]
        return self._taken(values, np.where(inside, found, _NONE))

    def _taken(self, values: Array, where: Integers) -> Array:
        rows = np.arange(len(values))[:, None]
        taken: Array = np.where(where == _NONE, 0.0, values[rows, where])
        return taken


def timeline(evidence: Evidence) -> Timeline:
    """The relations in ``evidence``."""
    present, time = evidence.present, evidence.time
    shape = present.shape
    path, index = np.nonzero(present)  # in the order of collection
    actor = evidence.environment[present]
    order = np.lexsort((index, evidence.episode[present], actor, path))
    steps = present.sum(axis=1)
    new_actor = _changes(path[order], actor[order])
    new = new_actor | _changes(evidence.episode[present][order])
    number = np.cumsum(new) - 1  # of the episode, over all paths
    starts = np.flatnonzero(new)
    before = np.concatenate([[0], np.cumsum(np.bincount(path[order][starts], minlength=shape[0]))])
    segment = _filled(shape, path[order], index[order], number - before[path[order]])
    length = np.diff(np.append(starts, len(order)))[number]
    # the episode before, of the same actor
    first = index[order][starts]
    earlier = np.concatenate([[_NONE], first[:-1]])
    earlier[new_actor[starts]] = _NONE
    width, longest = int(np.diff(before).max(initial=1)), int(time[present].max(initial=0)) + 1
    position = np.full((shape[0], width, longest), _NONE)
    position[path, segment[present], time[present]] = index
    column = np.where(present, evidence.environment, 0)
    at_row = np.full((shape[0], int(column.max(initial=0)) + 1, int(evidence.rows.max())), _NONE)
    at_row[path, actor, evidence.row[present]] = index
    in_batch = np.where(np.arange(shape[1]) < steps[:, None] - 1, np.arange(1, shape[1] + 1), _NONE)
    return Timeline(
        reward=evidence.reward,
        log_prob=evidence.log_prob,
        time=time,
        present=present,
        used=evidence.used,
        segment=segment,
        following=_filled(shape, path[order], index[order], _next(index[order], new)),
        following_of_actor=_filled(
            shape, path[order], index[order], _next(index[order], new_actor)
        ),
        row=evidence.row,
        rows=evidence.rows,
        at_row=at_row,
        column=column,
        following_in_batch=in_batch,
        first_before=_filled(shape, path[order], index[order], earlier[number]),
        position=position,
        length=np.maximum(_filled(shape, path[order], index[order], length), 0),
        steps=evidence.used.sum(axis=1),
        episodes=np.diff(before),
    )


def _changes(*columns: Integers) -> Booleans:
    """Whether an entry differs from the one before it in any column; the first one does."""
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _next(index: Integers, new: Booleans) -> Integers:
    """The entry after each one; -1 where that starts something new."""
    following = np.append(index[1:], _NONE)
    following[:-1][new[1:]] = _NONE
    return following


def _filled(shape: tuple[int, ...], path: Integers, index: Integers, values: Integers) -> Integers:
    """[P, I] ``values`` at their places, -1 elsewhere."""
    filled = np.full(shape, _NONE)
    filled[path, index] = values
    return filled
