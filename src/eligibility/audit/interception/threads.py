"""Threads of the program take turns as its processes do, and so do those who wait for a lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from eligibility.audit.interception.semaphores import PLAIN, RECURSIVE, Semaphore
from eligibility.audit.interception.turns import Turns
from eligibility.audit.patches import Patches


class Lock(Semaphore):
    """One of threading, with what a condition asks of it."""

    def __init__(self, turns: Turns, kind: int) -> None:
        super().__init__(turns, kind, 1, 1)

    def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        return super().acquire(blocking, None if timeout == -1 else timeout)

    def locked(self) -> bool:
        return self._is_zero()

    def _is_owned(self) -> bool:
        return self._is_mine() if self.kind == RECURSIVE else self._is_zero()

    def _release_save(self) -> int:
        taken = self._count()
        for _ in range(taken):
            self.release()
        return taken

    def _acquire_restore(self, taken: int) -> None:
        for _ in range(taken):
            self.acquire()


def thread_here(patches: Patches, turns: Turns) -> None:
    """Threads do their work in this one.

    Those that were there before, as in a notebook, stay threads, and their locks are locks.
    """

    def start(self: threading.Thread) -> None:
        if not turns.are_taken():
            stock_start(self)
            return
        tasks[self] = turns.add(self.run, self.daemon)
        self._started.set()  # type: ignore[attr-defined]  # what the library asks for

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        if self in tasks:
            turns.wait(lambda: bool(tasks[self].dead), timeout, last=tasks[self])
        else:
            stock_join(self, timeout)

    def is_alive(self: threading.Thread) -> bool:
        return not tasks[self].dead if self in tasks else bool(stock_is_alive(self))

    def lock(kind: int, stock: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: Lock(turns, kind) if turns.are_taken() else stock()

    tasks: dict[threading.Thread, Any] = {}
    stock_start = patches.set(threading.Thread, "start", start)
    stock_join = patches.set(threading.Thread, "join", join)
    stock_is_alive = patches.set(threading.Thread, "is_alive", is_alive)
    for name, kind in (("Lock", PLAIN), ("_allocate_lock", PLAIN), ("RLock", RECURSIVE)):
        patches.set(threading, name, lock(kind, getattr(threading, name)))
    patches.set(queue, "SimpleQueue", queue._PySimpleQueue)  # type: ignore[attr-defined]  # the one in Python
