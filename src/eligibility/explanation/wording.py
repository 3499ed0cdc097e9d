"""How numbers are written in sentences, cells and rows: the same in every renderer.

Numbers carry a plain hyphen as their sign, so that they can be copied into code and searched for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from eligibility.explanation.autograd_internals import is_zero_tensor
from eligibility.explanation.elements import Column, Numbers


def number(value: float) -> str:
    """``value`` in at most four significant digits, as in a sentence: ``-0.69``, ``1e-09``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value + 0.0:.4g}" if value != 0 else "0"


def cell(value: float | None) -> str:
    """``value`` in a table: four decimals as torch prints them, where they show the number."""
    if value is None:
        return ""
    if not math.isfinite(value) or (value != 0 and not 1e-3 <= abs(value) < 1e5):
        return number(value)
    return f"{value + 0.0:.4f}" if value != 0 else "0.0000"


def entry(column: Column, row: int) -> str:
    """An entry of a table; an outcome as in a sentence, as it is often whole."""
    value = column.at(row)
    return cell(value) if value is None or column.role != "outcome" else number(value)


def vector(values: Iterable[float]) -> str:
    """``values`` in brackets, separated by spaces."""
    return "[" + " ".join(map(number, values)) + "]"


def summary(numbers: Numbers | None, most: int = 8) -> str:
    """All of ``numbers`` if they are few; else their shape and range."""
    if numbers is None:
        return "—"
    if len(numbers.values) == numbers.size <= most:
        return vector(numbers.values) if numbers.shape else number(numbers.values[0])
    shape = "×".join(map(str, numbers.shape))
    if numbers.minimum is None or numbers.maximum is None:
        return f"{shape} numbers"
    if numbers.minimum == numbers.maximum:
        return f"{shape} numbers, each {number(numbers.minimum)}"
    return f"{shape} numbers from {number(numbers.minimum)} to {number(numbers.maximum)}"


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
