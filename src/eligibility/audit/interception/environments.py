"""Wherever the program makes an environment, it gets the probe."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv

from eligibility.audit.interception.gym_names import lead_to_gymnasium
from eligibility.audit.interception.observations import MASK
from eligibility.audit.interception.old_gym import InProcess, speak_as_before
from eligibility.audit.interception.own_environments import replace_plain_classes
from eligibility.audit.interception.probe import (
    PICKLED,
    Made,
    Probe,
    earns_at_ends,
    has_dense_rewards,
    is_limited,
    known_spaces,
    never_terminates,
    registered_limit,
)
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.patches import Patches, disguised
from eligibility.audit.trace import DENSE, ENDLESS, PAYS_ONCE, TIME_LIMIT


def replace_environments(patches: Patches, recorder: Recorder, four_tuple: bool) -> None:
    """``make`` and ``make_vec`` of gymnasium, and a module ``gym`` that leads to them."""

    def make(id: Any, *args: Any, **options: Any) -> Made:  # as gymnasium calls it
        return Made(_probe(id, recorder, four_tuple, stock_make, options))

    def make_vec(
        id: Any,
        num_envs: int = 1,
        vectorization_mode: Any = None,
        vector_kwargs: dict[str, Any] | None = None,
        wrappers: Any = None,
        **options: Any,
    ) -> Any:
        mode = (vector_kwargs or {}).get("autoreset_mode")
        keywords = {} if mode is None else {"autoreset_mode": mode}

        def one() -> Any:
            environment: Any = make(id, **options)
            for wrapper in wrappers or ():
                environment = wrapper(environment)
            return environment

        asynchronous = str(getattr(vectorization_mode, "value", vectorization_mode)) == "async"
        kind = gymnasium.vector.AsyncVectorEnv if asynchronous else SyncVectorEnv
        made: Any = kind([one] * num_envs, **keywords)
        made.spec = made.envs[0].spec
        return made

    stock_make = patches.set(gymnasium, "make", make)
    patches.callback(PICKLED.clear)
    replace_own_classes(patches, recorder, four_tuple)
    replace_plain_classes(patches, recorder)
    patches.set(gymnasium, "make_vec", make_vec)
    here = disguised(type("Here", (InProcess,), {}), gymnasium.vector.AsyncVectorEnv)
    patches.set(gymnasium.vector, "AsyncVectorEnv", here)
    if four_tuple:
        speak_as_before(patches)
    lead_to_gymnasium(patches, make, four_tuple)


def _probe(
    name: Any,
    recorder: Recorder,
    four_tuple: bool,
    stock_make: Callable[..., Any],
    options: dict[str, Any],
) -> Probe:
    text = name if isinstance(name, str) else str(getattr(name, "id", name))
    if has_dense_rewards(text):
        recorder.note(DENSE)
    if earns_at_ends(text):
        recorder.note(PAYS_ONCE)
    if never_terminates(text):
        recorder.note(ENDLESS)
    if limit := registered_limit(text):
        recorder.note(f"{TIME_LIMIT} {limit}")
    seen, masked = known_spaces(text, options), "info" if "Taxi" in text else ""
    if seen is None:
        with recorder.looking():
            real = stock_make(name, **options)
            seen, masked = (real.observation_space, real.action_space), _masked(real)
            real.close()
    probe = _placed(text, seen, masked, recorder, four_tuple)
    probe.render_mode = options.get("render_mode")
    probe.limited = is_limited(text, options)
    return probe


def _placed(
    name: str, seen: tuple[Any, Any], masked: str, recorder: Recorder, four_tuple: bool
) -> Probe:
    """The probe in the place of an environment with these spaces."""
    try:
        probe = Probe(name, *seen, recorder, four_tuple, masked)
    except NotImplementedError as error:
        raise NotImplementedError(f"{error} in {name}") from None
    recorder.environments.append(probe)
    return probe


def _masked(real: Any) -> str:
    """Where an environment says which actions are allowed: "method", "info" or nowhere."""
    if callable(getattr(real.unwrapped, "action_masks", None)):
        return "method"
    try:
        _, info = real.reset(seed=0)
    except Exception:  # it is anybody's code, and only its spaces matter
        return ""
    return "info" if MASK in info else ""


def replace_own_classes(patches: Patches, recorder: Recorder, four_tuple: bool) -> None:
    """``reset`` and ``step`` of every class of environments that is defined from now on.

    Wrappers stay: what they wrap is replaced.
    """
    probes: dict[int, tuple[Any, Any]] = {}

    def replace(cls: Any, name: str) -> None:
        own = cls.__dict__[name]

        @wraps(own)
        def method(self: Any, *args: Any, **options: Any) -> Any:
            unfinished = not hasattr(self, "action_space")  # its constructor resets it
            if recorder.blind or unfinished:
                return own(self, *args, **options)
            if id(self) not in probes:
                kind = type(self).__name__
                with recorder.looking():
                    seen = self.observation_space, self.action_space
                    probe = _placed(kind, seen, _masked(self), recorder, four_tuple)
                probes[id(self)] = self, probe
            return getattr(probes[id(self)][1], name)(*args, **options)

        setattr(cls, name, method)

    def defined(cls: type[Any], /, **options: Any) -> None:
        stock(**options)
        if not issubclass(cls, gymnasium.Wrapper):
            for name in {"reset", "step"} & cls.__dict__.keys():
                replace(cls, name)

    stock = patches.set(gymnasium.Env, "__init_subclass__", classmethod(defined))
