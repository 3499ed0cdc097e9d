"""The tensors that many calls share: one table, which checks them and documents them.

Numbers and words have theirs in `scalars`, which loads no torch; what is in neither is checked
where it is used. `docs/reference/arguments.md` is written from both, and the tests compare it with
the docstrings, so that what is checked, what is said and what is accepted are the same thing.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.scalars import described, is_number, not_a_number
from eligibility.shapes import TENSOR_TYPES, check_device, check_dtype, check_local, check_tensor

Kind = Literal["floating", "integer", "boolean", "real"]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor."""

    # Of dtypes: "floating" is float64, float32, bfloat16 or float16; "integer" up to 64 bits;
    # "boolean"; "real" any but boolean.
    kind: Kind
    shape: str  # in the letters of the glossary
    meaning: str  # what it holds, in a few words


TENSORS: Mapping[str, TensorArgument] = {
    "logits": TensorArgument("floating", "[*batch, K]", "z; −∞ forbids an action"),
    "other": TensorArgument("floating", "[*batch, K]", "the logits of another policy"),
    "ref_logits": TensorArgument("floating", "[*batch, K]", "the logits of a reference policy"),
    "mask": TensorArgument("boolean", "[*batch, K]", "True where an action is legal"),
    "action": TensorArgument("integer", "[*samples, *batch]", "indices in [0, K)"),
    "counts": TensorArgument("real", "[*batch, K]", "how often each category was drawn, >= 0"),
    "advantage": TensorArgument(
        "floating", "[*samples, *batch]", "the reinforcement minus its baseline"
    ),
    "weight": TensorArgument("floating", "[*samples, *batch]", "of a row in the loss"),
    "old_log_prob": TensorArgument(
        "floating", "[*samples, *batch]", "log π(a) of the policy that sampled"
    ),
    "ref_log_prob": TensorArgument(
        "floating", "[*samples, *batch]", "log π(a) of a reference policy"
    ),
    "hidden": TensorArgument("floating", "[*batch, D]", "the states that the last layer takes"),
    "token": TensorArgument("integer", "[*batch]", "indices in [0, V), or ignore_index"),
    "bias": TensorArgument("floating", "[V]", "added to the logits"),
    "token_weight": TensorArgument("floating", "[*batch]", "of a token in the loss"),
    "rewards": TensorArgument("real", "[T, *batch]", "time first"),
    "values": TensorArgument("real", "[T, *batch]", "V(s_t)"),
    "next_values": TensorArgument("real", "[T, *batch]", "V(s_{t+1})"),
    "terminated": TensorArgument("boolean", "[T, *batch]", "True at an end of the task"),
    "truncated": TensorArgument("boolean", "[T, *batch]", "True where an episode was cut off"),
    "bootstrap": TensorArgument("real", "[T, *batch]", "V(s_{t+1}) where truncated"),
    "returns": TensorArgument("floating", "[T, B]", "one for each step of each episode"),
    "alive": TensorArgument("boolean", "[T, B]", "False where an episode is over"),
    "observations": TensorArgument("real", "[T, B, D]", "what was seen before each action"),
}


_USUAL = {"floating": torch.float32, "integer": torch.int64, "boolean": torch.bool}


def check_tensors(like: Tensor, of: str, /, **given: Any) -> None:
    """Raise unless each is a tensor of the kind that the table gives, on the device of ``like``.

    None stands for one that was left out.
    """
    device = like.device
    for name, tensor in given.items():
        if (
            type(tensor) in TENSOR_TYPES
            and tensor.dtype is _USUAL.get(TENSORS[name].kind)
            and tensor.layout is torch.strided
            and tensor.device == device
            and not tensor.is_nested
        ):
            continue  # the usual case, without the cost of the calls below
        if tensor is not None:
            check_dtype(tensor, name, TENSORS[name].kind)
            check_local(tensor, name)
            check_device(tensor, like, name, of)


def check_given(tensor: object, name: str, remedy: str) -> None:
    """Raise for None where a tensor must be."""
    if tensor is None:
        raise InvalidTypeError(f"`{name}`", "None", "a tensor", remedy)
    check_tensor(tensor, name)


def check_generator(generator: object, device: torch.device) -> None:
    """Raise unless ``generator`` is one of torch for ``device``, or None."""
    if generator is None:
        return
    if not isinstance(generator, torch.Generator):
        raise InvalidTypeError(
            "`generator`",
            described(generator),
            "a torch.Generator or None",
            "pass torch.Generator().manual_seed(seed)",
        )
    if generator.device.type != device.type:
        raise InvalidTypeError(
            "`generator`",
            f"one of device {generator.device}",
            f"one of {device.type}, the device of the logits",
            f"make it with torch.Generator({device.type!r})",
        )


def check_trials(value: object) -> None:
    """Raise unless ``value`` is a number of trials, for all rows or a tensor with one for each."""
    if isinstance(value, Tensor):
        check_dtype(value, "total_count", "real")
    elif not is_number(value):
        raise not_a_number(
            "total_count", value, "a whole number >= 0, or a tensor of whole numbers"
        )


def check_sizes(value: object, name: str) -> torch.Size:
    """The shape that ``value`` says; raise unless it is a tuple of whole numbers >= 0."""
    if type(value) is torch.Size:
        return value
    if isinstance(value, (tuple, list)) and all(
        isinstance(size, (numbers.Integral, torch.SymInt)) and not isinstance(size, bool)
        for size in value
    ):
        if all(size >= 0 for size in value):
            return torch.Size(value)
        raise InvalidValueError(
            f"`{name}`", f"{tuple(value)}", "sizes >= 0", "pass how many to draw"
        )
    raise InvalidTypeError(
        f"`{name}`",
        described(value),
        "a tuple of integers",
        f"pass {name}=({value},)" if isinstance(value, int) else f"pass {name}=() for one",
    )
