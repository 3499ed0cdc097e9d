"""Attributes of other people's modules, replaced for a while and put back."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial, update_wrapper
from types import FunctionType, ModuleType
from typing import Any


class Patches(ExitStack):
    """Attributes replaced until the end, which puts them back, the last first."""

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
        own = vars(owner)
        undo = partial(setattr, owner, name, own[name]) if name in own else None
        setattr(owner, name, value)
        self.callback(undo or partial(delattr, owner, name))


def _dress(function: FunctionType, stock: Any, owner: Any, name: str) -> None:
    """Give a function the looks of ``stock``, which it replaces as ``owner.name``."""
    if hasattr(function, "__wrapped__"):
        return  # the same function has replaced another name before
    update_wrapper(function, stock)
    in_module = isinstance(owner, ModuleType)
    function.__module__ = owner.__name__ if in_module else owner.__module__
    function.__qualname__ = name if in_module else f"{owner.__qualname__}.{name}"
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
