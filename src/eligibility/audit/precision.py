"""Double precision for a program that asks for less: exactness needs the digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eligibility.audit.patches import Patches

UNIT_DOUBLE = 2.0**-53
UNIT_SINGLE = 2.0**-24
# Notes of a run: some of what leads to the gradient was computed in this precision nevertheless.
SINGLE, HALF = "single-precision", "half-precision"
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


def step_length(unit: float) -> float:
    """The distance ε of a central difference that balances truncation ε² and rounding u/ε."""
    return float(unit ** (1.0 / 3.0))


def tolerance(unit: float) -> float:
    """What a quantity computed by central differences can be off, relatively.

    Truncation is of order ε² and rounding of order u/ε, at ε = u^(1/3) both u^(2/3). The factor
    covers third derivatives of the policy and the condition of the equations that are solved. In
    single precision correct programs reach 8 (up to 256 units a layer, logits up to ±10), and more
    than 100 would hide biases of half a percent.
    """
    factor = 300.0 if unit == UNIT_DOUBLE else 100.0
    return float(factor * unit ** (2.0 / 3.0))
