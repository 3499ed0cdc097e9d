"""Tensors as the record's plain `Numbers`, and how a number is written."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eligibility.explanation.autograd_internals import is_zero_tensor
from eligibility.explanation.elements import Numbers

# Entries of one tensor that a record keeps; the rest is summarised by shape, minimum and maximum.
KEPT = 256


def numbers_of(tensor: Tensor) -> Numbers:
    """The plain numbers of ``tensor``, at most the first ``KEPT`` in row-major order."""
    tensor = tensor.detach()
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    shape = tuple(tensor.shape)
    if tensor.is_meta or tensor.layout != torch.strided or is_zero_tensor(tensor):
        return Numbers(shape, dtype, (), None, None)
    if tensor.numel() <= KEPT:
        values = tuple(map(float, tensor.reshape(-1).tolist()))
        if any(map(math.isnan, values)):
            return Numbers(shape, dtype, values, math.nan, math.nan)
        return Numbers(shape, dtype, values, min(values, default=None), max(values, default=None))
    values = tuple(map(float, tensor.reshape(-1)[:KEPT].tolist()))
    return Numbers(shape, dtype, values, float(tensor.min()), float(tensor.max()))
