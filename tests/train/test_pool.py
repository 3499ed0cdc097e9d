"""What makes EnvPool's environments ours, with a stand-in for EnvPool.

The package and its assets are half a gigabyte, too much for every test run. With the real one
(1.2.5), the preset of CartPole-v1 was trained by hand: solved, the same run bit for bit from the
same seed, and after a resumption.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from eligibility.errors import MissingDependencyError
from eligibility.train.environments import horizon, make_vector, reward_threshold
from eligibility.train.learner import Reinforce


class Pool(SyncVectorEnv):
    """As EnvPool's: seeded when it is made, and a reset goes on from there."""

    def __init__(self, task: str, num_envs: int, seed: int) -> None:
        super().__init__([lambda: gymnasium.make(task)] * num_envs)
        self.config = {"max_episode_steps": 77}
        self.spec: Any = types.SimpleNamespace(reward_threshold=12.0)
        super().reset(seed=seed)

    def reset(self, **options: Any) -> Any:
        assert "seed" not in options
        return super().reset(**options)


@pytest.fixture
def envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("envpool")
    module.make_gymnasium = Pool
    monkeypatch.setitem(sys.modules, "envpool", module)
    monkeypatch.delitem(sys.modules, "eligibility.train.pool", raising=False)


@pytest.mark.usefixtures("envpool")
def test_a_reset_with_a_seed_depends_on_the_seed_alone() -> None:
    vector = make_vector("envpool:CartPole-v1", 3)
    first, other = (vector.reset(seed=seed)[0].copy() for seed in (5, 6))
    vector.step(np.zeros(3, int))
    assert np.array_equal(vector.reset(seed=5)[0], first)
    assert not np.array_equal(other, first)
    assert not np.array_equal(vector.reset()[0], first)
    assert (horizon(vector, None), reward_threshold(vector)) == (77, 12.0)
    vector.close()


@pytest.mark.usefixtures("envpool")
def test_the_trainer_takes_it() -> None:
    model = Reinforce("envpool:CartPole-v1", environments=4).learn(100)
    assert model.progress.updates > 0


def test_a_missing_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.delitem(sys.modules, "eligibility.train.pool", raising=False)
    with pytest.raises(MissingDependencyError, match=r"eligibility\[envpool\]"):
        make_vector("envpool:CartPole-v1", 2)
