"""A user and mount namespace in which every file system is read-only, but for one folder."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from eligibility.sandbox.system_calls import (
    MOUNT_SETATTR,
    give_up_privileges,
    library_call,
    system_call,
)

_NEW_USERS, _NEW_MOUNTS, _NEW_NETWORK = 0x10000000, 0x00020000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_READ_ONLY, _BELOW = 1, 0x8000
_AT_CURRENT = -100


class _Attributes(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("to_set", "to_clear", "propagation", "users")
    )


def restrict(folder: Path) -> None:
    """From now on: write below ``folder`` only, and no network.

    The process must have a single thread.
    """
    where = os.fsencode(folder)
    user, group = os.geteuid(), os.getegid()
    library_call("unshare", ctypes.c_int(_NEW_USERS | _NEW_MOUNTS | _NEW_NETWORK))
    for name, text in (
        ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
    ):  # fmt: skip
        Path("/proc/self", name).write_text(text, encoding="ascii")
    library_call("mount", None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
    library_call("mount", where, where, None, ctypes.c_ulong(_BIND), None)
    _set_read_only(b"/", True)
    _set_read_only(where, False)
    # What a namespace inherits from one with more privileges it cannot undo: in this second one
    # nobody, with whatever capability, makes a file system writable again.
    library_call("unshare", ctypes.c_int(_NEW_USERS | _NEW_MOUNTS))
    os.chdir(folder)
    give_up_privileges()


def _set_read_only(path: bytes, on: bool) -> None:
    attributes = _Attributes(*((_READ_ONLY, 0) if on else (0, _READ_ONLY)), 0, 0)
    system_call(
        MOUNT_SETATTR, ctypes.c_int(_AT_CURRENT), path, ctypes.c_uint(_BELOW if on else 0),
        ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)),
    )  # fmt: skip
