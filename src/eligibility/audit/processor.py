"""Where tensors are while a program is audited: all on the processor."""

from __future__ import annotations

import linecache
import re
from types import SimpleNamespace
from typing import Any

import torch

from eligibility.audit.user_code import user_place

_AWAY = ("cuda", "mps", "xpu")
_DEMANDED = re.compile(r"\s*assert\b|\s*if not torch\.cuda\.is_available\(\):")
_ENDS = re.compile(r"\b(assert|raise|exit)\b")
_LINES = 3  # in which a program ends that demands an accelerator
PROCESSOR = SimpleNamespace(name="cpu", total_memory=0, major=0, minor=0)


def cuda_is_available() -> bool:
    """In place of torch's: that it is not, except to a program that would end there."""
    lines = _asking_lines()
    return bool(_DEMANDED.match(lines[0]) and _ENDS.search("".join(lines)))


def cuda_device_count() -> int:
    """In place of torch's: none, except to a program that would end there with too few."""
    return int(bool(_ENDS.search("".join(_asking_lines()))))


def _asking_lines() -> list[str]:
    """Those of the program that ask, and what follows them."""
    file, line = user_place()
    return [linecache.getline(file, line + i) for i in range(_LINES)]


def made_near(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a function that makes a tensor, without an accelerator among them."""
    if "device" not in options:
        return options
    return options | {"device": moved_near((options["device"],))[0]}


def moved_near(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a tensor's ``to``, of which a number is an accelerator's."""
    return tuple("cpu" if type(each) is int else near(each) for each in arguments)


def near(argument: Any) -> Any:
    """The processor in place of an accelerator; everything else as it is."""
    device = isinstance(argument, (str, torch.device))
    return "cpu" if device and str(argument).startswith(_AWAY) else argument
