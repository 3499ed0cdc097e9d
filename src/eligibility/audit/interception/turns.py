"""Processes of a program as tasks of this one: each goes on until it has to wait for another.

The order is the same in every run, and the choices of all of them are on one record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


class Turns:
    """The program and the processes that it starts."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._tasks: list[Any] = []  # greenlets: the program's own first, once there are others
        self._waiting = 0  # how many have been asked in a row that could not go on

    def add(self, work: Callable[[], object]) -> Any:
        """A task that takes its first turn when another waits; what it raises, the program does."""
        if not self._tasks:
            self._tasks.append(self.current())

        def run() -> None:
            self._waiting = 0
            torch.set_grad_enabled(True)
            work()

        task = _greenlets().greenlet(run, parent=self._tasks[0])
        self._tasks.append(task)
        return task

    def wait(
        self, ready: Callable[[], bool], seconds: float | None = None, last: Any = None
    ) -> bool:
        """Let the others go on until ``ready``; False if it is not and the time is over.

        No time passes here: it is over when all of them wait, and if it is 0 after one turn of
        the others. ``last`` takes its turn after the others.

        Raises:
            NotImplementedError: All wait, and none has a time limit.
        """
        while not ready():
            alive = sum(not task.dead for task in self._tasks)
            if seconds is not None and (seconds <= 0 or self._waiting >= alive):
                self._waiting = 0
                self.pass_on(last)
                return ready()
            if self._waiting >= 2 * alive:  # each had the chance to run out of time
                raise NotImplementedError(
                    "the processes of the program all wait for each other, as the audit runs them "
                    "(one after the other, each until it waits): train without them"
                )
            self._waiting += 1
            self.pass_on(last)
        self._waiting = 0
        return True

    @staticmethod
    def current() -> Any:
        """The task whose turn it is."""
        return _greenlets().getcurrent()

    def drop(self, task: Any) -> None:
        """The task takes no turn any more."""
        if task in self._tasks:
            self._tasks.remove(task)

    def pass_on(self, last: Any = None) -> None:
        """Let the next task go on, until the turn comes back; ``last`` only after the others."""
        if not self._tasks or threading.get_ident() != self._thread:
            return
        here = self.current()
        after = self._tasks.index(here if last is None else last) + 1
        order = [*self._tasks[after:], *self._tasks[:after]]
        following = next((task for task in order if task is not here and not task.dead), None)
        if following is not None:
            enabled = torch.is_grad_enabled()
            following.switch()
            torch.set_grad_enabled(enabled)


def _greenlets() -> Any:
    import greenlet  # only a program with processes needs it

    return greenlet
