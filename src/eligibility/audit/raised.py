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
    _know_dtypes()
    patches.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float64)
    for name in ("float32", "float", "float16", "half", "bfloat16"):
        patches.set(torch, name, torch.float64)
    for name in ("float", "half", "bfloat16"):
        patches.set(torch.Tensor, name, torch.Tensor.double)
        patches.set(torch.nn.Module, name, torch.nn.Module.double)
    _without_autocast(patches)
    patches.set(torch, "FloatTensor", torch.DoubleTensor)
    for name in ("float32", "single", "float16", "half"):
        patches.set(np, name, np.float64)


def _know_dtypes() -> None:
    """Tables of dtypes are made once, ours and torch's: they need the names as they are."""
    import eligibility.arguments
    import eligibility.ops.backends.cpu
    import eligibility.rules  # noqa: F401  # its import registers the rules

    torch.storage._dtype_to_storage_type_map()
    torch.storage._storage_type_to_dtype_map()
    torch._weights_only_unpickler._get_allowed_globals()


def _without_autocast(patches: Patches) -> None:
    """`torch.autocast` never lowers the precision, and no gradient is scaled for a lower one."""

    def initialise(self: torch.autocast, device_type: str, *args: Any, **options: Any) -> None:
        stock(self, device_type, enabled=False)

    def without_scale(self: torch.amp.GradScaler, *args: Any, **options: Any) -> None:
        stock_scaler(self, enabled=False)

    stock = patches.set(torch.autocast, "__init__", initialise)
    stock_scaler = patches.set(torch.amp.GradScaler, "__init__", without_scale)


def precision_note(dtype: torch.dtype) -> str:
    """What is noted of a program that computes in ``dtype``; nothing for double precision."""
    if not dtype.is_floating_point or dtype == _DOUBLE:
        return ""
    return SINGLE if dtype == _SINGLE else HALF
