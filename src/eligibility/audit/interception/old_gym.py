"""What ``gym`` did differently from gymnasium: wrappers, and vectors of environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from eligibility.audit.interception.probe import Probe
from eligibility.audit.patches import Patches


def speak_as_before(patches: Patches) -> None:
    """Environments and wrappers as they were before gym 0.26, when ``step`` returned four values.

    The wrappers of gymnasium itself, which are given five, go on as they are.
    """
    patches.set(gymnasium.Env, "reward_range", Probe.reward_range)
    patches.set(gymnasium.Wrapper, "render", _render)
    patches.set(gymnasium.Wrapper, "__getattr__", _attribute_of_wrapped)
    patches.set(gymnasium.ObservationWrapper, "reset", _reset_observed)
    patches.set(gymnasium.ObservationWrapper, "step", _step_observed)
    patches.set(gymnasium.RewardWrapper, "step", _step_rewarded)


def _render(self: Any, *args: Any, **options: Any) -> Any:
    """With a mode, as gym had it."""
    return self.env.render(*args, **options)


def _attribute_of_wrapped(self: Any, name: str) -> Any:
    """What a wrapper has not itself is that of what it wraps."""
    if name.startswith("_") or name == "env":
        raise AttributeError(name)
    return getattr(self.env, name)


def _reset_observed(self: Any, **options: Any) -> Any:
    shown = self.env.reset(**options)
    if isinstance(self.env, _FiveValues):
        return self.observation(shown[0]), shown[1]
    return self.observation(shown)


def _step_observed(self: Any, action: Any) -> Any:
    observation, *others = self.env.step(action)
    return (self.observation(observation), *others)


def _step_rewarded(self: Any, action: Any) -> Any:
    observation, reward, *others = self.env.step(action)
    return (observation, self.reward(reward), *others)


class _FiveValues(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of four values as gymnasium's wrappers expect it."""

    def reset(self, **options: Any) -> Any:
        return self.env.reset(**options), {}

    def step(self, action: Any) -> Any:
        step: Any = self.env.step  # it returns four
        observation, reward, done, info = step(action)
        return observation, reward, done, False, info


class _FourValues(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What a wrapper of gymnasium returns, with four values."""

    def reset(self, **options: Any) -> Any:
        return self.env.reset(**options)[0]

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or truncated, info


def wrapper_of(stock: Any, four_tuple: bool) -> Any:
    """What gym had for a wrapper of gymnasium: it takes what gym's took, and returns that."""
    transforms = stock is gymnasium.wrappers.TransformObservation
    wraps = isinstance(stock, type) and issubclass(stock, gymnasium.Wrapper)
    if not wraps or not (four_tuple or transforms):
        return stock

    def wrapped(env: Any, *args: Any, **options: Any) -> Any:
        if transforms:  # gym's had no argument for the space
            options = {"observation_space": env.observation_space, **options}
        if not four_tuple:
            return stock(env, *args, **options)
        return _FourValues(stock(_FiveValues(env), *args, **options))

    return wrapped


def unfilmed(env: Any, *args: Any, **options: Any) -> Any:
    """What gym had for a wrapper that films: there is nothing to see."""
    return env


class InProcess(SyncVectorEnv):
    """Environments with separate processes, without the processes."""

    _waiting: Any = None

    def __init__(
        self,
        env_fns: Any,
        *args: Any,
        autoreset_mode: Any = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        super().__init__(env_fns, autoreset_mode=autoreset_mode)

    def step_async(self, actions: Any) -> None:
        """Begin a step."""
        self._waiting = actions

    def step_wait(self, **options: Any) -> Any:
        """What it has done."""
        return self.step(self._waiting)


class Vector(InProcess):
    """Environments that step one after another; one that has ended is reset in the same step."""

    def __init__(self, env_fns: Iterable[Callable[[], Any]], *args: Any, **options: Any) -> None:
        super().__init__(list(env_fns), autoreset_mode=AutoresetMode.SAME_STEP)
        self.spec = self.envs[0].spec

    def step(self, actions: Any) -> Any:
        *seen, infos = super().step(actions)
        for mark in ("", "_"):
            if f"{mark}final_obs" in infos:
                infos[f"{mark}final_observation"] = infos.pop(f"{mark}final_obs")
        if "final_info" in infos:  # one dictionary for each environment that has ended
            last, ended = infos["final_info"], infos["_final_info"]
            infos["final_info"] = np.empty(self.num_envs, dtype=object)
            for number in np.flatnonzero(ended).tolist():
                infos["final_info"][number] = _of_one(last, number)
        return (*seen, infos)


def _of_one(infos: dict[str, Any], number: int) -> dict[str, Any]:
    """What is said of one environment, in dictionaries of arrays that are marked with "_"."""
    return {
        name: _of_one(said, number) if isinstance(said, dict) else said[number]
        for name, said in infos.items()
        if not name.startswith("_") and (f"_{name}" not in infos or infos[f"_{name}"][number])
    }


class VectorOfFour(Vector, gymnasium.Env[Any, Any]):  # type: ignore[misc]  # both have `render`
    """The same before gym 0.26: four values, of which the last is a list of dictionaries.

    It is an environment, too: wrappers took it.
    """

    def seed(self, seed: Any = None) -> None:
        """Nothing to seed: the probe itself is not random."""

    def reset(self, **options: Any) -> Any:
        return self._together([one.reset() for one in self.envs])

    def step(self, actions: Any) -> Any:
        steps = zip(self.envs, iterate(self.action_space, actions), strict=True)
        seen, rewards, dones, infos = zip(*(_reset_at_end(*each) for each in steps), strict=True)
        return self._together(seen), np.array(rewards), np.array(dones, np.bool_), [*infos]

    def _together(self, observations: Any) -> Any:
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, observations, empty)


def _reset_at_end(environment: Any, action: Any) -> Any:
    observation, reward, done, info = environment.step(action)
    if not done:
        return observation, reward, done, info
    return environment.reset(), reward, done, {**info, "terminal_observation": observation}


def make_vector(make: Callable[..., Any], kind: type[Vector]) -> Callable[..., Vector]:
    """``gym.vector.make``."""

    def make_several(
        id: Any, num_envs: int = 1, asynchronous: bool = True, wrappers: Any = None, **options: Any
    ) -> Vector:
        options.pop("disable_env_checker", None)

        def one() -> Any:
            made = make(id, **options)
            for wrapper in [wrappers] if callable(wrappers) else wrappers or ():
                made = wrapper(made)
            return made

        return kind([one] * num_envs)

    return make_several
