"""Environments that a program defines and makes by itself, without ``gymnasium.make``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import gymnasium

from eligibility.audit.patches import Patches

_AS_IT_IS: ContextVar[bool] = ContextVar("_AS_IT_IS", default=False)


@contextmanager
def as_it_is() -> Iterator[None]:
    """Within it, such an environment is what it is: only to look at its spaces and masks."""
    token = _AS_IT_IS.set(True)
    try:
        yield
    finally:
        _AS_IT_IS.reset(token)


def replace_own_classes(patches: Patches, probe_of: Callable[[Any], Any]) -> None:
    """``reset`` and ``step`` of every class of environments that is defined from now on.

    Wrappers stay: what they wrap is replaced.
    """
    probes: dict[int, tuple[Any, Any]] = {}

    def replace(cls: Any, name: str) -> None:
        own = cls.__dict__[name]

        @wraps(own)
        def method(self: Any, *args: Any, **options: Any) -> Any:
            unfinished = not hasattr(self, "action_space")  # its constructor resets it
            if _AS_IT_IS.get() or unfinished:
                return own(self, *args, **options)
            if id(self) not in probes:
                with as_it_is():
                    probes[id(self)] = self, probe_of(self)
            return getattr(probes[id(self)][1], name)(*args, **options)

        setattr(cls, name, method)

    def defined(cls: type[Any], /, **options: Any) -> None:
        stock(**options)
        if not issubclass(cls, gymnasium.Wrapper):
            for name in {"reset", "step"} & cls.__dict__.keys():
                replace(cls, name)

    stock = patches.set(gymnasium.Env, "__init_subclass__", classmethod(defined))
