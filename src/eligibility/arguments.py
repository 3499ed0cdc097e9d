"""The arguments that many calls share: one table, which checks them and documents them.

What is not in the table is checked where it is used. `docs/reference/arguments.md` is written from
the table, and the tests compare it with the docstrings, so that what is checked, what is said and
what is accepted are the same thing.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.shapes import (
    TENSOR_TYPES,
    check_boolean,
    check_device,
    check_floating,
    check_integer,
    check_local,
    check_real,
    check_tensor,
)


@dataclass(frozen=True)
class Interval:
    """The finite numbers between two ends.

    Attributes:
        low, high: The ends.
        has_low: Whether the lower end belongs to it.
    """

    low: float
    high: float = math.inf
    has_low: bool = True

    def holds(self, number: float) -> bool:
        """Whether it contains ``number``; NaN is in none."""
        above = self.low <= number if self.has_low else self.low < number
        return above and number <= self.high and math.isfinite(number)

    @property
    def short(self) -> str:
        """As a docstring says it."""
        if self.high == math.inf:
            return f"{'>=' if self.has_low else '>'} {self.low:g}"
        return f"in {'[' if self.has_low else '('}{self.low:g}, {self.high:g}]"

    def __str__(self) -> str:
        kind = "a finite number" if self.high == math.inf else "a number"
        return f"{kind} {self.short}"


POSITIVE, NOT_NEGATIVE = Interval(0, has_low=False), Interval(0)
SHARE, UNIT = Interval(0, 1, has_low=False), Interval(0, 1)


@dataclass(frozen=True)
class NumberArgument:
    """A number.

    Attributes:
        symbol: In equations.
        domain: What it may be.
        remedy: What to do about another one.
        may_be_none: Whether None may stand for it.
        meaning: What it does, in a few words.
    """

    symbol: str
    domain: Interval
    remedy: str
    meaning: str
    may_be_none: bool = False


Kind = Literal["floating", "integer", "boolean", "real"]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor.

    Attributes:
        kind: Of dtypes: "floating" is float64, float32, bfloat16 or float16; "integer" up to 64
            bits; "boolean"; "real" any but boolean.
        shape: In the letters of the glossary.
        meaning: What it holds, in a few words.
    """

    kind: Kind
    shape: str
    meaning: str


NUMBERS: Mapping[str, NumberArgument] = {
    "temperature": NumberArgument(
        "τ", POSITIVE, "choose a positive one", "divides the logits, after the soft-cap"
    ),
    "softcap": NumberArgument(
        "c", POSITIVE, "choose a positive one", "turns logits z into c tanh(z/c)", may_be_none=True
    ),
    "entropy_coef": NumberArgument(
        "β", NOT_NEGATIVE, "0 gives no bonus", "of the bonus on the entropy"
    ),
    "z_loss_coef": NumberArgument(
        "ζ", NOT_NEGATIVE, "0 leaves it out", "of the squared log-normaliser"
    ),
    "kl_coef": NumberArgument(
        "κ", NOT_NEGATIVE, "0 leaves it out", "of the KL to a reference policy"
    ),
    "discount": NumberArgument("γ", UNIT, "1 means no discount", "of later rewards"),
    "lambda_": NumberArgument(
        "λ", UNIT, "1 trusts the rewards alone", "of later temporal differences"
    ),
    "rate": NumberArgument(
        "ρ", SHARE, "it is the weight of the newest batch", "of the newest batch in an average"
    ),
    "ridge": NumberArgument(
        "", POSITIVE, "it keeps the solution unique", "the penalty on the weights of a regression"
    ),
}

CHOICES: Mapping[str, tuple[str, ...]] = {
    "reduction": ("mean", "sum", "sequence", "none"),
    "kl_estimator": ("k1", "k2", "k3", "exact"),
}

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

_CHECKS = {
    "floating": check_floating,
    "integer": check_integer,
    "boolean": check_boolean,
    "real": check_real,
}


_USUAL = {"floating": torch.float32, "integer": torch.int64, "boolean": torch.bool}


def check_numbers(**given: object) -> None:
    """Raise unless each is a number in the domain that the table gives for its name."""
    for name, number in given.items():
        entry = NUMBERS[name]
        # The usual case, without the cost of the calls below: what is in every domain.
        if type(number) is float and (
            0.0 < number <= 1.0 or (number == 0.0 and entry.domain.has_low)
        ):
            continue
        if number is None and entry.may_be_none:
            continue
        if not is_number(number):
            raise not_a_number(name, number, str(entry.domain))
        if not entry.domain.holds(number):  # type: ignore[arg-type]  # a number
            raise InvalidValueError(f"`{name}`", f"{number:g}", str(entry.domain), entry.remedy)


def is_number(value: object) -> bool:
    """Whether it is a real number of Python or NumPy; True and False are not meant as numbers."""
    # The first question is all that torch.compile has to answer.
    if type(value) in (float, int):
        return True
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def not_a_number(name: str, value: object, expected: str) -> InvalidTypeError:
    """The error for what stands where a number is expected."""
    remedy = f"pass {name}.item()" if isinstance(value, Tensor) else "pass a float"
    return InvalidTypeError(f"`{name}`", described(value), expected, remedy)


def check_index(value: object, name: str) -> None:
    """Raise unless ``value`` is a whole number, or None."""
    if value is None or type(value) is int:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidTypeError(f"`{name}`", described(value), "an integer or None", "pass an int")


def check_choice(
    value: object,
    name: str,
    choices: tuple[str, ...] | None = None,
    remedy: str = "choose one of them",
) -> None:
    """Raise unless ``value`` is one of the words that the table, or the caller, gives for it."""
    choices = CHOICES[name] if choices is None else choices
    if not (isinstance(value, str) and value in choices):
        *others, last = (repr(choice) for choice in choices)
        raise InvalidValueError(
            f"`{name}`", described(value), f"{', '.join(others)} or {last}", remedy
        )


def check_tensors(like: Tensor, of: str, /, **given: object) -> None:
    """Raise unless each is a tensor of the kind that the table gives, on the device of ``like``.

    None stands for one that was left out.
    """
    device = like.device
    for name, tensor in given.items():
        if (
            type(tensor) in TENSOR_TYPES
            and tensor.dtype is _USUAL.get(TENSORS[name].kind)  # type: ignore[attr-defined]  # a tensor
            and tensor.layout is torch.strided  # type: ignore[attr-defined]  # a tensor
            and tensor.device == device  # type: ignore[attr-defined]  # a tensor
            and not tensor.is_nested  # type: ignore[attr-defined]  # a tensor
        ):
            continue  # the usual case, without the cost of the calls below
        if tensor is not None:
            _CHECKS[TENSORS[name].kind](tensor, name)
            assert isinstance(tensor, Tensor)  # for the type checker
            check_local(tensor, name)
            check_device(tensor, like, name, of)


def check_given(tensor: object, name: str, remedy: str) -> None:
    """Raise for None where a tensor must be."""
    if tensor is None:
        raise InvalidTypeError(f"`{name}`", "None", "a tensor", remedy)
    check_tensor(tensor, name)


def check_pair(value: object, name: str, expected: str) -> tuple[float, float]:
    """The two numbers of a pair; raise unless it is one."""
    if is_number(value):
        remedy = f"pass {name}=({value}, {value})"
        raise InvalidTypeError(f"`{name}`", f"the number {value}", expected, remedy)
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value)):
        return value[0], value[1]
    raise InvalidTypeError(f"`{name}`", described(value), expected, "pass a tuple of two")


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


def check_flag(value: object, name: str) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InvalidTypeError(f"`{name}`", described(value), "True or False", "pass one of them")


def check_count(value: object, name: str, least: int = 1) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    whole = None if isinstance(value, bool) else value
    if not isinstance(whole, numbers.Integral):
        raise InvalidTypeError(f"`{name}`", described(value), "a whole number", "pass an int")
    if int(whole) < least:
        raise InvalidValueError(
            f"`{name}`", f"{value}", f"a whole number >= {least}", "leave it out for the default"
        )


def check_limit(value: object, name: str) -> None:
    """Raise unless ``value`` is a finite number >= 0."""
    if not is_number(value):
        raise not_a_number(name, value, str(NOT_NEGATIVE))
    if not NOT_NEGATIVE.holds(value):  # type: ignore[arg-type]  # a number
        raise InvalidValueError(f"`{name}`", f"{value:g}", str(NOT_NEGATIVE), "say how many")


def check_callable(value: object, name: str, remedy: str) -> None:
    """Raise unless ``value`` can be called."""
    if not callable(value):
        raise InvalidTypeError(f"`{name}`", described(value), "a function", remedy)


def check_path(value: object, name: str = "path") -> None:
    """Raise unless ``value`` names a file or a folder."""
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidTypeError(f"`{name}`", described(value), "a path", "pass a str or a Path")


def check_trials(value: object) -> None:
    """Raise unless ``value`` is a number of trials, for all rows or a tensor with one for each."""
    if isinstance(value, Tensor):
        check_real(value, "total_count")
    elif not is_number(value):
        raise not_a_number("total_count", value, "a whole number >= 0, or a tensor of such")


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


def described(value: Any) -> str:
    """What a value is, in a few words: never a whole tensor."""
    if isinstance(value, (str, bool, int, float)) or value is None:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"an object of type {type(value).__name__}"
