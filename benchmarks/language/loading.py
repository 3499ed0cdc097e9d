"""Loads one module of a project that is not installed.

A trainer's loss is a few lines of torch, in a package that imports Ray, vLLM and DeepSpeed when it
is imported. Only the modules that hold the loss are executed: the ``__init__`` of their packages is
not, unless it is named, and a third-party package that is not installed is replaced by a stand-in
that accepts whatever is done to it at import. A loss that *computed* with a stand-in would fail.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar


class _Base:
    """What a class gets that derives from a stand-in."""

    def __init__(self, *args: Any, **named: Any) -> None:
        for name, value in named.items():
            setattr(self, name, value)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()


class Anything:
    """Stands for an object of a package that is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: Any, **named: Any) -> Any:
        # A decorator that is not there leaves what it decorates as it is.
        return args[0] if len(args) == 1 and not named and callable(args[0]) else Anything()

    def __getitem__(self, item: Any) -> Any:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type("_Base", (_Base,), {}),)  # one class each: two bases of a class differ


_TREES: set[str] = set()  # the projects' own modules that a package would have imported


class _StandIn(types.ModuleType):
    """A module that is not installed."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        submodule = f"{self.__name__}.{name}"
        if submodule in _TREES:  # a package whose __init__ was not executed
            return importlib.import_module(submodule)
        return Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a project's modules below ``root``, and a stand-in for each package that is missing."""

    def __init__(
        self, root: Path, package: str, executed: Sequence[str] = (), replaced: bool = True
    ) -> None:
        self.root, self.package, self.executed = root, package, set(executed)
        self.replaced = replaced
        self.stand_ins: set[str] = set()
        _TREES.update(executed)

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top != self.package:
            asked = self.replaced and self._asked_by_the_project()
            if not asked or (top not in self.stand_ins and _installed(top)):
                return None
            self.stand_ins.add(top)
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        place = self.root.joinpath(*name.split("."))
        if (place / "__init__.py").exists() and name in self.executed:
            return importlib.util.spec_from_file_location(
                name, place / "__init__.py", submodule_search_locations=[str(place)]
            )
        if place.is_dir():
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if place.with_suffix(".py").exists():
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _asked_by_the_project(self) -> bool:
        """Whether a file of the project imports; not a library, and no test of what is there."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            if frame.f_code.co_filename.endswith("util.py"):
                return False  # it asks whether the package is there, and it is not
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(str(self.root))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is executed: the module's attributes are stand-ins."""


def _installed(package: str) -> bool:
    return package in sys.modules or any(
        finder.find_spec(package, None) is not None
        for finder in sys.meta_path
        if not isinstance(finder, Finder)
    )


def load(
    root: Path, module: str, executed: Sequence[str] = (), replaced: bool = True
) -> types.ModuleType:
    """The module ``module`` of the checkout at ``root``; once in a process.

    Args:
        root: The folder that holds the project's package.
        module: Its dotted name.
        executed: Packages whose ``__init__`` the module needs.
        replaced: Whether packages that are missing get stand-ins.
    """
    package = module.partition(".")[0]
    if not any(isinstance(f, Finder) and f.package == package for f in sys.meta_path):
        sys.meta_path.insert(0, Finder(root, package, executed, replaced))
    return importlib.import_module(module)


def forget(packages: set[str]) -> None:
    """Unload the packages and their stand-ins: another commit of them comes next."""
    gone = set(packages)
    for finder in [f for f in sys.meta_path if isinstance(f, Finder)]:
        if finder.package in packages:
            gone |= finder.stand_ins
            sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name.partition(".")[0] in gone]:
        del sys.modules[name]
