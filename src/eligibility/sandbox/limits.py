"""Bounds on what a process may use."""

from __future__ import annotations

from pathlib import Path

_LARGEST_FILE = 64 << 20


def limit(seconds: float | None, megabytes: int) -> None:
    """Bound the processor time, the additional memory and the files of this process."""
    import resource

    if seconds is not None:
        processor = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = _address_space() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _address_space() -> int:
    """Bytes of address space in use; what the libraries have reserved is not the program's."""
    import resource

    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 8 << 30  # not Linux: a bound that the libraries' own reservations fit into
    return pages * resource.getpagesize()
