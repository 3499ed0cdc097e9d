"""Refusals in Python's own words, before the kernel's: they say what a program may not do.

Python's hooks see what Python does and nothing that native code does: they protect nothing alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of `sys.addaudithook`.
_NETWORK = {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"}
_PROCESSES = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "os.kill", "os.killpg", "pty.spawn",
}  # fmt: skip
# For each event: where its arguments hold paths, and the descriptors that they start at.
_NAMED = {  # a link is meant itself
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, None), (1, None)),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),  # the one that is linked could be written to as well
    "os.symlink": ((1, 2),),
}
_FOLLOWED = {  # what a link leads to is meant
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
        if event == "open":
            path, mode, flags = args
            if (flags or 0) & _WRITING or (isinstance(mode, str) and "r" not in mode):
                refuse_outside("write", path, True)
        elif event in _NETWORK:
            raise PermissionError(f"{program} has no network")
        elif event in _PROCESSES and not (event == "os.fork" and _forking):
            raise PermissionError(f"{program} may not start or signal processes")
        elif event == "os.mkdir" and os.path.isdir(args[0]):
            return  # Python will say that it is there
        for table in (_NAMED, followed):
            for at, start in table.get(event, ()):
                below = args[start] if start is not None and start < len(args) else -1
                refuse_outside("change", args[at], table is followed, below)

    sys.addaudithook(hook)
