"""Double precision for a program that asks for less: exactness needs the digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eligibility.audit.patches import Patches
from eligibility.audit.precision import HALF, SINGLE

# As they are called before any name is changed.
_DOUBLE, _SINGLE = torch.float64, torch.float32


def raise_precision(patches: Patches) -> None:
    """Make every name of a shorter float mean the 64-bit one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    patches.later(lambda: torch.set_default_dtype(before))
    for name in ("float32", "float", "float16", "half", "bfloat16"):
        patches.set(torch, name, torch.float64)
    for name in ("float", "half", "bfloat16"):
        patches.set(torch.Tensor, name, torch.Tensor.double)
        patches.set(torch.nn.Module, name, torch.nn.Module.double)
    patches.set(torch, "autocast", _NoAutocast)
    patches.set(torch.amp, "autocast", _NoAutocast)
    patches.set(torch, "FloatTensor", torch.DoubleTensor)
    for name in ("float32", "single", "float16", "half"):
        patches.set(np, name, np.float64)


class _NoAutocast(torch.autocast):
    """`torch.autocast` that never lowers the precision."""

    def __init__(self, device_type: str, *args: Any, **options: Any) -> None:
        super().__init__(device_type, enabled=False)


def precision_note(dtype: torch.dtype) -> str:
    """What is noted of a program that computes in ``dtype``; nothing for double precision."""
    if not dtype.is_floating_point or dtype == _DOUBLE:
        return ""
    return SINGLE if dtype == _SINGLE else HALF
