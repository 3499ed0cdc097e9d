"""Work on several processors: calls that are started before the first of them is waited for."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

_SET_PARENT_DEATH_SIGNAL = 1
Answer = TypeVar("Answer")


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    started: Iterable[Callable[[], Answer]], most: Callable[[], int] = processors
) -> Iterator[Answer]:
    """The answers of calls, in their order.

    Args:
        started: Each begins something when it is taken, and waits for its answer when it is called.
        most: How many are begun before the first of them is waited for.
    """
    waiting: deque[Callable[[], Answer]] = deque()
    for call in started:
        waiting.append(call)
        if len(waiting) >= most():
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def die_with_parent() -> None:
    """Let the kernel end this process when the one that forked it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
