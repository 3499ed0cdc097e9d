"""How the decisions of a path hang together: which episode, which order, which actor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.evidence import Evidence


@dataclass(frozen=True)
class Timeline:
    """Relations between decisions i and j of the same path, as [P, I, I] masks.

    Attributes:
        reward: [P, I].
        log_prob: [P, I] ln π(a|s).
        time: [P, I] step of the episode.
        present: [P, I] whether there is such a decision.
        episode: i and j belong to the same episode of the same actor.
        later: as ``episode``, and j is not before i.
        batch: both are present.
        same_actor: i and j belong to the same actor, and j is not before i in the batch.
        order: [P, I] position of the decision in its actor's part of the batch.
        length: [P, I] steps of the decision's episode.
        steps: [P] decisions of the path.
        episodes: [P] episodes of the path.
    """

    reward: Array
    log_prob: Array
    time: Integers
    present: Booleans
    episode: Booleans
    later: Booleans
    batch: Booleans
    same_actor: Booleans
    order: Integers
    length: Integers
    steps: Integers
    episodes: Integers

    @property
    def last_of_batch(self) -> Booleans:
        """[P, I] whether no decision of the path comes after it."""
        index = np.arange(self.present.shape[1])
        last: Booleans = index[None, :] == self.steps[:, None] - 1
        return last

    @property
    def single(self) -> bool:
        """Whether every path is one episode."""
        return bool((self.episodes == 1).all())

    def discounted(self, discount: float) -> Array:
        """[P, I] reward-to-go: Σ_{j ≥ i} γ^(t_j − t_i) r_j within the episode."""
        return self.accumulated(self.reward, discount)

    def accumulated(self, values: Array, factor: float) -> Array:
        """[P, I] Σ_{j ≥ i} factor^(t_j − t_i) values_j within the episode."""
        gap = self.time[:, None, :] - self.time[:, :, None]
        matrix = np.where(self.later, factor ** np.maximum(gap, 0), 0.0)
        total: Array = (matrix * values[:, None, :]).sum(axis=2)
        return total

    def carried(self, discount: float) -> Array:
        """[P, I] the same without a stop at the end of an episode."""
        gap = self.order[:, None, :] - self.order[:, :, None]
        return self._weigh(np.where(self.same_actor, discount ** np.maximum(gap, 0), 0.0))

    def carried_from_before(self, discount: float) -> Array:
        """[P, I] the return, started from the first return of the episode before instead of 0."""
        start = self.order - self.time
        between = start[:, :, None] - start[:, None, :] - self.length[:, None, :]
        gap = (self.length - self.time)[:, :, None] + between + self.time[:, None, :]
        earlier = np.swapaxes(self.same_actor, 1, 2) & ~self.episode
        before = self._weigh(np.where(earlier, discount ** np.maximum(gap, 0), 0.0))
        return self.discounted(discount) + before

    def carried_over_actors(self, discount: float) -> Array:
        """[P, I] the same over the whole batch in the order of collection, whoever acted."""
        index = np.arange(self.present.shape[1])
        gap = (index[None, :] - index[:, None])[None]
        return self._weigh(np.where(self.batch & (gap >= 0), discount ** np.maximum(gap, 0), 0.0))

    def episode_return(self, discount: float) -> Array:
        """[P, I] G_0 of the decision's episode."""
        return self._weigh(np.where(self.episode, discount ** self.time[:, None, :], 0.0))

    def from_the_end(self, discount: float) -> Array:
        """[P, I] Σ_{j ≥ i} γ^(T − 1 − j) r_j: the discount counted from the wrong end."""
        left = self.length[:, None, :] - 1 - self.time[:, None, :]
        return self._weigh(np.where(self.later, discount ** np.maximum(left, 0), 0.0))

    def so_far(self, discount: float) -> Array:
        """[P, I] Σ_{j ≤ i} γ^(t_i − t_j) r_j: rewards of the past."""
        gap = self.time[:, :, None] - self.time[:, None, :]
        earlier = np.swapaxes(self.later, 1, 2)
        return self._weigh(np.where(earlier, discount ** np.maximum(gap, 0), 0.0))

    def mirrored(self, values: Array) -> Array:
        """[P, I] the episode's values in reversed order."""
        target = self.length - 1 - self.time
        return self._at(values, target)

    def shifted(self, values: Array, by: int) -> Array:
        """[P, I] the value ``by`` steps later in the episode; 0 beyond its ends."""
        return self._at(values, self.time + by)

    def shifted_in_batch(self, values: Array) -> Array:
        """[P, I] the value of the next decision of the batch, also beyond the episode's end."""
        index = np.arange(self.present.shape[1])
        following = self.batch & (index[None, :] == index[:, None] + 1)[None]
        total: Array = (following * values[:, None, :]).sum(axis=2)
        return total

    def mean(self, values: Array, scope: Booleans) -> Array:
        """[P, I] mean over the decisions that ``scope`` relates to each."""
        count = np.maximum(scope.sum(axis=2), 1)
        total: Array = (scope * values[:, None, :]).sum(axis=2) / count
        return total

    def _at(self, values: Array, target: Integers) -> Array:
        hits = self.episode & (self.time[:, None, :] == target[:, :, None])
        total: Array = (hits * values[:, None, :]).sum(axis=2)
        return total

    def _weigh(self, matrix: Array) -> Array:
        total: Array = (matrix * self.reward[:, None, :]).sum(axis=2)
        return total


def timeline(evidence: Evidence) -> Timeline:
    """The relations in ``evidence``."""
    present = evidence.present
    batch = present[:, :, None] & present[:, None, :]
    actor = evidence.environment[:, :, None] == evidence.environment[:, None, :]
    same = evidence.episode[:, :, None] == evidence.episode[:, None, :]
    episode = batch & actor & same
    index = np.arange(present.shape[1])
    forward = (index[None, :] >= index[:, None])[None]
    before = np.swapaxes(batch & actor & forward, 1, 2)
    has_earlier = episode & (index[None, :] < index[:, None])[None]
    return Timeline(
        reward=evidence.reward,
        log_prob=evidence.log_prob,
        time=evidence.time,
        present=present,
        episode=episode,
        later=episode & (evidence.time[:, None, :] >= evidence.time[:, :, None]),
        batch=batch,
        same_actor=batch & actor & forward,
        order=before.sum(axis=2) - 1,
        length=episode.sum(axis=2),
        steps=present.sum(axis=1),
        episodes=(present & ~has_earlier.any(axis=2)).sum(axis=1),
    )
