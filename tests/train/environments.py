"""Small environments with known answers. Gymnasium finds them by this module's name."""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from eligibility.spaces.counts import Counts


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


class PaysWords(Bandit):
    """Pays in words."""

    def pay(self, action: int) -> float:
        """No number."""
        return "three"


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


class Lamp(Bandit):
    """Five steps; shows a grey square that gets lighter."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Dark."""
        self._steps = 0
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A step lighter; pays 1."""
        self._steps += 1
        return np.array([1, 0], np.float32), 1.0, self._steps == 5, False, {}

    def render(self) -> np.ndarray:
        """The square."""
        return np.full((16, 24, 3), 40 * self._steps, np.uint8)


class Spoken(Lamp):
    """Says what it looks like."""

    def render(self) -> Any:
        """In words."""
        return "a grey square"


class CrashesAtReset(Bandit):
    """Raises when it is reset."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Never ready."""
        raise RuntimeError("not ready")


class SecondSeedCrashes(Bandit):
    """Raises for every reset of the runs with seed 1."""

    def pay(self, action: int) -> float:
        """Pays like the bandit, where the process may."""
        if "--seed 1 " in " ".join([*sys.argv, ""]):
            raise RuntimeError("not with this seed")
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


class Forbidding(gymnasium.Env[Any, int]):
    """Four arms, some forbidden anew in each of one to four steps; taking one of those raises.

    The best arm that is allowed pays 1, the others less. The mask is in the info.
    """

    def __init__(self) -> None:
        self.observation_space: spaces.Space = spaces.Box(0, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new mask, and a number of steps."""
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 5))
        return self._observe()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The arm's rank among those that are allowed."""
        if not self._mask[action]:
            raise RuntimeError("this arm is forbidden")
        self._left -= 1
        reward = float(action == np.flatnonzero(self._mask)[-1])
        observation, info = self._observe()
        return observation, reward, self._left == 0, False, info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        self._mask = self.np_random.random(4) < 0.5
        self._mask[self.np_random.integers(4)] = True
        return self._mask.astype(np.float32), {"action_mask": self._mask.astype(np.int8)}


class ForbiddingByMethod(Forbidding):
    """The mask is what a method returns."""

    def action_masks(self) -> np.ndarray:
        """The present mask."""
        return self._mask

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        return super()._observe()[0], {}


class ForbiddingByObservation(Forbidding):
    """The mask is an entry of the observation."""

    def __init__(self) -> None:
        super().__init__()
        seen = self.observation_space
        mask = spaces.MultiBinary(4)
        self.observation_space = spaces.Dict({"seen": seen, "action_mask": mask})

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        seen, info = super()._observe()
        return {"seen": seen, **info}, {}


class ForbiddingAll(Forbidding):
    """From the third step on, every arm is forbidden."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Five steps."""
        gymnasium.Env.reset(self, seed=seed)
        self._left = 5
        return self._observe()

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        seen, _ = super()._observe()
        if self._left <= 3:
            self._mask[:] = False
        return seen, {"action_mask": self._mask.astype(np.int8)}


class ForbiddingParts(Bandit):
    """Masks for a Dict of parts of every kind; taking what is forbidden raises."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Dict(
            {
                "bits": spaces.MultiBinary(2),
                "counts": Counts(4, 3),
                "index": spaces.Discrete(3),
                "indices": spaces.MultiDiscrete([2, 3]),
                "number": spaces.Box(-1, 1, (1,)),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The same masks always, in the forms of Gymnasium's own ``sample(mask=...)``."""
        observation, info = super().reset(seed=seed)
        masks = {
            "bits": np.array([1, 2], np.int8),
            "counts": np.array([1, 0, 1], np.int8),
            "index": np.array([0, 1, 1], np.int8),
            "indices": (np.array([1, 0], np.int8), np.array([0, 0, 1], np.int8)),
        }
        return observation, {**info, "action_mask": masks}

    def pay(self, action: Any) -> float:
        """1 for index 2, and what the number is."""
        assert self.action_space.contains(action)
        allowed = action["bits"][0] == 1 and action["counts"][1] == 0 and action["index"] != 0
        if not allowed or list(action["indices"]) != [0, 2]:
            raise RuntimeError("this action is forbidden")
        return float(action["index"] == 2) + float(action["number"][0])


_ENVIRONMENTS = (
    Bandit,
    Bits,
    Contextual,
    Crashing,
    CrashesAtReset,
    CrashesLater,
    Endless,
    Forbidding,
    ForbiddingAll,
    ForbiddingByMethod,
    ForbiddingByObservation,
    ForbiddingParts,
    Indices,
    Lamp,
    PaysWords,
    NotANumber,
    Pictures,
    SecondSeedCrashes,
    Slow,
    Spoken,
    Target,
    Words,
)
for environment in _ENVIRONMENTS:
    name = f"{environment.__name__}-v0"
    if name not in gymnasium.registry:  # a second import under another name changes nothing
        gymnasium.register(id=name, entry_point=environment)
