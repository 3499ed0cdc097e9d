"""The memory of a process that forks often, in pages of 2 MiB.

A fork copies the entries of all pages, and its end drops them: where they are 4 KiB large, that
takes longer than many a run. What a fork writes to is still copied in pages of 4 KiB.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Of an environment: the allocator of glibc asks for them from the start. Others do not read it.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_COLLAPSE = 25  # of madvise, on Linux from 6.1 on; others refuse it
_SIZE = 2 << 20


def collapse() -> None:
    """Put together the pages that are there, as those of Python's own allocator; or leave them."""
    with suppress(OSError, AttributeError):  # no Linux, or no library of C
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end in _own_memory():
            first, last = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
            if first < last:
                advise(first, last - first, _COLLAPSE)


def _own_memory() -> list[tuple[int, int]]:
    """Where the memory is that this process has written and no file has."""
    found = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            place, mode, _, _, file, *name = line.split()
            if mode.startswith("rw-p") and file == "0" and name in ([], ["[heap]"]):
                start, end = (int(number, 16) for number in place.split("-"))
                found.append((start, end))
    return found
