"""Arguments that are not tensors: what they may be, and how a wrong one is refused.

Nothing here loads torch: the command line checks what it is given before anything is imported.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eligibility.errors import InvalidTypeError, InvalidValueError


@dataclass(frozen=True)
class Interval:
    """The finite numbers between two ends."""

    low: float
    high: float = math.inf
    has_low: bool = True  # whether the lower end belongs to it

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
    """A number."""

    symbol: str  # in equations
    domain: Interval  # what it may be
    remedy: str  # what to do about another one
    meaning: str  # what it does, in a few words
    may_be_none: bool = False  # whether None may stand for it


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
    remedy = f"pass {name}.item()" if _is_tensor(value) else "pass a float"
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


def check_pair(value: object, name: str, expected: str) -> tuple[float, float]:
    """The two numbers of a pair; raise unless it is one."""
    if is_number(value):
        remedy = f"pass {name}=({value}, {value})"
        raise InvalidTypeError(f"`{name}`", f"the number {value}", expected, remedy)
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value)):
        return value[0], value[1]
    raise InvalidTypeError(f"`{name}`", described(value), expected, "pass a tuple of two")


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
            f"`{name}`", f"{value}", f"a whole number >= {least}", "omit it to use the default"
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


def described(value: Any) -> str:
    """What a value is, in a few words: never a whole tensor."""
    if isinstance(value, (str, bool, int, float)) or value is None:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if _is_tensor(value):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"an object of type {type(value).__name__}"


def _is_tensor(value: object) -> bool:
    """Whether it is a tensor; torch is not imported to ask."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
