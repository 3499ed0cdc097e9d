"""Pong: the observation from the picture that is shown, one learned update, the first game."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from eligibility.train import tasks
from eligibility.train.learner import Progress, Reinforce


@pytest.fixture(scope="module")
def game() -> gymnasium.Env:
    tasks.register()
    return gymnasium.make("eligibility/Pong-v0", render_mode="rgb_array")


def reduced(picture: np.ndarray) -> np.ndarray:
    """Karpathy's own route: by the red channel, ground 144 or 109."""
    red = picture[35:195][::2, ::2, 0].astype(int)
    return np.where((red == 144) | (red == 109), 0, 1).ravel()


def test_an_observation_is_the_difference_of_two_reduced_pictures(game: gymnasium.Env) -> None:
    seen, _ = game.reset(seed=1)
    assert not seen.any()
    before, moved = reduced(game.render()), 0
    for step in range(60):
        seen, reward, terminated, _, _ = game.step(np.array([step % 2]))
        now = reduced(game.render())
        np.testing.assert_array_equal(seen, now - before)
        assert game.observation_space.contains(seen)
        assert reward in (-1, 0, 1)
        assert not terminated
        before, moved = now, moved + np.abs(seen).sum()
    assert moved > 100


def test_one_moves_the_paddle_up_and_zero_down(game: gymnasium.Env) -> None:
    heights = []
    for bit in (1, 0):
        game.reset(seed=1)
        for _ in range(30):
            game.step(np.array([bit]))
        paddle = np.nonzero(reduced(game.render()).reshape(80, 80)[:, 70])[0]
        heights.append(paddle.mean())
    assert heights[0] < heights[1]  # rows count from the top


def test_the_same_seed_gives_the_same_game(game: gymnasium.Env) -> None:
    runs = []
    for _ in range(2):
        game.reset(seed=5)
        runs.append(np.stack([game.step(np.array([t // 7 % 2]))[0] for t in range(80)]))
    np.testing.assert_array_equal(*runs)


def test_the_preset_makes_an_update_that_moves_every_layer() -> None:
    model = Reinforce("eligibility/Pong-v0", environments=2, max_episode_steps=150)
    before = [parameter.clone() for parameter in model.network.parameters()]
    model.learn(total_steps=1)
    assert model.progress.updates == 1
    assert model.progress.steps == 300
    assert model.progress.gradient_norm > 0
    for parameter, old in zip(model.network.parameters(), before, strict=True):
        assert not parameter.equal(old)
    assert model.network.layers[0].weight.shape == (200, 6400)
    assert model.predict(np.zeros(6400, np.int8)).shape == (1,)
    assert isinstance(model.progress, Progress)
