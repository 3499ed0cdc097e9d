"""Landlock: from a moment on, this process and its children can write to given paths only.

The rules are the kernel's (Linux 6.2 and later), so they hold for native code, for file
descriptors of folders and for programs that are started as well. Reading stays free. Source:
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from eligibility.sandbox.system_calls import (
    ADD_RULE,
    CREATE_RULESET,
    RESTRICT_SELF,
    give_up_privileges,
    system_call,
)

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


def version() -> int:
    """The version of Landlock's interface here; 0 where it is missing or too old to hold."""
    try:
        found = system_call(
            CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_ASKED)
        )
    except OSError:
        return 0
    return found if found >= _OLDEST else 0


def restrict(folders: Sequence[Path], files: Sequence[Path]) -> None:
    """From now on: write below ``folders`` and to ``files`` only; no TCP, no signals to others."""
    here = version()
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
