"""Where tensors are while a program is audited: all on the processor."""

from __future__ import annotations

from typing import Any

import torch

_AWAY = ("cuda", "mps", "xpu")


def made_near(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a function that makes a tensor, without an accelerator among them."""
    if "device" not in options:
        return options
    return options | {"device": "cpu" if _is_index(options["device"]) else near(options["device"])}


def moved_near(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a tensor's ``to``, of which a number is an accelerator's."""
    return tuple("cpu" if _is_index(each) else near(each) for each in arguments)


def _is_index(argument: Any) -> bool:
    return type(argument) is int


def near(argument: Any) -> Any:
    """The processor in place of an accelerator; everything else as it is."""
    device = isinstance(argument, (str, torch.device))
    return "cpu" if device and str(argument).startswith(_AWAY) else argument
