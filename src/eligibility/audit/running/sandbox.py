"""What somebody's program may not do while it is audited, in the process that runs it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of `sys.addaudithook` and what to call them; the first argument of the last kind is a path.
_NETWORK = {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"}
_PROCESSES = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "os.kill", "os.killpg", "pty.spawn",
}  # fmt: skip
_PATHS = {
    "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.utime",
    "shutil.rmtree", "shutil.chown", "os.setxattr", "os.removexattr",
}  # fmt: skip
_TWO_PATHS = {"os.rename", "os.link", "os.symlink", "shutil.move", "shutil.copyfile"}


def confine(scratch: Path) -> None:
    """From now on: no network, no other processes, no writing outside ``scratch``.

    It stops programs that do these things as programs do; it is no defence against native code.
    """
    inside = os.path.realpath(scratch)

    def outside(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real not in (inside, os.devnull) and not real.startswith(inside + os.sep)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = bool((flags or 0) & _WRITING) or (isinstance(mode, str) and "r" not in mode)
            if writes and outside(path):
                raise PermissionError(f"an audited program may not write {path!r}")
        elif event in _NETWORK:
            raise PermissionError("an audited program has no network")
        elif event in _PROCESSES:
            raise PermissionError("an audited program may not start or signal processes")
        elif (event in _PATHS and outside(args[0])) or (
            event in _TWO_PATHS and any(outside(path) for path in args[:2])
        ):
            raise PermissionError(f"an audited program may not change {args[0]!r}")

    sys.addaudithook(hook)


def limit(seconds: float, megabytes: int) -> None:
    """Bound the processor time, the additional memory and the files of this process."""
    processor = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = _address_space() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _address_space() -> int:
    """Bytes of address space in use; what the libraries have reserved is not the program's."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 8 << 30  # not Linux: a bound that the libraries' own reservations fit into
    return pages * resource.getpagesize()
