"""Attributes of other people's modules, replaced for a while and put back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

_MISSING = object()


class Patches:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace ``owner.name`` and return what it was, as reached through ``owner``.

        A function takes on the name, the documentation and the signature of what it replaces, also
        in the module that this was defined in: it can be inspected and pickled as before.
        """
        reached = getattr(owner, name, None)
        if isinstance(value, FunctionType) and callable(reached):
            _dress(value, reached, owner, name)
        self._replace(owner, name, value)
        home = sys.modules.get(getattr(reached, "__module__", None) or "")
        if home is not None and reached is not None and vars(home).get(name) is reached:
            self._replace(home, name, value)
        return reached

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._undo.append(lambda: _restore(owner, name, own))

    def later(self, undo: Callable[[], Any]) -> None:
        """Call ``undo`` at the end as well."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Put everything back, the last first."""
        while self._undo:
            self._undo.pop()()


def _dress(function: FunctionType, stock: Any, owner: Any, name: str) -> None:
    """Give a function the looks of ``stock``, which it replaces as ``owner.name``."""
    if hasattr(function, "__wrapped__"):
        return  # the same function has replaced another name before
    functools.update_wrapper(function, stock)
    if isinstance(owner, ModuleType):
        function.__module__, function.__qualname__ = owner.__name__, name
    else:
        function.__module__, function.__qualname__ = (
            owner.__module__,
            f"{owner.__qualname__}.{name}",
        )
    function.__name__ = name


class Standing(type):
    """The class of a `disguised` class: every instance of the base counts as an instance of it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls._stands_for(), instance)

    def __subclasscheck__(cls, subclass: type[Any]) -> bool:
        return type.__subclasscheck__(cls._stands_for(), subclass)

    def _stands_for(cls) -> type[Any]:
        base: type[Any] = cls.__mro__[1]
        same = (base.__module__, base.__qualname__) == (cls.__module__, cls.__qualname__)
        return base if same else cls


def disguised(made: type[Any], stock: type[Any]) -> type[Any]:
    """A class that stands for ``stock``, under its name."""
    made.__name__, made.__qualname__ = stock.__name__, stock.__qualname__
    made.__module__, made.__doc__ = stock.__module__, stock.__doc__
    return made


def _restore(owner: Any, name: str, own: Any) -> None:
    if own is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
