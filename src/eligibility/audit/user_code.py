"""Which code is the user's: where in it something happens."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

# Folders of packages carry these names, wherever they are; a package that is built where its
# source lies is found by its own.
_INSTALLED = ("site-packages", "dist-packages")
_BUILT = ("torch", "numpy", "gymnasium")
_HANDS_ON = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def user_place() -> tuple[str, int]:
    """File and line of the innermost frame in the user's own code."""
    return next(map(_place_of, _user_frames()), ("", 0))


def asking_place() -> tuple[str, int]:
    """The same without functions of ``*args, **kwargs``, which hand on what they were asked for."""
    asking = (frame for frame in _user_frames() if frame.f_code.co_flags & _HANDS_ON != _HANDS_ON)
    return next(map(_place_of, asking), user_place())


def user_stack() -> list[tuple[str, int]]:
    """File and line of every frame in the user's own code, the innermost first."""
    return list(map(_place_of, _user_frames()))


def _user_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _place_of(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


def raised_at(error: BaseException) -> tuple[str, int]:
    """File and line of the innermost frame in the user's own code that an error went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)


def caught_in(error: BaseException) -> BaseException:
    """The error that a program caught before it left with `sys.exit`; else the one it ended by."""
    while isinstance(error, SystemExit) and error.__context__ is not None:
        error = error.__context__
    return error


def imported_by(node: ast.AST) -> list[str]:
    """The modules that a statement imports; a relative one begins with dots."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


@lru_cache(maxsize=4096)  # asked for every frame of a stack, a thousand times in a run
def is_user_file(name: str) -> bool:
    """Neither the standard library, nor an installed package, nor this one."""
    installed = any(f"{os.sep}{folder}{os.sep}" in name for folder in _INSTALLED)
    return not (installed or name.startswith(("<", *_libraries())))


@cache
def _libraries() -> tuple[str, ...]:
    own = str(Path(__file__).parents[1])
    standard = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    found = (find_spec(name) for name in _BUILT)
    built = (str(Path(spec.origin).parent) for spec in found if spec and spec.origin)
    return tuple(folder + os.sep for folder in (own, *standard, *built))
