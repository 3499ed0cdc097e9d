"""Which elements of two tensors are the same memory: views of noise are noise."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from eligibility.audit.arrays import Integers


def positions_in(part: Tensor, whole: Tensor) -> Integers | None:
    """Where the elements of ``part`` are among those of ``whole``; None unless all are there."""
    there = addresses_of(whole).reshape(-1)
    order = np.argsort(there, kind="stable")
    asked = addresses_of(part)
    found = np.searchsorted(there[order], asked)
    if asked.size == 0 or found.max(initial=0) >= len(there):
        return None
    positions = order[found]
    return positions if np.array_equal(there[positions], asked) else None


def addresses_of(tensor: Tensor) -> Integers:
    """Where each element lies in the storage."""
    addresses = np.full(tuple(tensor.shape), tensor.storage_offset())
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = np.arange(size) * stride
        addresses += steps.reshape(-1, *[1] * (tensor.dim() - axis - 1))
    return addresses


def same_elements(left: Tensor, right: Tensor) -> bool:
    return left is right or (left.storage_offset(), left.shape, left.stride()) == (
        right.storage_offset(),
        right.shape,
        right.stride(),
    )
