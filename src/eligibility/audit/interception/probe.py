"""The probe: a problem so small that every outcome can be visited, and generic otherwise.

Three states and a terminal one, at most three steps, episodes of one, two and three steps, random
start and transitions, termination and truncation, rewards and observations without any pattern
that a wrong program could be right on by luck.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from eligibility.audit.interception.action_numbers import ActionNumbers, masks_of, numbers_of
from eligibility.audit.interception.observations import MASK, observations_of, shown_space
from eligibility.audit.job import STATES
from eligibility.audit.trace import LACKING

if TYPE_CHECKING:
    from eligibility.audit.interception.recorder import Recorder

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
    "Ant": ((111,), (8, 1.0)),
    "Ant-v4": ((27,), (8, 1.0)),
    "Ant-v5": ((105,), (8, 1.0)),
    "Humanoid": ((376,), (17, 0.4)),
    "Humanoid-v5": ((348,), (17, 0.4)),
    "HumanoidStandup-v5": ((348,), (17, 0.4)),
    "Pong": ((210, 160, 3), 6),
}
_SPARSE = ("FrozenLake", "Pong")  # of these: those whose rewards are 0 on most steps
_PAYS_ONCE = ("FrozenLake", "Blackjack")  # at the end of an episode
_ENDLESS = ("Pendulum", "Reacher", "Swimmer", "HalfCheetah", "HumanoidStandup", "Pusher")
_UNLIMITED = ("Blackjack", "CliffWalking")  # registered without a time limit


def never_terminates(name: str) -> bool:
    """Whether this is a well-known environment whose episodes only a time limit ends."""
    return name.split("/")[-1].startswith(_ENDLESS)


def is_limited(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a time limit can end its episodes: Gymnasium's or one that ``options`` set."""
    limited = not name.split("/")[-1].startswith(_UNLIMITED)
    return limited or options.get("max_episode_steps") is not None


def has_dense_rewards(name: str) -> bool:
    """Whether this is a well-known environment whose rewards are hardly ever 0."""
    bare = name.split("/")[-1]
    return bare.startswith(tuple(_KNOWN)) and not bare.startswith(_SPARSE)


def earns_at_ends(name: str) -> bool:
    """Whether this is a well-known environment that pays nothing before the end of an episode."""
    return name.split("/")[-1].startswith(_PAYS_ONCE)


def known_spaces(
    name: str, options: Mapping[str, Any] = MappingProxyType({})
) -> tuple[spaces.Space[Any], spaces.Space[Any]] | None:
    """Observation and action space of a well-known environment, by the start of its name.

    None of a map of another size, which has to be made.
    """
    bare = name.split("/")[-1]
    if options.get("continuous") and bare.startswith("LunarLander"):
        bare = "LunarLanderContinuous"
    if {"desc", "map_name"} & options.keys():
        return None
    prefix = max(filter(bare.startswith, _KNOWN), key=len, default=None)
    if prefix is None:
        return None
    seen, acted = _KNOWN[prefix]
    return (
        spaces.Discrete(seen) if isinstance(seen, int) else spaces.Box(-9.0, 9.0, seen),
        spaces.Discrete(acted)
        if isinstance(acted, int)
        else spaces.Box(-acted[1], acted[1], (acted[0],)),
    )


class _Info(dict[str, Any]):
    """What a step tells besides; 0 under a key that only the real environment has."""

    def __init__(self, told: dict[str, Any], books: Recorder) -> None:
        super().__init__(told)
        self._books = books

    def __missing__(self, key: str) -> float:
        self._books.note(f"{LACKING} {key}")
        return 0.0

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class Probe(gymnasium.Env[Any, Any]):
    """The problem as an environment.

    Args:
        name: The environment's name, as the program asked for it.
        observation_space: What the program expects to see: Box, Discrete, MultiDiscrete,
            MultiBinary, or a Tuple or Dict of them, in which an entry ``action_mask`` is a mask.
        action_space: What it expects to do: Discrete, MultiDiscrete, MultiBinary, counts, Box, or a
            Tuple or Dict of them.
        books: Those of the run: they answer its random choices and are told of what is done.
        four_tuple: Speak the interface of gym before 0.26.
        masked: Where it says which actions are allowed: "info", "method" (``action_masks``), or "".

    Attributes:
        limited: Whether the last step is truncated; terminated where no time limit ends episodes.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012  # as gym has it
    reward_range = (-float("inf"), float("inf"))  # as gym had it

    def __init__(
        self,
        name: str,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        books: Recorder,
        four_tuple: bool,
        masked: str,
    ) -> None:
        dtype = np.float64 if books.job.raised else np.float32
        self.observation_space = shown_space(observation_space, dtype)
        self.action_space = action_space
        self.size, self.four_tuple, self._books = books.job.size, four_tuple, books
        self._observations = observations_of(self.observation_space, action_space)
        self.numbers = numbers_of(action_space)
        self._rewards = _reward_tables(self.numbers)
        self._masked = masked
        self.state = self.start = self.time = 0
        if four_tuple:  # what gym had before 0.22; the probe draws nothing from it
            vars(self)["_np_random"] = np.random.RandomState(0)
            for space in (observation_space, action_space):
                if isinstance(space, spaces.Discrete):
                    vars(space)["n"] = int(space.n)  # torch.nn.LSTM takes no int64 of numpy's
        if masked == "method":
            self.action_masks = lambda: masks_of(action_space, self.state)
        self._started, self.limited = False, True
        self.previous = 0.0
        self._calls: list[FrameType] = []
        self._ended = False, False
        self.render_mode: str | None = None
        self._max_episode_steps = self.size.horizon
        self.spec = _spec(name, self.size.horizon)

    def __deepcopy__(self, memo: dict[int, Any]) -> Probe:
        """Another one in the same state, known to the books as this one is."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, spec=copy.deepcopy(self.spec))
        self._books.environments.append(copied)
        return copied

    def __reduce__(self) -> Any:
        """What is pickled here is loaded here: a copy that waits for it."""
        PICKLED.append(copy.deepcopy(self))
        return _unpickled, (len(PICKLED) - 1,)

    def seed(self, seed: int | None = None) -> list[int | None]:
        """A method of the old interface; the probe itself is not random."""
        return [seed]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        # A second reset before any step, as for seeding, keeps the start that was drawn: another
        # draw would double the paths for nothing.
        if self.time or not self._started:
            self.start = self._books.environment_choice([0.6, 0.4]) if self.size.random_start else 1
        self.state, self._started = self.start, True
        self.time, self.previous = 0, 0.0
        self._books.on_reset(self)
        observation = self._observation(self.state)
        return observation if self.four_tuple else (observation, self._info())

    def step(self, action: Any) -> Any:
        """Take one step; a wrapper that takes several of one action gets 0 for the others."""
        calls = _calls_of_wrappers()
        repeated = any(call is known for call in calls for known in self._calls)
        self._calls = calls
        if repeated:
            return self._answer(0.0)
        components = self.numbers.of(action)
        state, reward = self.state, self._reward(components)
        deciding = components[self.numbers.deciding[: len(components)]]
        parity = int(deciding.sum()) % 2
        self.time += 1
        # the program goes on after the end
        if self.time > self.size.horizon or state == TERMINAL:
            terminated, next_state = True, TERMINAL
        else:
            terminated, next_state = self._transition(state, parity)
        over = not terminated and self.time >= self.size.horizon
        terminated, truncated = terminated or (over and not self.limited), over and self.limited
        continuous = components[self.numbers.continuous[: len(components)]]
        self.previous = float(continuous[0]) if len(continuous) else 0.0
        self.state = next_state
        self._ended = terminated, truncated
        reward = self._books.on_step(
            self, components, state, reward, next_state, terminated, truncated
        )
        return self._answer(reward)

    def _answer(self, reward: float) -> Any:
        terminated, truncated = self._ended
        if type(reward) is float and self.numbers.continuous.any():
            reward = np.float64(reward)  # as of an environment that computes it from an array
        other = {"terminated": terminated, "truncated": truncated}.get(
            self._books.job.other_end, False
        )
        seen = (self.state + 1) % TERMINAL if other else self.state
        observation = self._observation(seen)
        if self.four_tuple:
            return observation, reward, any(self._ended), {}
        return observation, reward, *self._ended, self._info()

    def _observation(self, state: int) -> Any:
        return self._books.shown(copy.deepcopy(self._observations[state]), self.observation_space)

    def close(self) -> None:
        """It is not needed any more."""
        self._books.on_close(self)

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing to see."""
        return np.zeros((8, 8, 3), dtype=np.uint8)

    def _info(self) -> dict[str, Any]:
        told = {MASK: masks_of(self.action_space, self.state)} if self._masked == "info" else {}
        return _Info(told, books=self._books)

    def _transition(self, state: int, parity: int) -> tuple[bool, int]:
        if state == 1:
            # Where actions are continuous they must not decide the path: quadrature is exact for
            # polynomials, not for steps.
            indices = self.numbers.deciding.any()
            ends = parity == 1 if indices else self._books.environment_choice([0.7, 0.3]) == 1
            return (True, TERMINAL) if ends else (False, 2)
        if state == 2:
            return False, parity
        moved = self._books.environment_choice([0.7, 0.3]) if self.size.random_transitions else 0
        return False, 1 + (moved ^ parity)

    def _reward(self, components: np.ndarray[Any, Any]) -> float:
        if self.state == TERMINAL:
            return 0.0
        table, coefficients = self._rewards[self.state]
        numbers = components[self.numbers.continuous[: len(components)]]
        indices = components[~self.numbers.continuous[: len(components)]].astype(int)
        total, interaction = 0.0, 1.0
        for row, index in zip(table, indices, strict=False):
            total += float(row[index])
            interaction *= 0.5 + float(index)
        if len(indices) > 1:
            total += 0.4 * interaction
        if not len(numbers):
            return total
        total += float(coefficients[: len(numbers)] @ numbers) - 0.3 * float(numbers @ numbers)
        # what a number is worth depends on the indices next to it, and on the number before it
        beside = interaction if len(indices) else 0.0
        return total + 0.6 * float(numbers[0]) * (self.previous + beside) + float(coefficients[-1])


class Made(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What ``gymnasium.make`` returns: a wrapper with its own ``env``."""

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)


def _calls_of_wrappers() -> list[FrameType]:
    """The calls of wrappers' ``step`` that are under way, the innermost first."""
    calls: list[FrameType] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "step":
            known = frame.f_locals.get("self")
            if isinstance(known, gymnasium.Wrapper):
                calls.append(frame)
        frame = frame.f_back
    return calls


PICKLED: list[Probe] = []  # what the program has pickled


def _unpickled(number: int) -> Probe:
    return copy.deepcopy(PICKLED[number])


def registered_limit(name: str) -> int | None:
    """The time limit of an environment; that of another version where this one is not known."""
    specs, of = gymnasium.registry, name.rpartition("-v")[0]
    others = (spec for key, spec in specs.items() if of and key.startswith(f"{of}-v"))
    known = specs.get(name) or next(others, None)
    return known.max_episode_steps if known else None


def _spec(name: str, horizon: int) -> EnvSpec:
    """What gymnasium knows of an environment, with the probe's horizon and no goal to stop at."""
    known = gymnasium.registry.get(name)
    bare = re.sub(r"[^\w./:-]", "-", name)
    spec = copy.deepcopy(known) if known else EnvSpec(bare)
    spec.max_episode_steps, spec.reward_threshold = horizon, 1e9
    vars(spec)["timestep_limit"] = horizon  # its name in old versions of gym
    return spec


def _reward_tables(numbers: ActionNumbers) -> list[Any]:
    """For each state: a row of rewards for each index, then the coefficients of a polynomial."""
    generator = np.random.Generator(np.random.PCG64(5))
    tables = [
        [generator.normal(size=n).round(2) for n in numbers.sizes if n] for _ in range(STATES)
    ]
    width = int(numbers.continuous.sum()) + 1
    return [(table, generator.normal(size=width).round(2)) for table in tables]
