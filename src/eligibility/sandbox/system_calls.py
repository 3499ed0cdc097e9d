"""System calls that Python has no function for, by their number."""

from __future__ import annotations

import ctypes
import os
from typing import Any

# The same on every architecture, as all system calls that came after 2019.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF, MOUNT_SETATTR = 444, 445, 446, 442
_SET_NO_NEW_PRIVILEGES = 38


def system_call(number: int, *arguments: Any) -> int:
    """The call's result; raises OSError."""
    return _checked(_library().syscall(ctypes.c_long(number), *arguments))


def library_call(name: str, *arguments: Any) -> int:
    """The result of a function of the C library; raises OSError."""
    return _checked(getattr(_library(), name)(*arguments))


def give_up_privileges() -> None:
    """No program that this process or its children start can gain a privilege by it."""
    library_call("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except TypeError as error:  # Windows has no such library
        raise OSError("no C library") from error


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
