"""The allocation task and its space: the optimum by enumeration, and what learning makes of it."""

from __future__ import annotations

import itertools
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from eligibility.errors import EligibilityError
from eligibility.spaces.counts import Counts
from eligibility.train import tasks
from eligibility.train.learner import Reinforce
from eligibility.train.tasks.allocation import Allocation


@pytest.mark.parametrize(("units", "bins"), [(1, 2), (4, 3), (5, 4)])
def test_the_best_counts_are_the_best_of_all_ways(units: int, bins: int) -> None:
    env = Allocation(units, bins)
    ways = [w for w in itertools.product(range(units + 1), repeat=bins) if sum(w) == units]
    for seed in range(20):
        env.reset(seed=seed)
        best = env.best()
        assert best in env.action_space
        assert env.yields(best) == pytest.approx(max(env.yields(np.array(way)) for way in ways))


def test_the_best_counts_pay_one_and_all_others_less() -> None:
    tasks.register()
    env = gymnasium.make("eligibility/Allocation-v0")
    env.reset(seed=3)
    env.action_space.seed(3)
    rewards, truncated = [], False
    while not truncated:
        best = len(rewards) % 2
        action = env.unwrapped.best() if best else env.action_space.sample()
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        assert not terminated
    assert len(rewards) == 20
    assert rewards[1::2] == [1.0] * 10
    assert all(0 < reward < 1 for reward in rewards[::2])


def test_sharing_out_is_learned_to_nearly_the_optimum() -> None:
    model = Reinforce("eligibility/Allocation-v0", steps=30_000).learn()
    assert model.progress.mean_return > 0.9 * 20  # a multinomial's counts are never certain
    assert model.evaluate(50).mean_return > 0.96 * 20
    action = model.predict(np.array([1, 0], np.float32))
    assert action in Counts(12, 6)


def test_gymnasiums_checker_has_nothing_to_say() -> None:
    check_env(Allocation(), skip_render_check=True)


def test_an_action_that_is_not_in_the_space_is_refused() -> None:
    env = Allocation(3, 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=re.escape("[3 1] is not in Counts(3, 2)")):
        env.step(np.array([3, 1]))


def test_counts_are_sampled_within_their_space_and_their_mask() -> None:
    space = Counts(5, 3, seed=0)
    for _ in range(20):
        assert space.contains(space.sample())
        assert space.sample(mask=[1, 0, 1])[1] == 0
        assert space.sample(probability=[0, 1, 0]).tolist() == [0, 5, 0]
    for outside in ([5, 0], [4, 0, 0], [6, 0, -1], [2.5, 2.5, 0]):
        assert not space.contains(np.array(outside))
    assert not space.contains([5, 0, 0])
    assert space == Counts(5, 3) != Counts(5, 4)
    assert space.from_jsonable(space.to_jsonable([space.sample()]))[0] in space


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, 3), "`total`: got 0, expected a whole number >= 1; choose a larger one"),
        ((3, 1), "`bins`: got 1, expected a whole number >= 2; choose a larger one"),
        ((3.0, 2), "`total`: got 3.0, expected a whole number >= 1; pass an int"),
    ],
)
def test_a_space_without_sense_is_refused(arguments: tuple, text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Counts(*arguments)
