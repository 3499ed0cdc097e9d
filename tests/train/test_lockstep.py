"""Stepping each environment for one episode: what counts is as in Gymnasium's own vector."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

from eligibility.train.vectors import OneEpisodeVector


def test_up_to_the_end_of_each_episode_it_is_a_sync_vector_env() -> None:
    make = [partial(gymnasium.make, "FrozenLake-v1")] * 5
    ours, theirs = OneEpisodeVector(make), SyncVectorEnv(make)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    alive, lengths = np.ones(5, bool), np.zeros(5, int)
    rng = np.random.default_rng(0)
    while alive.any():
        action = rng.integers(0, 4, 5)
        one, other = ours.step(action), theirs.step(action)
        for got, wanted in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(got[alive], wanted[alive])
        assert one[4]["_prob"][alive].all()
        alive &= ~(other[2] | other[3])
        lengths += alive
    assert len(set(lengths)) > 1  # the episodes did differ in length


def test_an_episode_that_is_over_waits_for_the_next_reset() -> None:
    vector = OneEpisodeVector([partial(gymnasium.make, "FrozenLake-v1", is_slippery=False)] * 2)
    vector.reset(seed=0)
    right, down = 2, 1
    vector.step(np.array([right, down]))
    _, _, terminated, _, _ = vector.step(np.array([down, down]))  # the first one is in a hole
    assert terminated.tolist() == [True, False]
    seen, rewards, terminated, _, infos = vector.step(np.array([right, right]))
    assert seen[0] == 5
    assert rewards[0] == 0
    assert terminated[0]
    assert not infos["_prob"][0]
    seen, _ = vector.reset(seed=0)
    assert seen.tolist() == [0, 0]
    assert not vector.step(np.array([right, right]))[2].any()
