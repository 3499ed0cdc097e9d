"""Memory for large gradients, used again: its first use costs more than the arithmetic.

The system hands out large memory page by page, each filled with zeros when it is first written,
and takes it back when the tensor dies. So a gradient that is new at every step pays for its pages
at every step. Here what the tensors of this module leave behind serves the next ones. Meanwhile the
system is told that it may take the pages back (``MADV_FREE``): idle memory is nobody's loss.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError

# From this size on every tensor has a separate mapping, which the C library returns when it dies.
LARGE = 1 << 25
_PAGE = 1 << 21
_MOST_IDLE = 2  # mappings

_idle: deque[mmap.mmap] = deque()


def empty_like(tensor: Tensor) -> Tensor:
    """A contiguous tensor of the shape and dtype of ``tensor`` on the processor, not filled."""
    if tensor.nbytes < LARGE:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)
    mapping = _take(-(-tensor.nbytes // _PAGE) * _PAGE)
    memory = (ctypes.c_char * len(mapping)).from_buffer(mapping)
    weakref.finalize(memory, _give_back, mapping).atexit = False
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel())
    return flat.view(tensor.shape)


def release_memory() -> int:
    """Return the idle memory of gradients to the system at once.

    On the processor, gradients of 32 MB and more reuse memory that earlier gradients left behind.
    At most two such blocks are kept, and the system may reclaim them when memory is short. Memory
    that a tensor still uses is not touched.

    Returns:
        How many bytes were given back.

    Example:
        >>> release_memory() >= 0
        True
    """
    total = 0
    while _idle:
        try:
            total += len(_idle.popleft())
        except IndexError:  # another thread was faster
            break
    return total


def _take(size: int) -> mmap.mmap:
    """The smallest idle mapping that is large enough and not twice as large, or a new one."""
    fitting = [mapping for mapping in _idle.copy() if size <= len(mapping) <= 2 * size]
    for mapping in sorted(fitting, key=len):
        try:
            _idle.remove(mapping)
        except (ValueError, IndexError):  # another thread was faster
            continue
        return mapping
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(mapping, "MADV_HUGEPAGE")
    return mapping


def _give_back(mapping: mmap.mmap) -> None:
    # This runs whenever a tensor dies, even in the middle of `_take`: so there is no lock.
    _advise(mapping, "MADV_FREE")
    _idle.append(mapping)
    if len(_idle) > _MOST_IDLE:
        try:
            _idle.popleft()
        except IndexError:  # another thread was faster
            return


def _advise(mapping: mmap.mmap, advice: str) -> None:
    """Tell the system, where it listens."""
    if hasattr(mmap, advice):
        try:
            mapping.madvise(getattr(mmap, advice))
        except OSError:  # a kernel without it
            return


def logits_are_gone() -> InvalidValueError:
    """What a second look at logits says whose memory holds the gradient."""
    return InvalidValueError(
        "`reuse_logits`",
        "a second backward pass, or one with create_graph",
        "one backward pass of first order: the logits are gone",
        "leave reuse_logits out",
    )
