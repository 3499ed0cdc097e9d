"""Holds a program to one folder, by the best guard that this machine has."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of `sys.addaudithook`.
_NETWORK = {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"}
_PROCESSES = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "os.kill", "os.killpg", "pty.spawn",
}  # fmt: skip
# For each event: where its arguments hold paths, and the descriptors that they start at.
_NAMED = {  # these act on a link itself
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, None), (1, None)),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),  # the one that is linked could be written to as well
    "os.symlink": ((1, 2),),
}
_FOLLOWED = {  # these act on what a link leads to
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.chown": ((0, None),),
    "shutil.copyfile": ((1, None),),
}
# The kernel lets a database outside be read; where it does not help, none is opened.
_WITHOUT_KERNEL = {"sqlite3.connect": ((0, None),)}


_forking: list[bool] = []


@contextmanager
def forking() -> Iterator[None]:
    """Within it this process may fork: the child is confined as it is itself."""
    _forking.append(True)
    try:
        yield
    finally:
        _forking.pop()


def explain_refusals(scratch: Path, program: str, *, alone: bool) -> None:
    """From now on Python says what a program may not do: change what is outside, start processes.

    ``alone``: no guard of the kernel helps.
    """
    inside = os.path.realpath(scratch)
    followed = {**_FOLLOWED, **(_WITHOUT_KERNEL if alone else {})}
    watched = {"open", *_NETWORK, *_PROCESSES, *_NAMED, *followed}

    def refuse_outside(verb: str, path: Any, follow: bool, start: Any = -1) -> None:
        if isinstance(path, int) or path is None or path == ":memory:":
            return
        name = os.fsdecode(path)
        if isinstance(start, int) and start >= 0:
            name = os.path.join(f"/proc/self/fd/{start}", name)
        folder, last = os.path.split(name.rstrip(os.sep))
        real = os.path.realpath(name) if follow else os.path.join(os.path.realpath(folder), last)
        if real not in (inside, os.devnull) and not real.startswith(inside + os.sep):
            raise PermissionError(f"{program} may not {verb} {path!r}")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in watched:  # almost all
            return
        if event == "open":
            path, mode, flags = args
            if (flags or 0) & _WRITING or (isinstance(mode, str) and "r" not in mode):
                refuse_outside("write", path, True)
        elif event in _NETWORK:
            raise PermissionError(f"{program} has no network")
        elif event == "subprocess.Popen" and not shutil.which(os.fsdecode(args[0])):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), args[0])
        elif event in _PROCESSES and not (event == "os.fork" and _forking):
            raise PermissionError(f"{program} may not start or signal processes")
        elif event == "os.mkdir" and os.path.isdir(args[0]):
            return  # Python will say that it is there
        for table in (_NAMED, followed):
            for at, start in table.get(event, ()):
                below = args[start] if start is not None and start < len(args) else -1
                refuse_outside("change", args[at], table is followed, below)

    sys.addaudithook(hook)
