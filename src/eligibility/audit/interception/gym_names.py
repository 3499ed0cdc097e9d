"""The package ``gym``, which programs still import: its names are those of gymnasium.

So are those of ``gymnasium.experimental.wrappers``, which had "V0" behind them and is gone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import gymnasium

from eligibility.audit.interception.old_gym import (
    Vector,
    VectorOfFour,
    make_vector,
    unfilmed,
    wrapper_of,
)
from eligibility.audit.patches import Patches

_OLD, _NEW = "gym", "gymnasium"
_EXPERIMENTAL = f"{_NEW}.experimental.wrappers"
_FILMING = {"Monitor", "RecordVideo"}  # wrappers that gym before 0.26 had for it


class _OldGym(ModuleType):
    """What it has not itself it takes from gymnasium at the moment it is asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # it is a package

    def __getattr__(self, name: str) -> Any:
        new = sys.modules[_renamed(self.__name__)]
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(new, name):
            return getattr(new, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _OldWrappers(_OldGym):
    """``gym.wrappers``."""

    four_tuple = False

    def __getattr__(self, name: str) -> Any:
        if self.four_tuple and name in _FILMING:
            return unfilmed
        return wrapper_of(super().__getattr__(name), self.four_tuple)


class _Experimental(_OldGym):
    """``gymnasium.experimental.wrappers``."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name.removesuffix("V0"))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``gym.wrappers`` and the like as what gymnasium has under the same name."""

    def __init__(self) -> None:
        self.names = {_OLD}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{_OLD}."):
            return None
        try:
            importlib.import_module(_renamed(name))
        except ImportError:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.names.add(module.__name__)
        # the import system takes from here what a module has put in its own place
        sys.modules[module.__name__] = sys.modules[_renamed(module.__name__)]


def lead_to_gymnasium(patches: Patches, make: Callable[..., Any], four_tuple: bool) -> None:
    """``import gym`` and all below it lead to gymnasium; with four values, as before gym 0.26."""
    # to look at every name of sys.modules costs a fork the pages that they are on
    loaded = [*sys.modules] if _OLD in sys.modules else []
    before = {name: sys.modules[name] for name in loaded if f"{name}.".startswith(f"{_OLD}.")}
    finder = _Finder()
    sys.meta_path.insert(0, finder)

    def put_back() -> None:
        sys.meta_path.remove(finder)
        _take_out(finder.names)
        sys.modules.update(before)

    patches.callback(put_back)
    _take_out(before)
    modules = _modules(make, four_tuple)
    finder.names.update(modules)
    sys.modules |= modules


def _modules(make: Callable[..., Any], four_tuple: bool) -> dict[str, ModuleType]:
    """``gym``, and what of it is not as in gymnasium."""
    gym, logger = _OldGym(_OLD), ModuleType(f"{_OLD}.logger")
    vector, wrappers = _OldGym(f"{_OLD}.vector"), _OldWrappers(f"{_OLD}.wrappers")
    logger.__dict__.update(vars(gymnasium.logger), __name__=logger.__name__)
    logger.__dict__.update(setLevel=lambda level: None, set_level=lambda level: None)
    kind = VectorOfFour if four_tuple else Vector
    vector.__dict__.update(SyncVectorEnv=kind, AsyncVectorEnv=kind, make=make_vector(make, kind))
    wrappers.four_tuple = four_tuple
    gym.__dict__.update(
        make=make,
        __version__="0.21.0" if four_tuple else "0.26.2",
        logger=logger,
        vector=vector,
        wrappers=wrappers,
    )
    modules = gym, logger, vector, wrappers, _Experimental(_EXPERIMENTAL)
    return {module.__name__: module for module in modules}


def _renamed(name: str) -> str:
    if name == _EXPERIMENTAL:
        return f"{_NEW}.wrappers"
    return _NEW + name[len(_OLD) :]


def _take_out(names: Iterable[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
