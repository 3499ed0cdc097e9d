"""No accelerator: what a program sends to one stays on the processor."""

from __future__ import annotations

from typing import Any

import torch

from eligibility.audit.patches import Patches
from eligibility.audit.processor import near

# Of torch.cuda: what programs call to set one up or to ask about it.
_WITHOUT_EFFECT = (
    "set_device", "manual_seed", "manual_seed_all", "synchronize", "empty_cache", "init",
    "reset_peak_memory_stats", "max_memory_allocated", "memory_allocated", "memory_reserved",
)  # fmt: skip


def stay_on_processor(patches: Patches) -> None:
    """No accelerator is available; what is sent to one nevertheless stays where it is.

    What is made for one is made on the processor by the mode that sees every function of torch:
    a second mode would cost every operation of the program microseconds.
    """
    patches.set(torch.cuda, "is_available", lambda: False)
    patches.set(torch.cuda, "device_count", lambda: 0)
    patches.set(torch.cuda, "get_device_name", lambda device=None: "none")
    for name in _WITHOUT_EFFECT:
        patches.set(torch.cuda, name, lambda *args, **options: 0)
    for kind in (torch.xpu, torch.mtia):  # seeding one takes the stack's text each time
        patches.set(kind, "manual_seed_all", lambda seed: None)
    patches.set(torch.backends.mps, "is_available", lambda: False)
    patches.set(torch, "set_default_device", lambda device: None)
    stock_load = torch.load

    def load(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        return stock_load(f, "cpu", *args, **options)

    patches.set(torch, "load", load)

    def watch(owner: Any) -> None:
        def to(self: Any, *args: Any, **options: Any) -> Any:
            kept = {name: near(value) for name, value in options.items()}
            return stock(self, *map(near, args), **kept)

        stock = patches.set(owner, "to", to)
        patches.set(owner, "cuda", lambda self, *args, **options: self)

    watch(torch.Tensor)
    watch(torch.nn.Module)
