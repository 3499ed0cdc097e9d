"""Which code is the user's: where in it something happens."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

_LIBRARIES = (
    str(Path(__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def user_place() -> tuple[str, int]:
    """File and line of the innermost frame in the user's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def is_user_file(name: str) -> bool:
    """Neither the standard library, nor an installed package, nor this one."""
    return not name.startswith("<") and not name.startswith(_LIBRARIES)
