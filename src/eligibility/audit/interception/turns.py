"""Processes and threads of a program as tasks of one: each goes on until it waits for another.

The order is the same in every run, and the choices of all of them are on one record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

_get_ident, _sleep = threading.get_ident, time.sleep  # before they are patched


class Turns:
    """The program, and the processes and threads that it starts."""

    def __init__(self) -> None:
        self._thread = _get_ident()
        self._tasks: list[Any] = []  # greenlets: the program's own first, once there are others
        self._daemons: list[Any] = []
        self._waiting = 0  # how many have been asked in a row that could not go on

    def add(self, work: Callable[[], object], daemon: bool) -> Any:
        """A task that takes its first turn when another waits; what it raises, the program does."""
        import greenlet  # only a program with other processes or threads needs it

        if not self._tasks:
            self._tasks.append(greenlet.getcurrent())

        def run() -> None:
            self._waiting = 0
            torch.set_grad_enabled(True)
            work()

        task = greenlet.greenlet(run, parent=self._tasks[0])
        self._tasks.append(task)
        if daemon:
            self._daemons.append(task)
        return task

    def drop(self, task: Any) -> None:
        """The task takes no turn any more."""
        if task in self._tasks:
            self._tasks.remove(task)

    def finish(self) -> None:
        """At the end of the program: drop the daemons, and let the others come to their ends."""
        for task in self._daemons:
            self.drop(task)
        self.wait(lambda: all(task.dead for task in self._tasks[1:]), 1.0)

    def close(self) -> None:
        """The program has ended: locks that it leaves behind are locks of threads."""
        self._thread = 0

    def are_taken(self) -> bool:
        """Whether the caller takes turns; a thread that was there before the program does not."""
        return _get_ident() == self._thread

    def current(self) -> Any:
        """The task whose turn it is; None: the program itself."""
        if not self._tasks or not self.are_taken():
            return None
        here = self._current()
        return None if here is self._tasks[0] else here

    def wait(
        self, ready: Callable[[], bool], seconds: float | None = None, last: Any = None
    ) -> bool:
        """Let the others go on until ``ready``; False if it is not and the time is over.

        No time passes here: it is over when all of them wait, and if it is 0 after one turn of
        the others. ``last`` takes its turn after the others.

        Raises:
            NotImplementedError: All wait, and none has a time limit.
        """
        begun = time.monotonic()
        while not ready():
            alive = sum(not task.dead for task in self._tasks)
            if not self.are_taken():
                if seconds is not None and time.monotonic() - begun >= seconds:
                    return False
                _sleep(1e-3)
            elif seconds is not None and (seconds <= 0 or self._waiting >= alive):
                self._waiting = 0
                self.pass_on(last)
                return ready()
            elif self._waiting >= 2 * alive:  # each had the chance to run out of time
                raise NotImplementedError(
                    "the audit runs the program's processes and threads one at a time, each until "
                    "it waits, and now all of them wait for each other; train without them"
                )
            else:
                self._waiting += 1
                self.pass_on(last)
        self._waiting = 0
        return True

    def pass_on(self, last: Any = None) -> None:
        """Let the next task go on, until the turn comes back; ``last`` only after the others."""
        if not self._tasks or not self.are_taken():
            return
        here = self._current()
        after = self._tasks.index(here if last is None else last) + 1
        order = [*self._tasks[after:], *self._tasks[:after]]
        following = next((task for task in order if task is not here and not task.dead), None)
        if following is not None:
            enabled = torch.is_grad_enabled()
            following.switch()
            torch.set_grad_enabled(enabled)

    def _current(self) -> Any:
        import greenlet

        return greenlet.getcurrent()
