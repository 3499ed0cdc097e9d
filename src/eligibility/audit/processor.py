"""Where tensors are while a program is audited: all on the processor."""

from __future__ import annotations

from typing import Any

import torch

_AWAY = ("cuda", "mps", "xpu")


def made_near(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a function that makes a tensor, without an accelerator among them."""
    return options | {"device": near(options["device"])} if "device" in options else options


def near(argument: Any) -> Any:
    """The processor in place of an accelerator; everything else as it is."""
    device = isinstance(argument, (str, torch.device))
    return "cpu" if device and str(argument).startswith(_AWAY) else argument
