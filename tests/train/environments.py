"""Small environments with known answers. Gymnasium finds them by this module's name."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Bandit(gymnasium.Env[np.ndarray, int]):
    """One step, four arms that pay 0, 1, 2 and 3: the optimum is arm 3 and a return of 3."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Always the same observation."""
        super().reset(seed=seed)
        return np.array([1, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """The arm's reward, and the end."""
        return np.array([1, 0], np.float32), self.pay(action), True, False, {}

    def pay(self, action: int) -> float:
        """What the arm pays."""
        return float(action)


class Contextual(Bandit):
    """One step, five states and as many actions, both counted from 3: the right one pays 1."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(5, start=3)
        self.action_space = spaces.Discrete(5, start=3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A state drawn uniformly."""
        super().reset(seed=seed)
        self._state = int(self.np_random.integers(3, 8))
        return self._state, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """1 for repeating the state."""
        assert 3 <= action < 8
        return self._state, float(action == self._state), True, False, {}


class Endless(Bandit):
    """Never ends of its own, and pays 1 a step."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """1, for ever."""
        return np.array([1, 0], np.float32), 1.0, False, False, {}


class NotANumber(Bandit):
    """Pays NaN for arm 2."""

    def pay(self, action: int) -> float:
        """NaN for arm 2."""
        return float("nan") if action == 2 else 1.0


class Crashing(Bandit):
    """Raises for arm 2."""

    def pay(self, action: int) -> float:
        """Raises for arm 2."""
        if action == 2:
            raise RuntimeError("the arm came off")
        return 1.0


class CrashesLater(Bandit):
    """Works in the first 200 episodes of the process, then raises."""

    played = 0

    def pay(self, action: int) -> float:
        """Counts, and raises at the end of its patience."""
        CrashesLater.played += 1
        if CrashesLater.played > 200:
            raise RuntimeError("worn out")
        return float(action)


class Words(Bandit):
    """Observations that are not supported."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(3, charset="a")


class Pictures(Bandit):
    """One step; one of four columns of a picture is bright, and the arm of its number pays 1."""

    def __init__(self) -> None:
        super().__init__()
        picture = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.observation_space = spaces.Dict({"picture": picture, "mood": spaces.Discrete(2)})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A bright column drawn uniformly; the mood says nothing."""
        gymnasium.Env.reset(self, seed=seed)
        self._column = int(self.np_random.integers(4))
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """1 for the bright column."""
        return self._observe(), float(action == self._column), True, False, {}

    def _observe(self) -> dict[str, Any]:
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[:, 2 * self._column] = 255
        return {"picture": picture, "mood": int(self.np_random.integers(2))}


class Slow(Bandit):
    """50 ms an episode: long enough to be interrupted."""

    def pay(self, action: int) -> float:
        """Takes its time."""
        time.sleep(0.05)
        return float(action)


class Indices(Bandit):
    """Two indices; pays 1 for each that is right: 2 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([3, 4])

    def pay(self, action: Any) -> float:
        """The number of indices that are right."""
        return float((action == [2, 1]).sum())


class Bits(Bandit):
    """Three bits in a column; pays 1 for each that is right: 1, 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary((3, 1))

    def pay(self, action: Any) -> float:
        """The number of bits that are right."""
        assert self.action_space.contains(action)
        return float((action[:, 0] == [1, 0, 1]).sum())


class Target(Bandit):
    """Two numbers in bounds of their own; pays minus the squared distance from 1.5 and -3."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([0, -10], "f"), np.array([2, 10], "f"))

    def pay(self, action: Any) -> float:
        """In units of the bounds, so that both axes matter equally."""
        assert self.action_space.contains(action)
        return -float((action[0] - 1.5) ** 2 + ((action[1] + 3) / 10) ** 2)


_ENVIRONMENTS = (
    Bandit,
    Bits,
    Contextual,
    Crashing,
    CrashesLater,
    Endless,
    Indices,
    NotANumber,
    Pictures,
    Slow,
    Target,
    Words,
)
for environment in _ENVIRONMENTS:
    name = f"{environment.__name__}-v0"
    if name not in gymnasium.registry:  # a second import under another name changes nothing
        gymnasium.register(id=name, entry_point=environment)
