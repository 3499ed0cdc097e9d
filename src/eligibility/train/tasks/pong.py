"""``eligibility/Pong-v0``: Atari's Pong as differences of small black-and-white pictures."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

# Of the grey picture: the rows of the field, without the score, and the shades of its ground, in a
# game and in the first picture of one. Of the full game: the actions that move the paddle.
_FIELD, _GROUND, _FIRST_GROUND = slice(35, 195, 2), 87, 107
_DOWN, _UP = 3, 2


class Pong(gymnasium.Env[np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """The set-up of Karpathy's "Pong from pixels" on ``ALE/Pong-v5``.

    The picture of 210 × 160 is cropped to the field, every second row and column is kept, and what
    is not ground becomes 1. An observation is the difference to the picture before: −1, 0 or 1,
    ``int8 [6400]``; the first of a game is 0. The action is one bit, 1 for up and 0 for down, so
    the policy is one of Williams' Bernoulli-logistic units. A game goes to 21 points; each pays
    +1 or −1. Everything else, four frames an action and sticky actions, is that of ``ALE/Pong-v5``.

    Raises:
        ImportError: ``ale-py`` is not installed.

    References:
        Karpathy 2016, "Deep reinforcement learning: Pong from pixels".
        Machado et al. 2018, JAIR 61:523-562, for sticky actions.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, render_mode: str | None = None) -> None:
        import ale_py

        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._game = gymnasium.make(
            "ALE/Pong-v5", obs_type="grayscale", render_mode=render_mode, disable_env_checker=True
        )
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1, 1, (80 * 80,), np.int8)
        self.action_space = spaces.MultiBinary(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """A new game."""
        super().reset(seed=seed)
        picture, info = self._game.reset(seed=seed, options=options)
        self._before = _reduce(picture)
        return np.zeros(self.observation_space.shape or (), np.int8), info

    def step(
        self, action: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], float, bool, bool, dict[str, Any]]:
        """Four frames with the paddle going up for ``[1]``, down for ``[0]``."""
        picture, reward, terminated, truncated, info = self._game.step(_UP if action[0] else _DOWN)
        now = _reduce(picture)
        difference, self._before = now - self._before, now
        return difference, float(reward), terminated, truncated, info

    def render(self) -> Any:
        return self._game.render()

    def close(self) -> None:
        self._game.close()


def _reduce(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``uint8 [210, 160]`` to ``int8 [6400]`` of 0 and 1."""
    field = picture[_FIELD, ::2].ravel()
    thing: np.ndarray[Any, Any] = (field != _GROUND) & (field != _FIRST_GROUND)
    return thing.view(np.int8)
