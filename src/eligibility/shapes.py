"""One glossary of axes, and the checks of shapes and domains that every layer uses.

Axes: ``S`` samples, ``B`` batch, ``T`` time, ``K`` categories, ``V`` vocabulary, ``D`` features.
In annotations ``*batch`` is any number of leading axes.

A check raises; it never changes, clamps or broadcasts what it is given. What reads numbers of
outcomes is skipped where there are none to read: see `are_values_readable`. Each takes the ``name``
that the user wrote, so that the message speaks of the user's argument.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError

# What torch itself asks of the transforms of torch.func, and of `autograd.grad` with
# `is_grads_batched`; there are no public names.
_is_transforming = torch._C._are_functorch_transforms_active
_is_batched = torch._C._functorch.is_legacy_batchedtensor

TENSOR_TYPES = (Tensor, Parameter)  # a subclass may mean something else by its operations
_LAZY = (UninitializedParameter, UninitializedBuffer)
# What torch computes with; float8 and the wide unsigned integers are for storage only.
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INTEGER = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FLOAT = "convert it, for instance with {}.float()"
# Kind -> the dtypes, the same in words, and how to get there.
_KINDS: dict[str, tuple[tuple[torch.dtype, ...], str, str]] = {
    "floating": (FLOATING, "a floating-point dtype", _FLOAT),
    "real": ((*FLOATING, *_INTEGER), "an integer or a floating-point dtype", _FLOAT),
    "integer": (_INTEGER, "an integer dtype", "pass indices, for instance {}.long()"),
    "boolean": ((torch.bool,), "dtype bool", "convert it with {}.bool()"),
}


def check_tensor(tensor: object, name: str) -> None:
    """Raise unless ``tensor`` is one with a number for each index: dense, and not nested."""
    if not isinstance(tensor, Tensor):
        raise InvalidTypeError(
            f"`{name}`",
            f"an object of type {type(tensor).__name__}",
            "a tensor",
            f"wrap it, for instance with torch.tensor({name})",
        )
    if type(tensor) not in TENSOR_TYPES and isinstance(tensor, _LAZY):
        raise InvalidTypeError(
            f"`{name}`",
            "a parameter that is not initialised",
            "a tensor",
            "call the lazy module once, to set its shapes",
        )
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise InvalidTypeError(
            f"`{name}`",
            f"a tensor of layout {layout}",
            "a dense tensor",
            f"call {name}.to_padded_tensor(0.0) and give the padding a weight of 0"
            if tensor.is_nested
            else f"call {name}.to_dense()",
        )


def check_dtype(tensor: Any, name: str, kind: str = "floating") -> None:
    """Raise unless ``tensor`` is one of a dtype of the kind that torch computes with."""
    check_tensor(tensor, name)
    dtypes, expected, remedy = _KINDS[kind]
    if tensor.dtype in dtypes:
        return
    if kind == "floating" and tensor.is_floating_point():
        expected = "float32, float64, bfloat16 or float16"
    if name.endswith("mask"):
        remedy = "convert it, for instance with {} != 0; True means allowed"
    got = f"dtype {str(tensor.dtype).removeprefix('torch.')}"
    raise InvalidTypeError(f"`{name}`", got, expected, remedy.format(name))


def check_local(tensor: Tensor, name: str) -> None:
    """Raise for a ``DTensor``, whose numbers are shared between processes."""
    # Its module is large, and not imported to ask.
    if type(tensor) not in TENSOR_TYPES and is_dtensor(tensor):
        raise InvalidTypeError(
            f"`{name}`",
            "a DTensor",
            "a tensor of this process",
            f"pass {name}.to_local() where each process has whole rows, or {name}.full_tensor(); "
            "for a sharded vocabulary see the how-to page on several processes",
        )


def double_precision(device: torch.device) -> torch.dtype:
    """float64, or the widest that ``device`` has."""
    return torch.float32 if device.type == "mps" else torch.float64


def is_dtensor(tensor: object) -> bool:
    """Whether it is torch's own sharded tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def check_device(tensor: Tensor, like: Tensor, name: str, of: str) -> None:
    """Raise unless ``tensor`` is on the device of ``like``, the argument ``of``."""
    if tensor.device != like.device:
        raise InvalidTypeError(
            f"`{name}`",
            f"device {tensor.device}",
            f"{like.device}, the device of {of}",
            f"move it with {name}.to({of}.device)",
        )


def check_categories(tensor: Tensor, name: str) -> None:
    """Raise unless ``tensor`` has a last axis of at least one category."""
    if tensor.ndim == 0 or tensor.shape[-1] == 0:
        raise ShapeError(
            f"`{name}`",
            f"shape {list(tensor.shape)}",
            "[*batch, K] with K >= 1",
            "put the categories on the last axis",
        )


def check_shape(tensor: Tensor, wanted: torch.Size, name: str, why: str) -> None:
    """Raise unless ``tensor`` has exactly the shape ``wanted``; ``why`` says what asks for it."""
    if tensor.shape != wanted:
        raise ShapeError(
            f"`{name}`",
            f"shape {list(tensor.shape)}",
            f"{list(wanted)}, {why}",
            "reshape it; nothing is broadcast silently",
        )


def check_mask(mask: Tensor, logits: Tensor, name: str = "mask", of: str = "logits") -> None:
    """Raise unless ``mask`` is boolean and of the shape of ``logits``, or one ``[K]`` for all."""
    check_dtype(mask, name, "boolean")
    if mask.shape != logits.shape[-1:]:
        check_shape(mask, logits.shape, name, f"the shape of {of}, or [K] for all rows")


def are_values_readable(*tensors: Tensor) -> bool:
    """Whether the program may look at numbers now, so that a check of values makes sense.

    Not so while torch.compile traces, inside the transforms of torch.func, on the meta device, for
    a fake tensor and while a CUDA graph is captured: there a check of values is skipped, those of
    shapes are not.
    """
    if torch.compiler.is_compiling() or _is_transforming():
        return False
    for tensor in tensors:
        if _is_batched(tensor):
            return False
        if tensor.is_cpu and type(tensor) in TENSOR_TYPES:
            continue  # the usual case
        if tensor.is_meta:
            return False
        if type(tensor) not in TENSOR_TYPES and _is_fake(tensor):
            return False
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
    return True


def _is_fake(tensor: Tensor) -> bool:
    """Whether it stands for one without numbers; its module is not imported to ask."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and bool(module.is_fake(tensor))


def check_sample_shape(
    value: Any, batch_shape: torch.Size, event_shape: torch.Size, name: str = "value"
) -> None:
    """Raise unless ``value`` is ``[*sample, *batch, *event]``, or one event for the whole batch."""
    check_tensor(value, name)
    wanted = batch_shape + event_shape
    ends_as_wanted = value.ndim >= len(wanted) and value.shape[value.ndim - len(wanted) :] == wanted
    if ends_as_wanted or value.shape == event_shape:
        return
    raise ShapeError(
        f"`{name}`",
        f"shape {list(value.shape)}",
        f"[*samples, {', '.join(map(str, wanted))}]" if wanted else "any shape",
        f"batch shape {list(batch_shape)} and event shape {list(event_shape)} must come last; "
        "nothing is broadcast silently",
    )


def check_probs(probs: Tensor, name: str = "probs") -> None:
    """Raise unless each row of ``probs`` ``[*batch, K]`` is a set of weights: >= 0, sum > 0.

    The sum need not be 1: the distributions of this package take unnormalised weights.
    """
    check_dtype(probs, name)
    check_categories(probs, name)
    _check_finite(probs, name)
    if bool((probs < 0).any()):
        raise InvalidValueError(
            f"`{name}`",
            f"a minimum of {float(probs.min()):g}",
            "non-negative probabilities",
            "pass unnormalised log-probabilities as logits instead",
        )
    if bool((probs.sum(-1) == 0).any()):
        raise InvalidValueError(
            f"`{name}`",
            "a row whose entries are all zero",
            "at least one positive probability in each row",
            "remove the row, or allow one category",
        )


def check_logits(logits: Tensor, name: str = "logits") -> None:
    """Raise unless each row of ``logits`` ``[*batch, K]`` is in [−∞, ∞), not NaN, not all −∞."""
    check_dtype(logits, name)
    check_categories(logits, name)
    if bool((logits.isnan() | (logits == float("inf"))).any()):
        raise _not_finite(logits, name)
    if bool((logits == float("-inf")).all(-1).any()):
        raise InvalidValueError(
            f"`{name}`",
            "a row whose entries are all -inf",
            "at least one finite logit in each row",
            "remove the row, or allow one category",
        )


def check_unit_interval(probs: Tensor, name: str = "probs") -> None:
    """Raise unless every entry of ``probs`` is a probability in [0, 1]."""
    check_dtype(probs, name)
    _check_finite(probs, name)
    if bool(((probs < 0) | (probs > 1)).any()):
        raise InvalidValueError(
            f"`{name}`",
            f"values from {float(probs.min()):g} to {float(probs.max()):g}",
            "probabilities in [0, 1]",
            "pass log-odds as logits instead",
        )


def check_log_odds(logits: Tensor, name: str = "logits") -> None:
    """Raise unless every entry of ``logits`` is a log-odds: any float but NaN."""
    check_dtype(logits, name)
    if bool(logits.isnan().any()):
        raise _not_finite(logits, name)


def check_action(action: Tensor, categories: int, name: str = "action") -> None:
    """Raise unless ``action`` holds integer indices in [0, ``categories``)."""
    check_dtype(action, name, "integer")
    if action.numel() == 0 or not are_values_readable(action):
        return
    low, high = int(action.min()), int(action.max())
    if low < 0 or high >= categories:
        got = f"a minimum of {low}" if low < 0 else f"a maximum of {high}"
        raise InvalidValueError(
            f"`{name}`",
            got,
            f"indices in [0, {categories})",
            f"there are K = {categories} categories, counted from 0",
        )


def check_mask_rows(mask: Tensor, name: str = "mask") -> None:
    """Raise if a row of ``mask`` allows nothing."""
    empty = ~mask.any(-1)
    if bool(empty.any()):
        raise InvalidValueError(
            f"`{name}`",
            f"a row without a legal action{_first_row(empty)}",
            "at least one True in each row",
            "remove the row, or allow one action",
        )


def check_allowed(action: Tensor, mask: Tensor, name: str = "action") -> None:
    """Raise if ``mask`` ``[*batch, K]`` is False at an ``action`` ``[*samples, *batch]``."""
    rows = mask.expand(*action.shape, mask.shape[-1])
    forbidden = ~rows.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    if bool(forbidden.any()):
        first = int(action[forbidden].flatten()[0])
        raise InvalidValueError(
            f"`{name}`",
            f"the index {first}{_first_row(forbidden)}, which the mask forbids",
            "indices that the mask allows",
            "sample from the masked distribution, or give the row the weight 0",
        )


def check_counts(counts: Tensor, total_count: Tensor | int | None, name: str = "counts") -> None:
    """Raise unless ``counts`` ``[*batch, K]`` are whole, >= 0, and sum to ``total_count``."""
    check_whole(counts, name)
    if total_count is None or not are_values_readable(counts):
        return
    total = torch.as_tensor(total_count, device=counts.device)
    sums = counts.sum(-1)
    wrong = sums != total
    if bool(wrong.any()):
        where = wrong.nonzero()[0].tolist()
        wanted = total.expand(sums.shape)[tuple(where)]
        raise InvalidValueError(
            f"`{name}`",
            f"a sum of {int(sums[tuple(where)])}{_first_row(wrong)}",
            f"counts that sum to total_count = {int(wanted)}",
            "correct the counts, or the total count",
        )


def check_not_negative(value: Tensor, name: str) -> None:
    """Raise unless every entry of ``value`` is a number >= 0."""
    if not bool((value >= 0).all()):
        raise InvalidValueError(
            f"`{name}`", f"a minimum of {float(value.min()):g}", "numbers >= 0", "pass counts"
        )


def check_whole(value: Tensor, name: str = "value", maximum: Tensor | int | None = None) -> None:
    """Raise unless every entry of ``value`` is a whole number >= 0 and <= ``maximum``."""
    if not are_values_readable(value):
        return
    if value.is_floating_point() and bool((value != value.round()).any()):
        raise InvalidValueError(
            f"`{name}`", "numbers that are not whole", "whole numbers", "pass counts"
        )
    check_not_negative(value, name)
    if maximum is not None and bool((value > maximum).any()):
        top = torch.as_tensor(maximum).max()
        raise InvalidValueError(
            f"`{name}`",
            f"a maximum of {float(value.max()):g}",
            f"numbers of at most {float(top):g}",
            "no outcome can exceed the number of trials",
        )


def _first_row(rows: Tensor) -> str:
    where = rows.nonzero()[0].tolist()
    return f" in row {where}" if where else ""


def _check_finite(tensor: Tensor, name: str) -> None:
    if not bool(tensor.isfinite().all()):
        raise _not_finite(tensor, name)


def _not_finite(tensor: Tensor, name: str) -> InvalidValueError:
    if not bool(tensor.isnan().any()):
        return InvalidValueError(f"`{name}`", "inf", "finite numbers", "find where it overflows")
    return InvalidValueError(
        f"`{name}`", "NaN", "numbers", "find where the NaN arises, for instance 0 · inf or 0 / 0"
    )
