"""A folder to be hurt in, and processes to be killed."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, which is also the current one; removed afterwards."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="reliability-") as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


@contextlib.contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[Path | None]:
    """A disk of its own at ``folder``, or None where this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def forked(work: Callable[[], object], log: Path) -> int:
    """The id of a child process that does ``work`` and exits with its status.

    A fork, because the packages are then loaded already: a process of its own would spend two
    seconds on that for half a second of what is to be tested. What it says goes to ``log``.
    """
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        with (
            log.open("w") as file,
            contextlib.redirect_stderr(file),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            try:
                work()
                status = 0
            except SystemExit as left:
                status = left.code if isinstance(left.code, int) else 0
            except BaseException:  # the child must never run its parent's code
                traceback.print_exc(file=file)
    finally:
        os._exit(status)


def wait(child: int) -> int:
    """The exit status of a child; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
