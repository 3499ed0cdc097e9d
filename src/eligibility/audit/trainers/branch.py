"""Runs that continue from one point of a program, each in a separate process."""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from eligibility.audit.side_by_side import die_with_parent
from eligibility.audit.trainers.refused import Refused
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
        finally:  # even if nobody reads it any more
            os._exit(0)


def branch_off() -> Branch | Callable[[], dict[str, Any]]:
    """In the new process, the way back; in this one, a call that waits for what is sent, if any."""
    reading, writing = os.pipe()
    gc.freeze()  # every branch has all that exists now, so no collector needs to look at it
    drawn = random.getstate()
    with forking():
        child = os.fork()
    if child == 0:
        random.setstate(drawn)  # Python gives a new process other numbers
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


def found_by(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a branch has found; it may have found that the program cannot be audited."""
    found = answer()
    if found.get("refused"):
        raise Refused(found["refused"], found["other_text"], tuple(found["where"]))
    if "prompts" not in found and "error" not in found:
        raise Refused("the program ends its process before its optimizer steps")
    return found
