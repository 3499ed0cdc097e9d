"""Environments whose class is a program's own, derived from nothing of gymnasium's.

The probe answers with observations of the class's kind, in the form of what its ``step`` returns.
"""

from __future__ import annotations

import builtins
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from numbers import Real
from types import FrameType, FunctionType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from eligibility.audit.interception.probe import Probe
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.job import STATES
from eligibility.audit.patches import Patches
from eligibility.audit.trace import OWN_CLASS
from eligibility.audit.user_code import is_user_file

_METHODS = ("reset", "step")
_MOST = 64  # actions: only those that a program takes are ever met
_TRIED, _STEPS = 4, 8  # actions and steps of each, to see observations
_OTHERS = (gymnasium.Env, gymnasium.vector.VectorEnv, torch.nn.Module, torch.optim.Optimizer)


class OwnProbe(Probe):
    """The probe in the place of ``own``, whose ``reset`` and ``step`` have returned these.

    The actions may be ``words``.
    """

    def __init__(
        self,
        own: Any,
        first: Any,
        steps: list[tuple[Any, ...]],
        words: Sequence[str],
        books: Recorder,
    ) -> None:
        seen, acted = spaces.Discrete(STATES + 1), spaces.Discrete(_MOST)
        super().__init__(type(own).__name__, seen, acted, books, False, "")
        self._own, self._tells, self._form, self._words = own, _tells(first), steps[0], words
        seen_after = [step[0] for step in steps]
        self._observations, self._put = _observations(_observed(first), seen_after)

    def begins(self) -> Any:
        """What ``reset`` returns."""
        observation, _ = self.reset()
        self._say(False)
        shown = self._put(observation)
        return (shown, {}) if self._tells else shown

    def goes_on(self, action: Any) -> Any:
        """What ``step`` returns."""
        number = self._words.index(action) if self._words else action
        observation, reward, terminated, truncated, _ = self.step(number)
        ended = terminated or truncated
        self._say(ended)
        both = len(self._form) > 3 and _is_flag(self._form[3])
        kind = int if type(self._form[2]) is int else bool
        flags = tuple(map(kind, (terminated, truncated) if both else (ended,)))
        rest: tuple[Any, ...] = ({},) if len(self._form) > 2 + len(flags) else ()
        return (self._put(observation), reward, *flags, *rest)

    def _say(self, ended: bool) -> None:
        """Keep the attribute that a loop may read."""
        if isinstance(getattr(self._own, "done", None), bool):
            self._own.done = ended


def replace_plain_classes(patches: Patches, recorder: Recorder) -> None:
    """``reset`` and ``step`` of the classes that a program defines from now on, if they act.

    An object stays what it is if the program has made an environment before, which it may wrap.
    """
    known: dict[int, tuple[Any, OwnProbe | None]] = {}

    def begin(own: Any, reset: Callable[..., Any], args: Any, options: Any) -> Any:
        with recorder.looking():
            first = reset(own, *args, **options)
            stays = first is None or _has_others(recorder)
            steps, words = ([], ()) if stays else _steps(own, _observed(first))
        if not steps:
            known[id(own)] = own, None
            return first
        probe = OwnProbe(own, first, steps, words, recorder)
        recorder.environments.append(probe)
        recorder.note(f"{OWN_CLASS} {type(own).__name__}")
        known[id(own)] = own, probe
        return probe.begins()

    def replace(cls: Any, name: str) -> None:
        stock = getattr(cls, name)

        @wraps(stock)
        def method(self: Any, *args: Any, **options: Any) -> Any:
            _, probe = known.get(id(self), (None, None))
            if probe is not None and not recorder.blind:
                if name == "reset":
                    return probe.begins()
                return probe.goes_on(*args, *options.values())
            plain = recorder.blind or name == "step" or id(self) in known or _has_others(recorder)
            if plain or _is_being_made(self):
                return stock(self, *args, **options)
            return begin(self, stock, args, options)

        vars(method)["replaced"] = True
        setattr(cls, name, method)

    def build(body: Any, name: str, *bases: Any, **options: Any) -> Any:
        made = stock_build(body, name, *bases, **options)
        if is_user_file(body.__code__.co_filename) and _acts(made):
            for each in _METHODS:
                if not hasattr(getattr(made, each), "replaced"):
                    replace(made, each)
        return made

    stock_build = patches.set(builtins, "__build_class__", build)


def _acts(made: Any) -> bool:
    """Whether a class is written like an environment."""
    if not isinstance(made, type) or issubclass(made, _OTHERS):
        return False
    return all(isinstance(getattr(made, name, None), FunctionType) for name in _METHODS)


def _has_others(recorder: Recorder) -> bool:
    return any(not isinstance(each, OwnProbe) for each in recorder.environments)


def _is_being_made(own: Any) -> bool:
    """Whether its constructor is what resets it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        named = frame.f_locals.values() if frame.f_code.co_name == "__init__" else ()
        if any(each is own for each in named):
            return True
        frame = frame.f_back
    return False


def _steps(own: Any, seen: Any) -> tuple[list[tuple[Any, ...]], Sequence[str]]:
    """What ``step`` returns for whole numbers, or for words that are given with it.

    None if that is no transition from what was ``seen``.
    """
    for words in ((), *_lists_of_words(own)):
        found = _tried(own, words[:_TRIED] or range(_TRIED))
        if found and all(_is_transition(each, seen) for each in found):
            return found, words
    return [], ()


def _lists_of_words(own: Any) -> Iterator[Sequence[str]]:
    """Lists of different words, and words by which something is found, in reach of ``step``."""
    for scope in (vars(own), vars(type(own)), type(own).step.__globals__):
        for value in [*scope.values()]:
            words = [*value] if isinstance(value, list | tuple | dict) else []
            if len({*filter(lambda word: isinstance(word, str), words)}) == len(words) > 1:
                yield words


def _tried(own: Any, actions: Sequence[Any]) -> list[Any]:
    """What ``step`` returns on copies."""
    found: list[Any] = []
    for action in actions:
        with suppress(Exception):  # anybody's code, with an action that it may not have
            tried = copy.deepcopy(own)
            for _ in range(_STEPS):
                found.append(tried.step(action))
                if any(found[-1][2:4]):
                    break
    return found


def _is_transition(found: Any, seen: Any) -> bool:
    """(observation, reward, done), and perhaps a second end and further information."""
    if not isinstance(found, tuple) or not 3 <= len(found) <= 5:
        return False
    observes = type(found[0]) is type(seen) and _size(found[0]) == _size(seen)
    earns = isinstance(found[1], Real | np.number)
    return observes and earns and _is_flag(found[2])


def _is_flag(value: Any) -> bool:
    """Whether it says that something has ended, perhaps as 0 or 1."""
    return isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1))


def _size(value: Any) -> Any:
    """The shape of an array, or the length of what has one."""
    return getattr(value, "shape", None) or (len(value) if hasattr(value, "__len__") else None)


def _tells(first: Any) -> bool:
    """Whether ``reset`` returns further information."""
    return isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)


def _observed(first: Any) -> Any:
    """The observation in what ``reset`` returns."""
    return first[0] if _tells(first) else first


def _observations(seen: Any, others: list[Any]) -> tuple[list[Any], Callable[[Any], Any]]:
    """One a state, the terminal one last, and how each is put into the program's form."""
    listed = isinstance(seen, list | tuple) and bool(seen)
    listed = listed and all(isinstance(each, float | np.floating) for each in seen)
    tensor = isinstance(seen, torch.Tensor) and seen.is_floating_point()
    if listed or tensor or (isinstance(seen, np.ndarray) and seen.dtype.kind == "f"):
        draw = np.random.Generator(np.random.PCG64(11)).normal
        shape = np.shape(seen)
        made = [draw(size=shape).round(2).astype(_dtype(seen)) for _ in range(STATES + 1)]
        if listed:
            return made, lambda array: type(seen)(array.tolist())
        if tensor:
            return made, lambda array: torch.as_tensor(array, dtype=seen.dtype)
        return made, lambda array: array
    distinct = list({repr(each): each for each in [seen, *others]}.values())
    return [distinct[i % len(distinct)] for i in range(STATES + 1)], lambda shown: shown


def _dtype(seen: Any) -> Any:
    """Double precision where torch has it by default, as in an audit that raises it."""
    raised = torch.get_default_dtype() == torch.float64
    return seen.dtype if isinstance(seen, np.ndarray) and not raised else np.float64
