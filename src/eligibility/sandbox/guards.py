"""Holds a program to one folder, by the best guard that this machine has."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from eligibility.sandbox.hooks import explain_refusals
from eligibility.sandbox.kernel import landlock_version, restrict_by_landlock, restrict_by_namespace

LANDLOCK, NAMESPACE, COPY = "landlock", "namespace", "copy"
# What a reader is told of each.
GUARDS = {
    LANDLOCK: "the kernel held its writes to a scratch folder (Landlock)",
    NAMESPACE: "the kernel held its writes to a scratch folder (a read-only mount namespace)",
    COPY: "it ran on a copy of its folder; this kernel has nothing that holds native code there",
}


@functools.cache
def guard_here() -> str:
    """The best guard that works here, tried in a separate process."""
    return next((guard for guard in (LANDLOCK, NAMESPACE) if works(guard)), COPY)


def confine(scratch: Path, guard: str, program: str) -> None:
    """From now on this process and its children change nothing outside ``scratch``.

    Call it in a process with a single thread. Reading stays free. There is no network. With the
    guard ``COPY`` only Python's own functions are held. ``OSError``: the kernel refuses this guard.
    """
    hold(scratch, guard)
    explain_refusals(scratch, program, alone=guard == COPY)


def hold(scratch: Path, guard: str) -> None:
    """The kernel's part of `confine`."""
    if guard == LANDLOCK:
        restrict_by_landlock([scratch], [Path(os.devnull)])
    elif guard == NAMESPACE:
        restrict_by_namespace(scratch)


def works(guard: str) -> bool:
    """Whether a process under ``guard`` writes inside a folder and fails to outside."""
    if not hasattr(os, "fork"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = Path(folder, "inside"), Path(folder, "outside")
        inside.mkdir()
        child = os.fork()
        if child == 0:
            os._exit(_try(guard, inside, outside))
        return os.waitpid(child, 0)[1] == 0 and not outside.exists()


def _try(guard: str, inside: Path, outside: Path) -> int:
    """0 if the guard holds."""
    try:
        if guard == LANDLOCK and not landlock_version():
            return 1
        hold(inside, guard)
        (inside / "file").write_bytes(b"")
        with open(os.devnull, "wb"):
            pass
    except BaseException:  # whatever it is, this guard is not for this machine
        return 1
    try:
        outside.write_bytes(b"")
    except OSError:
        return 0
    return 1


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
