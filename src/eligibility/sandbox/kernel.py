"""What the kernel forbids a process and its children, from a moment on, native code as well.

Landlock (Linux 6.2 and later) lets them write to given paths only, also through descriptors of
folders: https://docs.kernel.org/userspace-api/landlock.html. A user and mount namespace makes every
file system read-only, but for one folder. Reading stays free.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
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


# Bits of the rights over files that change something, by the version that brought them.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGING = {
    1: _WRITE_FILE | sum(1 << bit for bit in range(4, 13)),  # remove and make of each kind
    2: 1 << 13,  # link or rename into another folder
    3: _TRUNCATE,
}
_TCP = 0b11  # bind, connect: version 4
_SCOPES = 0b11  # abstract sockets and signals outside: version 6
_OLDEST = 3  # before it a file could be truncated
_VERSION_ASKED, _PATH_BENEATH = 1, 1


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64),
    )  # fmt: skip


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """The version of Landlock's interface here; 0 where it is missing or too old to hold."""
    try:
        found = system_call(
            CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_ASKED)
        )
    except OSError:
        return 0
    return found if found >= _OLDEST else 0


def restrict_by_landlock(folders: Sequence[Path], files: Sequence[Path]) -> None:
    """From now on: write below ``folders`` and to ``files`` only; no TCP, no signals to others."""
    here = landlock_version()
    changing = sum(bits for needed, bits in _CHANGING.items() if needed <= here)
    rules = _Ruleset(changing, _TCP if here >= 4 else 0, _SCOPES if here >= 6 else 0)
    size = 24 if here >= 6 else 16 if here >= 4 else 8
    ruleset = system_call(
        CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    try:
        for folder in folders:
            _allow(ruleset, folder, changing)
        for file in files:
            _allow(ruleset, file, _WRITE_FILE | _TRUNCATE)
        give_up_privileges()
        system_call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]  # Linux only
    try:
        rule = _PathBeneath(rights, parent)
        system_call(
            ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule),
            ctypes.c_uint32(0),
        )  # fmt: skip
    finally:
        os.close(parent)


_NEW_USERS, _NEW_MOUNTS, _NEW_NETWORK = 0x10000000, 0x00020000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_READ_ONLY, _BELOW = 1, 0x8000
_AT_CURRENT = -100


class _Attributes(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("to_set", "to_clear", "propagation", "users")
    )


def restrict_by_namespace(folder: Path) -> None:
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
    # A namespace cannot undo what it inherits from one with more privileges: in this second one no
    # capability suffices to make a file system writable again.
    library_call("unshare", ctypes.c_int(_NEW_USERS | _NEW_MOUNTS))
    os.chdir(folder)
    give_up_privileges()


def _set_read_only(path: bytes, on: bool) -> None:
    attributes = _Attributes(*((_READ_ONLY, 0) if on else (0, _READ_ONLY)), 0, 0)
    system_call(
        MOUNT_SETATTR, ctypes.c_int(_AT_CURRENT), path, ctypes.c_uint(_BELOW if on else 0),
        ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)),
    )  # fmt: skip
