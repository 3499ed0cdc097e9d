"""The probe: a problem so small that every outcome can be visited, and generic otherwise.

Three states and a terminal one, at most three steps, episodes of one, two and three steps, random
start and transitions, termination and truncation, rewards and observations without any pattern
that a wrong program could be right on by luck.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eligibility.audit.job import STATES, ProbeSize
from eligibility.audit.noise_numpy import settled

TERMINAL = STATES  # its observation is seen after the last step of a terminated episode


# Observation shape (an int: that many discrete observations) and action space of well-known
# environments, so that a program meets the sizes it was written for without the environment.
_KNOWN: dict[str, tuple[tuple[int, ...] | int, int | tuple[int, float]]] = {
    "CartPole": ((4,), 2),
    "Acrobot": ((6,), 3),
    "MountainCarContinuous": ((2,), (1, 1.0)),
    "MountainCar": ((2,), 3),
    "Pendulum": ((3,), (1, 2.0)),
    "LunarLanderContinuous": ((8,), (2, 1.0)),
    "LunarLander": ((8,), 4),
    "BipedalWalker": ((24,), (4, 1.0)),
    "FrozenLake": (16, 4),
    "CliffWalking": (48, 4),
    "Taxi": (500, 6),
    "InvertedPendulum": ((4,), (1, 3.0)),
    "InvertedDoublePendulum": ((9,), (1, 1.0)),
    "Reacher": ((10,), (2, 1.0)),
    "Swimmer": ((8,), (2, 1.0)),
    "Hopper": ((11,), (3, 1.0)),
    "Walker2d": ((17,), (6, 1.0)),
    "HalfCheetah": ((17,), (6, 1.0)),
    "Pong": ((210, 160, 3), 6),
}


def known_spaces(name: str) -> tuple[spaces.Space[Any], spaces.Space[Any]] | None:
    """Observation and action space of a well-known environment, by the start of its name."""
    bare = name.split("/")[-1]
    for prefix in sorted(_KNOWN, key=len, reverse=True):
        if bare.startswith(prefix):
            seen, acted = _KNOWN[prefix]
            observation: spaces.Space[Any] = (
                spaces.Discrete(seen) if isinstance(seen, int) else spaces.Box(-9.0, 9.0, seen)
            )
            action: spaces.Space[Any] = (
                spaces.Discrete(acted)
                if isinstance(acted, int)
                else spaces.Box(-acted[1], acted[1], (acted[0],))
            )
            return observation, action
    return None


class Probe(gymnasium.Env[Any, Any]):
    """The problem as an environment.

    Args:
        name: The environment's name, as the program asked for it.
        observation_space: What the program expects to see: Box or Discrete.
        action_space: What it expects to do: Discrete, MultiDiscrete, MultiBinary, counts, Box, or a
            Tuple or Dict of discrete ones.
        size: How much of the problem.
        choose: Answers the environment's random choices.
        on_reset: Told of every reset.
        on_step: Told of every step: the numbers of the action, state, reward, next state,
            terminated, truncated.
        four_tuple: Speak the interface of gym before 0.26.
        dtype: Of Box observations.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012  # as gym has it

    def __init__(
        self,
        name: str,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        size: ProbeSize,
        choose: Callable[[list[float]], int],
        on_reset: Callable[[Probe], None],
        on_step: Callable[[Probe, Any, int, float, int, bool, bool], None],
        four_tuple: bool = False,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> None:
        if isinstance(observation_space, spaces.Box):
            observation_space = spaces.Box(-9.0, 9.0, observation_space.shape, dtype)
        self.observation_space, self.action_space = observation_space, action_space
        self.size, self.four_tuple = size, four_tuple
        self._choose, self._on_reset, self._on_step = choose, on_reset, on_step
        self._observations = _observations(observation_space)
        self._rewards = _reward_tables(action_space)
        # the lowest index of each component
        starts = [np.asarray(getattr(part, "start", 0)) for part in _parts(action_space)]
        self._first: Any = np.concatenate([start.reshape(-1) for start in starts]).astype(float)
        if len(starts) == 1 and not starts[0].ndim:
            self._first = float(self._first[0])
        self.state = self.start = self.time = 0
        self._started = False
        self.previous = 0.0
        self.render_mode = None
        self._max_episode_steps = size.horizon
        self.spec: Any = SimpleNamespace(
            id=name, name=name, reward_threshold=1e9, max_episode_steps=size.horizon, kwargs={}
        )

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Of the old interface: the probe has no randomness of its own."""
        return [seed]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        # A second reset before any step, as for seeding, keeps the start that was drawn: another
        # draw would double the paths for nothing.
        if self.time or not self._started:
            self.start = self._choose([0.6, 0.4]) if self.size.random_start else 1
        self.state, self._started = self.start, True
        self.time, self.previous = 0, 0.0
        self._on_reset(self)
        observation = self._observations[self.state]
        return observation.copy() if self.four_tuple else (observation.copy(), {})

    def step(self, action: Any) -> Any:
        """Take one step."""
        components = _components(action) - self._first
        state, reward = self.state, self._reward(components)
        # of counts, whose sum is always the same, the first one decides
        deciding = components[:1] if hasattr(self.action_space, "total") else components
        parity = 0 if self._continuous else int(deciding.sum()) % 2
        self.time += 1
        # the program goes on after the end
        if self.time > self.size.horizon or state == TERMINAL:
            terminated, next_state = True, TERMINAL
        else:
            terminated, next_state = self._transition(state, parity)
        truncated = not terminated and self.time >= self.size.horizon
        self.previous = float(components[0])
        self.state = next_state
        self._on_step(self, components, state, reward, next_state, terminated, truncated)
        observation = self._observations[next_state].copy()
        if self.four_tuple:
            return observation, reward, terminated or truncated, {}
        return observation, reward, terminated, truncated, {}

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing to see."""
        return np.zeros((8, 8, 3), dtype=np.uint8)

    @property
    def _continuous(self) -> bool:
        return isinstance(self.action_space, spaces.Box)

    def _transition(self, state: int, parity: int) -> tuple[bool, int]:
        if state == 1:
            # Where actions are continuous they must not decide the path: quadrature is exact for
            # polynomials, not for steps.
            ends = self._choose([0.7, 0.3]) == 1 if self._continuous else parity == 1
            return (True, TERMINAL) if ends else (False, 2)
        if state == 2:
            return False, parity
        moved = self._choose([0.7, 0.3]) if self.size.random_transitions else 0
        return False, 1 + (moved ^ parity)

    def _reward(self, components: np.ndarray[Any, Any]) -> float:
        if self.state == TERMINAL:
            return 0.0
        table = self._rewards[self.state]
        if self._continuous:
            linear = float(table[: len(components)] @ components)
            square = 0.3 * float(components @ components)
            return linear - square + 0.6 * float(components[0]) * self.previous + float(table[-1])
        total, interaction = 0.0, 1.0
        for dimension, component in enumerate(components.astype(int)):
            total += float(table[dimension][component])
            interaction *= 0.5 + float(component)
        return total + (0.4 * interaction if len(components) > 1 else 0.0)


def _components(action: Any) -> np.ndarray[Any, Any]:
    """The numbers of an action, those of the parts of a composite one after the other."""
    if isinstance(action, dict):
        action = tuple(action.values())
    if isinstance(action, tuple):
        return np.concatenate([_components(part) for part in action])
    return np.asarray(_detached(settled(action)), dtype=np.float64).reshape(-1)


def _parts(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """The spaces that a composite is made of, in the order of their numbers."""
    if isinstance(space, spaces.Dict):
        return [part for inner in space.spaces.values() for part in _parts(inner)]
    if isinstance(space, spaces.Tuple):
        return [part for inner in space.spaces for part in _parts(inner)]
    return [space]


def _detached(action: Any) -> Any:
    return action.detach().cpu().numpy() if hasattr(action, "detach") else action


def _observations(space: spaces.Space[Any]) -> list[Any]:
    """One observation a state, the terminal one last."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return [np.int64(first + state % int(space.n)) for state in range(STATES + 1)]
    assert isinstance(space, spaces.Box)
    shape = space.shape or (4,)
    drawn = np.random.Generator(np.random.PCG64(11)).normal(size=(STATES + 1, *shape))
    return [row.round(2).astype(space.dtype) for row in drawn]


def _reward_tables(space: spaces.Space[Any]) -> list[Any]:
    """Of each state: per action component a row of rewards, or the coefficients of a quadratic."""
    generator = np.random.Generator(np.random.PCG64(5))
    if isinstance(space, spaces.Box):
        return [
            row.round(2) for row in generator.normal(size=(STATES, int(np.prod(space.shape)) + 1))
        ]
    sizes = [size for part in _parts(space) for size in _sizes(part)]
    return [[generator.normal(size=n).round(2) for n in sizes] for _ in range(STATES)]


def _sizes(space: spaces.Space[Any]) -> list[int]:
    """How many values each number of a discrete action can take."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    if isinstance(space, spaces.Box):
        raise NotImplementedError("actions of a Tuple or Dict with a Box in it")
    most = int(getattr(space, "total", 1))  # units of counts; else bits
    return [most + 1] * int(np.prod(space.shape or (1,)))
