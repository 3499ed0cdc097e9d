"""Modules that the worker imports once, before it forks, so that no run has to.

At first the large libraries that the program's text names; after the first run whatever it has
imported of installed packages, but for those that took something of the interception with them.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence, Set
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from eligibility.audit.user_code import imported_by

# Of programs that train language models: what loading takes longest, once for all audits.
LANGUAGE_LIBRARIES = (
    "transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto",
    "transformers.generation.utils", "datasets",
)  # fmt: skip
TRAINER_LIBRARIES = (*LANGUAGE_LIBRARIES, "trl.trainer.grpo_trainer", "trl.trainer.rloo_trainer")

_LIBRARIES = (
    "stable_baselines3", "sb3_contrib", "tianshou", "tensordict", "torchrl", "transformers",
    "scipy",
)  # fmt: skip
_LOADED = {"torch"}  # most of it before any run: so a part that comes later may be kept as well
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = str(Path(__file__).parents[2])
# A library may keep the usual locks: its threads are no actors. This process must not load torch.
_LOCKS = str(Path(__file__).parents[1] / "interception" / "threads.py")


def shared_libraries(path: Path) -> tuple[str, ...]:
    """The libraries of a program that are loaded for more audits than its own."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return LANGUAGE_LIBRARIES if "transformers" in text else ()


def preload(path: Path, libraries: Sequence[str] = _LIBRARIES) -> None:
    """Load what a program imports of large libraries: once here, not once a run."""
    with suppress(SyntaxError, ValueError, OSError):  # the program says so itself
        for node in ast.walk(ast.parse(path.read_bytes())):
            for module in imported_by(node):
                if _package(module) in libraries:
                    with suppress(Exception):  # likewise
                        loaded = importlib.import_module(module)
                        for alias in getattr(node, "names", ()):
                            getattr(loaded, alias.name, None)


def installed(before: Set[str]) -> list[str]:
    """The modules of installed packages that this run has imported and others may keep."""
    found = {
        name: module
        for name, module in [*sys.modules.items()]
        if name not in before
        and isinstance(module, ModuleType)
        and not _INSTALLED.isdisjoint(Path(str(vars(module).get("__file__"))).parts)
    }
    taken = {"gym", "__main__"}
    while True:
        more = {
            _package(name)
            for name, module in found.items()
            if _package(name) not in {*taken, *_LOADED}
            and any(_is_of(value, taken) for value in [*vars(module).values()])
        }
        if not more:
            return [name for name in found if _package(name) not in taken]
        taken |= more


def load(names: Sequence[str]) -> None:
    """Import what is not there yet."""
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)


def make_room(folder: Path) -> None:
    """Forget what was loaded of a library whose name a module in ``folder`` has."""
    for library in {_package(name) for name in (*_LIBRARIES, *LANGUAGE_LIBRARIES)}:
        own = PathFinder.find_spec(library, [str(folder)])
        if own is not None and own.origin is not None:
            for name in [name for name in sys.modules if _package(name) == library]:
                del sys.modules[name]


def _package(name: str) -> str:
    return name.partition(".")[0]


def _is_of(value: Any, packages: set[str]) -> bool:
    """Whether a module has this value from one of the packages, or from the interception."""
    if isinstance(value, ModuleType):
        return _package(value.__name__) in packages
    if isinstance(value, type):
        made = any(_is_ours(part) for part in vars(value).values())
        return made or _package(value.__module__) in packages
    return _is_ours(value) or _package(str(getattr(value, "__module__", ""))) in packages


def _is_ours(value: Any) -> bool:
    file = value.__code__.co_filename if isinstance(value, FunctionType) else ""
    return file.startswith(_OWN) and file != _LOCKS
