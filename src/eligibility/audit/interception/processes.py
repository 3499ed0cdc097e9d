"""Workers in processes or threads: their work is done here, in the same order each time.

What they share with the program, they share by being in one process: no memory has to be mapped,
no semaphore made, and nothing is sent by a thread.
"""

from __future__ import annotations

import inspect
import io
import mmap
import multiprocessing.connection
import multiprocessing.heap
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.synchronize
import os
import select
import signal
import time
from functools import partial
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import Any

import torch.utils.data

from eligibility.audit.interception.pools import work_here
from eligibility.audit.interception.semaphores import Semaphore
from eligibility.audit.interception.threads import run_threads_here
from eligibility.audit.interception.turns import Turns
from eligibility.audit.patches import Patches

_WITHOUT_WORKERS = {
    "num_workers": 0, "prefetch_factor": None, "persistent_workers": False,
    "multiprocessing_context": None, "timeout": 0,
}  # fmt: skip


def stay_in_process(patches: Patches) -> Turns:
    """Processes, threads and loaders of the program do their work in this process, by turns."""
    turns = Turns()
    patches.callback(turns.close)
    _start_here(patches, turns)
    run_threads_here(patches, turns)
    _talk_here(patches, turns)
    _share_here(patches, turns)
    load_here(patches)
    work_here(patches)
    patches.set(os, "cpu_count", lambda: 2)  # as many workers, on whatever machine
    patches.set(time, "sleep", lambda seconds: turns.pass_on())
    return turns


def _start_here(patches: Patches, turns: Turns) -> None:
    def start(self: Any) -> None:
        self._popen = _Task(turns, self)
        self._sentinel = self._popen.sentinel
        started.add(self)

    started: set[Any] = set()
    patches.set(multiprocessing.process, "_children", started)
    patches.set(multiprocessing.process.BaseProcess, "start", start)


class _Task:
    """What a process's object knows of its process, which is a task here."""

    def __init__(self, turns: Turns, process: Any) -> None:
        self._turns = turns
        self.returncode: int | None = None
        self.pid = os.getpid()
        self.sentinel, self._ending = os.pipe()  # can be read when the task has ended
        self._task = turns.add(lambda: self._run(process), process.daemon)

    def _run(self, process: Any) -> None:
        status = 1
        try:
            process.run()
            status = 0
        except SystemExit as error:
            status = int(error.code not in (None, 0))
        finally:
            self._end(status)

    def _end(self, status: int) -> None:
        self.returncode = status
        os.close(self._ending)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        # What is started before the workers often only watches them, and never ends.
        self._turns.wait(lambda: self.returncode is not None, timeout, last=self._task)
        return self.returncode

    def terminate(self) -> None:
        if self.returncode is None:
            self._turns.drop(self._task)
            self._end(-signal.SIGTERM)

    kill = terminate

    def close(self) -> None:
        pass


def _talk_here(patches: Patches, turns: Turns) -> None:
    """A task that finds nothing to read, or no room to write, lets the others go on."""

    def receive(self: Any, size: int) -> io.BytesIO:
        read = io.BytesIO()
        while read.tell() < size:
            turns.wait(lambda: bool(readable([self], 0)))
            chunk = os.read(self.fileno(), size - read.tell())
            if not chunk:
                raise EOFError
            read.write(chunk)
        return read

    def send(self: Any, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            turns.wait(lambda: bool(select.select([], [self], [], 0)[1]))
            os.set_blocking(self.fileno(), False)  # it may have room for less than the rest
            rest = rest[os.write(self.fileno(), rest) :]
            os.set_blocking(self.fileno(), True)

    def wait(object_list: Any, timeout: float | None = None) -> Any:
        objects = list(object_list)
        turns.wait(lambda: bool(readable(objects, 0)), timeout)
        return readable(objects, 0)

    readable = patches.set(multiprocessing.connection, "wait", wait)
    connection = multiprocessing.connection.Connection
    patches.set(connection, "_recv", receive)
    patches.set(connection, "_send", send)
    # A process closes its own copies; those of the others stay open.
    patches.set(connection, "close", lambda self: None)
    patches.set(multiprocessing.queues.Queue, "_start_thread", _send_at_once)


def _send_at_once(queue: Any) -> None:
    """A queue without the thread that sends what is put into it."""
    send = queue._writer.send_bytes
    sender = SimpleNamespace(append=lambda item: send(ForkingPickler.dumps(item)))
    queue._thread = queue._buffer = sender


def _share_here(patches: Patches, turns: Turns) -> None:
    """What processes share, they share by being in one: nothing is mapped or named."""
    tensors = [kind for kind in ForkingPickler._extra_reducers if issubclass(kind, torch.Tensor)]  # type: ignore[attr-defined]  # what torch registers with
    patches.callback(_referred_to.clear)
    by_reference = dict.fromkeys(tensors, _refer_to)
    patches.set(ForkingPickler, "_extra_reducers", ForkingPickler._extra_reducers | by_reference)  # type: ignore[attr-defined]  # as above
    patches.set(torch.Tensor, "share_memory_", lambda self: self)
    patches.set(torch.Tensor, "is_shared", lambda self: True)
    patches.set(multiprocessing.heap, "Arena", _Arena)
    # A heap keeps its memory for what asks next: this one must not outlive the program.
    patches.set(multiprocessing.heap.BufferWrapper, "_heap", multiprocessing.heap.Heap())
    own = multiprocessing.synchronize._multiprocessing  # type: ignore[attr-defined]  # the interpreter's
    patches.set(own, "SemLock", partial(Semaphore, turns))


_referred_to: dict[int, torch.Tensor] = {}


def _refer_to(tensor: torch.Tensor) -> Any:
    _referred_to[id(tensor)] = tensor
    return _referred, (id(tensor),)


def _referred(key: int) -> torch.Tensor:
    return _referred_to[key]


class _Arena:
    def __init__(self, size: int, fd: int = -1) -> None:
        self.size = size
        self.buffer = mmap.mmap(-1, size)


def load_here(patches: Patches) -> None:
    """Loaders of data start no processes."""

    def initialise(self: Any, *args: Any, **options: Any) -> None:
        stock(**(signature.bind(self, *args, **options).arguments | _WITHOUT_WORKERS))

    signature = inspect.signature(torch.utils.data.DataLoader.__init__)
    stock = patches.set(torch.utils.data.DataLoader, "__init__", initialise)
