"""Threads of the program take turns, as its processes do, and pass theirs on at a taken lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from eligibility.audit.interception.turns import Turns
from eligibility.audit.patches import Patches


class Lock:
    """A lock of threading; a task that finds it taken lets the others go on."""

    def __init__(self, turns: Turns, lock: Any) -> None:
        self._turns, self._lock = turns, lock
        self.release, self.locked = lock.release, lock.locked
        self._is_owned = lock.locked  # for a condition, which would ask by trying

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        seconds = None if timeout == -1 else timeout
        return self._turns.wait(lambda: self._lock.acquire(False), seconds if blocking else 0.0)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *details: Any) -> None:
        self.release()


def run_threads_here(patches: Patches, turns: Turns) -> None:
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

    def current_thread() -> threading.Thread:
        here = turns.current()
        return next((thread for thread, task in tasks.items() if task is here), stock_current())

    def made(stock: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: Lock(turns, stock()) if turns.are_taken() else stock()

    tasks: dict[threading.Thread, Any] = {}
    stock_start = patches.set(threading.Thread, "start", start)
    stock_join = patches.set(threading.Thread, "join", join)
    stock_is_alive = patches.set(threading.Thread, "is_alive", is_alive)
    stock_current = patches.set(threading, "current_thread", current_thread)
    ident = threading.get_ident
    patches.set(threading, "get_ident", lambda: id(turns.current()) if turns.current() else ident())
    for name in ("Lock", "_allocate_lock"):
        patches.set(threading, name, made(getattr(threading, name)))
    # The ones in Python, which are made of these.
    patches.set(threading, "RLock", threading._RLock)
    patches.set(queue, "SimpleQueue", queue._PySimpleQueue)  # type: ignore[attr-defined]  # likewise
