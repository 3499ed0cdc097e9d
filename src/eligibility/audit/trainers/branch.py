"""Runs that continue from one point of a program, each in a separate process."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from eligibility.audit.side_by_side import die_with_parent
from eligibility.sandbox import forking


class Branch:
    """The way back from a branch to the process that it came from."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, **found: Any) -> NoReturn:
        """Say what was found, and end this process."""
        text = json.dumps(found)
        try:
            with os.fdopen(self._descriptor, "w", encoding="utf-8") as pipe:
                pipe.write(text)
        finally:  # whether or not there is still somebody who reads it
            os._exit(0)


def branch_off() -> Branch | Callable[[], dict[str, Any]]:
    """In the new process, the way back; in this one, a call that waits for what is sent.

    If nothing is sent, it gives an empty one.
    """
    reading, writing = os.pipe()
    gc.freeze()  # what is there is there in every branch: no collector needs to look at it
    with forking():
        child = os.fork()
    if child == 0:
        die_with_parent()
        os.close(reading)
        return Branch(writing)
    os.close(writing)
    return partial(_received, child, reading)


def _received(child: int, reading: int) -> dict[str, Any]:
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
