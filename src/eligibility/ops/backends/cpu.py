"""The row functions of `plain` in C++, for logits on the processor.

The library is built when the package is installed where a C++ compiler is there. Without it the
plain functions serve. It knows no more of torch than the addresses of numbers; rows are divided
among as many threads as torch uses.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from eligibility.errors import InvalidTypeError
from eligibility.ops import memory
from eligibility.ops.backends.row_task import Loss, Results, RowTask, Task
from eligibility.shapes import TENSOR_TYPES, check_action, check_not_negative

try:
    from eligibility.ops import _rows as _built
except ImportError:  # not built, or by sources too old to be a module
    _library = None
else:
    _library = _built

if getattr(_library, "FIELDS", None) != Task._fields:
    _library = None
INSTRUCTION_SETS: tuple[str, ...] = () if _library is None else _library.INSTRUCTION_SETS

# The number by which the library knows a dtype of logits, and the dtype it computes in.
_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
_ELEMENTS_PER_THREAD = 1 << 16  # less work than this does not pay for handing it over
_LARGE = 1 << 24  # bytes; a gradient of this size is in no cache any more when it is used


def is_built() -> bool:
    """Whether there is a library, from these sources."""
    return _library is not None


def knows(logits: Tensor) -> bool:
    """Whether there is a library for the device and the dtype of ``logits``."""
    return _library is not None and logits.is_cpu and logits.dtype in _DTYPES


def serves(logits: Tensor, *others: Tensor | None) -> bool:
    """Whether this backend can take ``logits``, and the address of each of the tensors."""
    if not knows(logits):
        return False
    for part in (logits, *others):  # `is_plain` of each, in one call
        if part is not None and not (
            type(part) in TENSOR_TYPES and part.is_cpu and not part.is_neg()
        ):
            return False
    return True


def is_plain(tensor: Tensor) -> bool:
    """Whether the numbers of a dense ``tensor`` lie in memory as they are, at its address.

    Not so those of a subclass, of another device, and behind torch's lazy minus sign.
    """
    return type(tensor) in TENSOR_TYPES and tensor.is_cpu and not tensor.is_neg()


def is_contiguous(tensor: Tensor) -> bool:
    """Whether the numbers of ``tensor``, here and of torch's own type, follow its address."""
    try:
        return not tensor.is_neg() and tensor.is_contiguous() and tensor.data_ptr() != 0
    except RuntimeError:  # a sparse tensor has no order, another layout no address
        return False


def column_dtype(logits: Tensor) -> torch.dtype:
    """What is computed in, and what a number for each row is given in."""
    return torch.float64 if logits.dtype is torch.float64 else torch.float32


def run(
    task: RowTask,
    loss: Loss | None = None,
    *,
    log_prob: bool = False,
    entropy: bool = False,
    log_normalizer: bool = False,
    losses: bool = False,
    value: bool = False,
    gradient: bool = False,
    out: Tensor | None = None,
) -> Results:
    """One pass over the rows: what is asked for, each row being read from memory once.

    ``out``, for the gradient, may be the logits themselves.
    """
    logits, loss = task.logits, loss or Loss()
    if logits.stride(-1) != 1:
        logits = _rows_of(logits)
    rows, categories = logits.shape
    dtype = column_dtype(logits)
    action, counts, mask = task.action, task.counts, task.mask
    samples = 0
    if action is not None:
        action = _as(action, torch.int64)
        samples = action.shape[0] if action.ndim == 2 else 1
    elif counts is not None:
        counts, samples = _rows_of(counts.to(dtype)), 1
    if mask is not None:
        mask = mask.expand(rows, categories)
        mask = mask if mask.stride(-1) == 1 else _rows_of(mask)
    if gradient and out is None:
        out = memory.empty_like(logits)
    results = Results(
        log_prob=_new((rows,) if action is None else action.shape, dtype) if log_prob else None,
        entropy=_new((rows,), dtype) if entropy else None,
        log_normalizer=_new((rows,), dtype) if log_normalizer else None,
        loss=_new((rows,), dtype) if losses else None,
        gradient=out,
        value=torch.empty_like(_SCALAR, dtype=dtype) if value else None,
        impossible=False,
    )
    if rows == 0:
        if results.value is not None:
            results.value.zero_()
        return results
    advantage, weight, bonus, normalizer, old, reference = [
        None if column is None else _as(column, dtype) for column in loss[:6]
    ]
    given = Task(
        logits=logits,
        action=action,
        uniform=task.uniform,
        counts=counts,
        mask=mask,
        advantage=advantage,
        weight=weight,
        bonus=bonus,
        normalizer=normalizer,
        old=old,
        reference=reference,
        log_prob=results.log_prob,
        entropy=results.entropy,
        log_normalizer=results.log_normalizer,
        loss=results.loss,
        gradient=out,
        scale_advantage=loss.scale_advantage,
        scale_bonus=loss.scale_bonus,
        scale_square=loss.scale_square,
        scale_reference=loss.scale_reference,
        clip_low=loss.clip[0],
        clip_high=loss.clip[1],
        temperature=task.temperature,
        softcap=task.softcap or 0.0,
        rows=rows,
        categories=categories,
        samples=samples,
        sample_stride=rows,
        logits_stride=logits.stride(0),
        counts_stride=0 if counts is None else counts.stride(0),
        mask_stride=0 if mask is None else mask.stride(0),
        gradient_stride=0 if out is None else out.stride(0),
        kl_estimator=loss.kl_estimator,
        stream=out is not None and out is not task.logits and out.nbytes >= _LARGE,
    )
    try:
        refused, impossible = _in_threads(given, results.value)
    except (RuntimeError, ValueError) as error:
        raise _without_memory() from error
    if refused >= 0:
        _refuse(task, categories)
    return results if impossible < 0 else results._replace(impossible=True)


def small_loss(
    logits: Tensor, action: Tensor, advantage: Tensor, entropy_coef: float
) -> tuple[Tensor, Tensor]:
    """Value and gradient of the mean REINFORCE loss, with as little as possible around them.

    All tensors are contiguous, of the dtypes that the library takes.
    """
    assert _library is not None  # the caller asked `serves`
    value = torch.empty_like(_SCALAR, dtype=column_dtype(logits))
    categories, rows = logits.shape[-1], action.numel()
    try:
        gradient = torch.empty_like(logits)
        refused = _library.loss(
            *(_DTYPES[logits.dtype], _instruction_set(categories)),
            *(value, logits, action, advantage, gradient),
            *(rows, categories, -1.0 / rows, -entropy_coef / rows),
        )
    except (RuntimeError, ValueError) as error:
        raise _without_memory() from error
    if refused is not None:
        check_action(action, categories)
    return value, gradient


def small_gradient(logits: Tensor, action: Tensor, grad_log_prob: Tensor) -> Tensor:
    """``g (y − π)``, with as little as possible around it; tensors as those of `small_loss`."""
    assert _library is not None  # the caller asked `serves`
    gradient = torch.empty_like(logits)
    categories = logits.shape[-1]
    try:
        _library.loss(
            *(_DTYPES[logits.dtype], _instruction_set(categories)),
            *(None, logits, action, grad_log_prob, gradient),
            *(action.numel(), categories, 1.0, 0.0),
        )
    except (RuntimeError, ValueError) as error:
        raise _without_memory() from error
    return gradient


def small_sample(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, bool]:
    """An action for each row, its log-probability, and whether each row has a distribution.

    All tensors are contiguous, of the dtypes that the library takes; ``uniform`` is float64.
    """
    assert _library is not None  # the caller asked `serves`
    action = torch.empty_like(uniform, dtype=torch.int64)
    log_prob = torch.empty_like(uniform, dtype=column_dtype(logits))
    categories = logits.shape[-1]
    try:
        is_fine = _library.sample(
            *(_DTYPES[logits.dtype], _instruction_set(categories)),
            *(logits, uniform, action, log_prob, uniform.numel(), categories),
        )
    except (RuntimeError, ValueError) as error:
        raise _without_memory() from error
    return action, log_prob, is_fine


DEVICE = torch.device("cpu")  # also where torch's default is another
_SCALAR = torch.empty((), device=DEVICE)


def _new(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for results."""
    return torch.empty(shape, dtype=dtype, device=DEVICE)


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
    found = run(
        RowTask(logits, action, mask=mask),
        linear_loss(grad_log_prob, grad_entropy),
        log_prob=True,
        entropy=grad_entropy is not None,
        gradient=True,
        out=out,
    )
    assert found.log_prob is not None  # both were asked for
    assert found.gradient is not None
    return found.log_prob, found.entropy, found.gradient


def linear_loss(
    grad_log_prob: Shaped[Tensor, "*S N"] | None,
    grad_entropy: Shaped[Tensor, " N"] | None,
    grad_log_normalizer: Shaped[Tensor, " N"] | None = None,
) -> Loss:
    """The loss with these derivatives."""
    return Loss(
        advantage=grad_log_prob,
        bonus=grad_entropy,
        normalizer=grad_log_normalizer,
        scale_advantage=0.0 if grad_log_prob is None else 1.0,
    )


def _in_threads(task: Task, value: Tensor | None) -> tuple[int, int]:
    """Run the library; the first row refused and the first impossible one, −1 for none."""
    library = _library
    assert library is not None  # the caller asked `serves`
    rows, size = task.rows, task.rows * task.categories
    kind = (_DTYPES[task.logits.dtype], _instruction_set(task.categories))
    threads = min(torch.get_num_threads(), rows, size // _ELEMENTS_PER_THREAD)
    if threads <= 1:
        return library.run(*kind, 0, rows, value, *task) or (-1, -1)
    bounds = [rows * thread // threads for thread in range(threads + 1)]
    values = [None if value is None else torch.empty_like(value) for _ in range(threads)]

    def part(start: int, stop: int, value: Tensor | None) -> tuple[int, int]:
        return library.run(*kind, start, stop, value, *task) or (-1, -1)

    found = list(_threads(threads).map(part, bounds[:-1], bounds[1:], values))
    if value is not None:
        value.zero_()
        for addend in values:
            value += 0.0 if addend is None else addend
    first_refused = max(refused for refused, _ in found)
    return first_refused, max(impossible for _, impossible in found)


def _refuse(task: RowTask, categories: int) -> None:
    """Raise for what the library found."""
    if task.action is not None:
        check_action(task.action, categories)
    assert task.counts is not None  # nothing else is refused
    check_not_negative(task.counts, "counts")


def _without_memory() -> InvalidTypeError:
    """What is said where torch or the library finds no numbers at the address of a tensor."""
    return InvalidTypeError(
        "`logits`, or a tensor passed with them",
        "one without memory",
        "dense tensors whose storage is there",
        "gather a parameter that FSDP has freed; do not resize_ storage that is still in use",
    )


def _rows_of(tensor: Tensor) -> Tensor:
    """With the numbers of a row side by side."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return tensor.contiguous()
    return tensor


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor`` itself if it fits: a conversion that does nothing takes a microsecond too."""
    return (tensor if tensor.dtype is dtype else tensor.to(dtype)).contiguous()


def _instruction_set(categories: int) -> int:
    """The fastest for rows of this length."""
    if INSTRUCTION_SETS[-1] == "avx512":  # it loads a part of a vector as quickly as the whole
        return len(INSTRUCTION_SETS) - 1
    widest = max(0, (categories // 4).bit_length() - 1)
    return min(widest, len(INSTRUCTION_SETS) - 1)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="eligibility-rows")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork
