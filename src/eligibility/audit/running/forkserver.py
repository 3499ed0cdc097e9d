"""A process that has the large libraries loaded and forks a worker for every audit.

Loading torch takes longer than many an audit. The second script of a process, or the next test of
a suite, finds it loaded, and nothing else of the first one, which ran in a fork. The server ends
with the process that started it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from eligibility.audit.running import huge_pages
from eligibility.errors import EligibilityError

_PATIENCE = 2.0  # seconds that a worker has to end by itself
_LONGEST = 1 << 20  # bytes of a request
_STANDARD = 3  # pipes of every worker: standard input, output, errors
MOST_LANES = 7
# As `-m` does it, but without the folder that the user is in: a file of theirs that is named as a
# module, such as random.py, would take its place.
_START = """import sys
sys.path.pop(0)
from eligibility.audit.running.forkserver import serve
serve(sys.argv[1:])"""


class WorkerError(EligibilityError, RuntimeError):
    """The process that runs the audited program could not be started or has died."""


class Lane:
    """Two pipes of text: answers come in the order of the lines that were sent."""

    def __init__(self, sending: int, receiving: int) -> None:
        self.stdin = os.fdopen(sending, "w", encoding="utf-8")
        self.stdout = os.fdopen(receiving, encoding="utf-8")
        self._asked = self._read = 0
        self._early: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """Lines without an answer so far."""
        return self._asked - self._read

    def send(self, line: str) -> None:
        """A line to its standard input."""
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def ask(self, line: str) -> Callable[[], str]:
        """Send a line now, and wait for the answer when it is called for; empty at the end."""
        with suppress(BrokenPipeError):
            self.send(line)
        number = self._asked
        self._asked += 1

        def answer() -> str:
            while self._read <= number:
                self._early[self._read] = self.stdout.readline()
                self._read += 1
            return self._early.pop(number)

        return answer

    def hang_up(self) -> None:
        """No more input."""
        with suppress(BrokenPipeError):  # of a line that nobody reads any more
            self.stdin.close()


class Worker(Lane):
    """A process with pipes of text, and as many more pairs of them as were asked for."""

    def __init__(self, pid: int, pipes: Sequence[int]) -> None:
        super().__init__(*pipes[:2])
        self.pid = pid
        self.stderr = os.fdopen(pipes[2], encoding="utf-8", errors="replace")
        self.lanes = [Lane(*pair) for pair in zip(pipes[3::2], pipes[4::2], strict=True)]

    def hang_up(self) -> None:
        """No more input, neither for itself nor for its lanes."""
        for lane in self.lanes:
            lane.hang_up()
        super().hang_up()

    def close(self) -> None:
        """No more input: it ends, or is ended."""
        self.hang_up()
        if not self._ends(time.monotonic() + _PATIENCE):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._ends(time.monotonic() + _PATIENCE)
        for lane in (*self.lanes, self):
            lane.stdout.close()
        self.stderr.close()

    def _ends(self, deadline: float) -> bool:
        """Whether its output ends before the deadline, and it so."""
        output = self.stdout.fileno()
        while select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not os.read(output, 1 << 16):
                return True
        return False


class _Server:
    """This side of the process that forks the workers."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        self._owner = os.getpid()
        self._folder = TemporaryDirectory(prefix="eligibility-audit-", ignore_cleanup_errors=True)
        self._errors = Path(self._folder.name, "errors")
        self._link, other = socket.socketpair()
        with other, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *libraries],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment_in(self._folder.name) | huge_pages.ENVIRONMENT,
                start_new_session=True,
            )

    @property
    def serves(self) -> bool:
        """Whether it lives, and for this process, which may be a fork of the one that made it."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork(self, module: str, scratch: Path, lanes: int) -> Worker:
        """A worker that runs a module's `main`, and whose home is a separate folder."""
        request = module, environment_in(str(scratch)), os.getcwd()
        pipes = [os.pipe() for _ in range(_STANDARD + 2 * lanes)]
        read = [number in (0, *range(_STANDARD, len(pipes), 2)) for number in range(len(pipes))]
        theirs = [pipe[0 if reads else 1] for pipe, reads in zip(pipes, read, strict=True)]
        ours = [pipe[1 if reads else 0] for pipe, reads in zip(pipes, read, strict=True)]
        answer = b""
        try:
            with suppress(OSError):
                socket.send_fds(self._link, [json.dumps(request).encode() + b"\n"], theirs)
                answer = self._link.recv(32)
        finally:
            for descriptor in theirs if answer else theirs + ours:
                os.close(descriptor)
        if not answer:
            last = self._errors.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
            raise early_end(*last)
        return Worker(int(answer), ours)

    def close(self) -> None:
        """No more workers; those at work go on."""
        self._link.close()
        if self._owner == os.getpid():
            self._process.wait()
            self._folder.cleanup()


_lock = Lock()
_servers: dict[tuple[str, ...], _Server] = {}  # by what they have loaded


def start_worker(
    module: str, scratch: Path, libraries: tuple[str, ...] = (), lanes: int = 0
) -> Worker:
    """A process that runs a module of ours.

    Args:
        module: Has `prepare`, which is called once in a server, and `main`, which is given the
            descriptors of the lanes: of each the one to read from and the one to write to.
        scratch: Its home, and its folder for temporary files.
        libraries: Loaded before, where they are installed.
        lanes: Pairs of pipes beside the standard ones.

    Raises:
        WorkerError: The module cannot be loaded.
    """
    with _lock:
        if libraries in _servers and not _servers[libraries].serves:
            _servers.pop(libraries).close()
        if libraries not in _servers:
            _servers[libraries] = _Server(libraries)
        try:
            return _servers[libraries].fork(module, scratch, lanes)
        except BaseException:  # an interruption: its answer must not be taken for the next one's
            _servers.pop(libraries).close()
            raise


def close_servers() -> None:
    """End the servers of this process."""
    while _servers:
        _servers.popitem()[1].close()


atexit.register(close_servers)


def serve(libraries: Sequence[str]) -> None:
    """In the server: load everything, then fork a worker for every request until the link ends."""
    link = socket.socket(fileno=os.dup(0))
    for name in libraries:
        with suppress(Exception):  # then the program itself will meet the error
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    while True:
        request, pipes = _receive(link)
        if not request:
            break
        module, environment, folder = json.loads(request)
        main = _prepared(module)
        pid = os.fork()
        if pid == 0:
            link.close()
            _become_worker(pipes[:_STANDARD], environment, folder)
            main(*pipes[_STANDARD:])
            os._exit(0)  # taking torch down would cost a quarter of a second
        link.sendall(str(pid).encode())
        for descriptor in pipes:
            os.close(descriptor)
    deadline = time.monotonic() + _PATIENCE
    while _reap() and time.monotonic() < deadline:  # so that their time is counted as ours
        time.sleep(0.01)
    os._exit(0)


@cache
def _prepared(module: str) -> Callable[..., None]:
    """What a worker of this module runs, with all that can be done once for all of them."""
    loaded = importlib.import_module(module)
    loaded.prepare()
    gc.collect()
    gc.freeze()
    huge_pages.collapse()
    main: Callable[..., None] = loaded.main
    return main


def _receive(link: socket.socket) -> tuple[bytes, list[int]]:
    """A request and the worker's pipes; an empty one at the end."""
    request, pipes, _, _ = socket.recv_fds(link, _LONGEST, _STANDARD + 2 * MOST_LANES)
    while request and not request.endswith(b"\n"):
        request += link.recv(_LONGEST)
    return request, pipes


def _reap() -> bool:
    """Take note of every worker that has ended; whether others have not."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _become_worker(pipes: Sequence[int], environment: dict[str, str], folder: str) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard, descriptor in enumerate(pipes):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(folder)


def early_end(message: str = "no message") -> WorkerError:
    """What to raise when a process of the audit is gone."""
    return WorkerError(
        "the audit's child process",
        f"an early exit ({message})",
        "a process that keeps running",
        "run `python -c 'import eligibility.audit.running.worker'` to see why",
    )


def environment_in(scratch: str) -> dict[str, str]:
    """One thread, no display, no accelerator, no compiler, and home is the scratch folder."""
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return kept | {
        "HOME": scratch,
        "TMPDIR": scratch,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "TQDM_DISABLE": "1",
        "SDL_VIDEODRIVER": "dummy",
        "WANDB_MODE": "disabled",
        "NUMBA_DISABLE_JIT": "1",  # compiling in every run takes longer than a few steps in Python
        "PYTHONDONTWRITEBYTECODE": "1",
    }
