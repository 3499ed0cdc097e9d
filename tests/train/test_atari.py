"""ALE's own vector environment: its seeds are signed, and what is seen is not what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eligibility.errors import InvalidValueError
from eligibility.train.environments import make_vector
from eligibility.train.learner import Reinforce
from eligibility.train.video import check_video

pytest.importorskip("ale_py")
GAME = "ALE/Breakout-v5"


def model(env: Any) -> Reinforce:
    return Reinforce(
        env, environments=2, max_episode_steps=5, hidden_sizes=(4,), convolution=False, seed=1
    )


def test_it_learns_from_an_id_and_from_a_vector() -> None:
    import gymnasium

    by_id, by_vector = model(GAME), model(gymnasium.make_vec(GAME, num_envs=2))
    for each in (by_id, by_vector):
        each.learn(total_steps=50)  # five rollouts, whose seeds are drawn from 32 bits
        assert each.progress.episodes == 10
    same = zip(by_id.network.parameters(), by_vector.network.parameters(), strict=True)
    assert all(bool((a == b).all()) for a, b in same)


@pytest.mark.parametrize("seed", [None, 0, 2**31 - 1, 2**32 - 1])
def test_any_seed_is_taken(seed: int | None) -> None:
    vector = make_vector(GAME, 2)
    assert vector.reset(seed=seed)[0].shape == (2, 4, 84, 84)
    vector.close()


def test_a_film_of_other_observations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError) as raised:
        check_video(tmp_path / "film.gif", GAME)
    assert str(raised.value) == (
        "`--video`: got observations [210, 160, 3] of the environment that draws itself, expected "
        "[4, 84, 84], those of the vector environment that is trained on; omit it, or train on "
        "file.py:Name, a function that makes one with its wrappers"
    )
    assert list(tmp_path.iterdir()) == []
