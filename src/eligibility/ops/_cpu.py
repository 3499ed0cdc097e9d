"""The row functions of `_plain` in C++, for float32 and bfloat16 logits on the processor.

The library is built when the package is installed where a C++ compiler is there. Without it, or for
other dtypes, the plain functions serve. It is loaded through its C interface and knows neither
Python nor torch; rows are divided among as many threads as torch uses.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.ops import memory
from eligibility.shapes import check_action

_ELEMENTS_PER_THREAD = 1 << 16  # less work than this does not pay for handing it over
_INTERFACE = 3  # of native/rows.cpp
_LARGE = 1 << 24  # bytes; a gradient of this size is in no cache any more when it is used


class _Task(ctypes.Structure):
    """`row_task` of native/rows.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "action", "mask")),
        *((name, ctypes.c_void_p) for name in ("grad_log_prob", "grad_entropy")),
        *((name, ctypes.c_void_p) for name in ("log_prob", "entropy", "gradient")),
        *((name, ctypes.c_int64) for name in ("rows", "categories", "logits_stride")),
        *((name, ctypes.c_int64) for name in ("mask_stride", "gradient_stride", "stream")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None where it was not built, or from older sources."""
    for path in sorted(Path(__file__).parent.glob("_rows*.so")):
        library = ctypes.CDLL(str(path))
        interface = getattr(library, "eligibility_interface", None)
        if interface is None or interface() != _INTERFACE:
            return None
        library.eligibility_instruction_set_name.restype = ctypes.c_char_p
        library.eligibility_rows.argtypes = (ctypes.POINTER(_Task), ctypes.c_int, ctypes.c_int)
        library.eligibility_rows.restype = ctypes.c_int64
        library.eligibility_objective.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 5)
        library.eligibility_objective.restype = None
        return library
    return None


@cache
def instruction_sets() -> tuple[str, ...]:
    """What the library can use on this processor, the fastest last; empty without a library."""
    native = library()
    if native is None:
        return ()
    names = range(native.eligibility_instruction_sets())
    return tuple(native.eligibility_instruction_set_name(index).decode() for index in names)


def serves(logits: Tensor) -> bool:
    """Whether this backend can take ``logits``."""
    return (
        logits.is_cpu and logits.dtype in (torch.float32, torch.bfloat16) and library() is not None
    )


def row_statistics(
    logits: Float[Tensor, "N K"],
    action: Int[Tensor, " N"],
    mask: Bool[Tensor, "#N K"] | None,
    with_entropy: bool,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """As `_plain.row_statistics`."""
    log_prob, entropy = _new_statistics(logits, with_entropy)
    _run(logits, action, mask, None, None, log_prob, entropy, None)
    return log_prob, entropy


def row_objective(
    logits: Float[Tensor, "N K"],
    action: Int[Tensor, " N"],
    mask: Bool[Tensor, "#N K"] | None,
    grad_log_prob: Float[Tensor, " N"] | None,
    grad_entropy: Float[Tensor, " N"] | None,
    out: Float[Tensor, "N K"] | None = None,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None, Float[Tensor, "N K"]]:
    """log π(a), entropy and the gradient of an objective whose derivatives are known beforehand.

    One pass: each row is read from memory once. ``out`` may be ``logits`` itself.
    """
    if out is None:
        out = memory.empty_like(logits)
    log_prob, entropy = _new_statistics(logits, grad_entropy is not None)
    _run(logits, action, mask, grad_log_prob, grad_entropy, log_prob, entropy, out)
    return log_prob, entropy, out


def objective(
    grad_log_prob: Float[Tensor, " N"],
    log_prob: Float[Tensor, " N"],
    grad_entropy: Float[Tensor, " N"] | None,
    entropy: Float[Tensor, " N"] | None,
) -> Float[Tensor, ""]:
    """As `_plain.objective`, summed in float64."""
    native = library()
    assert native is not None  # the caller asked `serves`
    value = torch.empty((), dtype=torch.float32)
    columns = [_as_float32(x) for x in (grad_log_prob, log_prob, grad_entropy, entropy)]
    pointers = [None if column is None else column.data_ptr() for column in columns]
    native.eligibility_objective(len(log_prob), *pointers, value.data_ptr())
    return value


def _new_statistics(logits: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
    log_prob = torch.empty(logits.shape[0], dtype=torch.float32)
    return log_prob, torch.empty_like(log_prob) if with_entropy else None


def _run(
    logits: Tensor,
    action: Tensor,
    mask: Tensor | None,
    grad_log_prob: Tensor | None,
    grad_entropy: Tensor | None,
    log_prob: Tensor,
    entropy: Tensor | None,
    gradient: Tensor | None,
) -> None:
    native = library()
    assert native is not None  # the caller asked `serves`
    rows, categories = logits.shape
    if rows == 0:
        return
    if categories > 1 and logits.stride(-1) != 1:
        logits = logits.contiguous()
    if mask is not None:
        mask = mask.expand(rows, categories)
        mask = mask if mask.stride(-1) == 1 else mask.contiguous()
    action = _as(action, torch.int64)
    grad_log_prob, grad_entropy = _as_float32(grad_log_prob), _as_float32(grad_entropy)
    tensors = (logits, action, mask, grad_log_prob, grad_entropy, log_prob, entropy, gradient)
    strides = [0 if tensor is None else tensor.stride(0) for tensor in (logits, mask, gradient)]
    stream = gradient is not None and gradient is not logits and gradient.nbytes >= _LARGE
    is_bfloat16 = int(logits.dtype == torch.bfloat16)
    instruction_set = _instruction_set(categories)

    def run(start: int, stop: int) -> int:
        columns = tensors if start == 0 else [None if x is None else x[start:] for x in tensors]
        pointers = (None if column is None else column.data_ptr() for column in columns)
        task = _Task(*pointers, stop - start, categories, *strides, stream)
        return int(native.eligibility_rows(task, is_bfloat16, instruction_set))

    threads = min(torch.get_num_threads(), rows, rows * categories // _ELEMENTS_PER_THREAD)
    if threads <= 1:
        results = [run(0, rows)]
    else:
        bounds = [rows * thread // threads for thread in range(threads + 1)]
        results = list(_threads(threads).map(run, bounds[:-1], bounds[1:]))
    if min(results) < -1:
        raise MemoryError("no memory for one row of logits")
    if max(results) >= 0:
        check_action(action, categories)


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor`` itself if it fits: a conversion that does nothing takes a microsecond too."""
    return (tensor if tensor.dtype is dtype else tensor.to(dtype)).contiguous()


def _as_float32(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else _as(tensor, torch.float32)


def _instruction_set(categories: int) -> int:
    """The fastest for rows of this length: a vector longer than the row is mostly padding."""
    widest = max(0, (categories // 4).bit_length() - 1)
    return min(widest, len(instruction_sets()) - 1)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="eligibility-rows")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork
