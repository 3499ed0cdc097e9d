"""Double precision for a program that asks for single: exactness needs the digits."""

from __future__ import annotations

import numpy as np
import torch

from eligibility.audit.patches import Patches

UNIT_DOUBLE = 2.0**-53
UNIT_SINGLE = 2.0**-24


def raise_precision(patches: Patches) -> None:
    """Make every name of a 32-bit float mean the 64-bit one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    patches.later(lambda: torch.set_default_dtype(before))
    for name in ("float32", "float"):
        patches.set(torch, name, torch.float64)
    patches.set(torch.Tensor, "float", torch.Tensor.double)
    patches.set(torch, "FloatTensor", torch.DoubleTensor)
    for name in ("float32", "single"):
        patches.set(np, name, np.float64)


def step_length(unit: float) -> float:
    """The distance ε of a central difference that balances truncation ε² and rounding u/ε."""
    return float(unit ** (1.0 / 3.0))


def tolerance(unit: float) -> float:
    """What a quantity computed by central differences can be off, relatively.

    Truncation is of order ε² and rounding of order u/ε, at ε = u^(1/3) both u^(2/3). The factor 300
    covers third derivatives of the policy and the condition of the equations that are solved.
    """
    return float(300.0 * unit ** (2.0 / 3.0))
