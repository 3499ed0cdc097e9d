"""What an option may be: each domain checks a value, says what it expects, and converts.

A domain is called with the option's name and the user's value; it returns the value to keep or
raises one line that says what, got, expected and remedy. No torch, no numpy.
"""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError

LARGEST = 1e300
# Whole numbers up to here are exact as floating-point numbers too.
LARGEST_WHOLE = 2**53

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class Domain(Protocol):
    """The interface."""

    @property
    def expected(self) -> str:
        """What it holds, in a few words."""

    def __call__(self, name: str, value: Any) -> Any:
        """The value to keep; raises `EligibilityError` for one outside the domain."""


@dataclass(frozen=True)
class Whole:
    """A whole number, from ``minimum`` to ``maximum``."""

    minimum: int
    maximum: int = LARGEST_WHOLE

    @property
    def expected(self) -> str:
        """The kind of number and its bounds; a maximum that nobody meets is left out."""
        if self.maximum >= LARGEST_WHOLE:
            return f"a whole number >= {self.minimum}"
        return f"a whole number in [{self.minimum}, {self.maximum}]"

    def __call__(self, name: str, value: Any) -> int:
        if type(value) is not int:
            raise InvalidTypeError(f"`{name}`", shown(value), self.expected, "pass an int")
        if value < self.minimum:
            raise wrong(name, value, self.expected, "choose a larger one")
        if value > self.maximum:
            expected = f"a whole number in [{self.minimum}, {self.maximum}]"
            raise wrong(name, value, expected, "choose a smaller one")
        return value


@dataclass(frozen=True)
class Number:
    """A number in [low, high], or in (low, high] if ``above``."""

    low: float
    high: float
    expected: str
    above: bool = False

    def __call__(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidTypeError(f"`{name}`", shown(value), self.expected, "pass a number")
        if not self.low <= value <= self.high:  # also catches NaN
            raise wrong(name, value, self.expected, "choose another value")
        if self.above and value == self.low:
            raise wrong(name, value, self.expected, f"{value} would learn nothing")
        return value


@dataclass(frozen=True)
class Flag:
    """True or False."""

    expected: str = "True or False"

    def __call__(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong(name, value, self.expected, "pass a bool")
        return value


@dataclass(frozen=True)
class Choice:
    """One of several names."""

    names: tuple[str, ...]

    @property
    def expected(self) -> str:
        return " or ".join(self.names)

    def __call__(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.names:
            raise InvalidValueError(
                f"`{name}`", shown(value), self.expected, suggestion(str(value), self.names)
            )
        return value


@dataclass(frozen=True)
class Text:
    """A text that is not empty."""

    expected: str
    remedy: str

    def __call__(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise wrong(name, value, self.expected, self.remedy)
        return value


@dataclass(frozen=True)
class Several:
    """A tuple of ``kind``, or a text with commas as the command line has it."""

    kind: type
    expected: str
    empty: bool = True
    largest: int = LARGEST_WHOLE

    def __call__(self, name: str, value: Any) -> tuple[Any, ...]:
        items = value
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(",") if part.strip()]
            items = [int(p) if self.kind is int and p.isdecimal() else p for p in parts]
        fits = isinstance(items, (tuple, list)) and all(self._fits(item) for item in items)
        if not fits or not (items or self.empty):
            raise wrong(name, items, self.expected, "separate them by commas")
        return tuple(items)

    def _fits(self, item: Any) -> bool:
        return type(item) is self.kind and (not isinstance(item, int) or 0 < item <= self.largest)


@dataclass(frozen=True)
class Keywords:
    """Names with values that JSON has; or a text as the command line has it."""

    expected: str = "names and values, such as is_slippery=false,map_name=8x8, or as JSON"

    def __call__(self, name: str, value: Any) -> dict[str, Any]:
        found = _keywords(value) if isinstance(value, str) else value
        try:
            kept = json.loads(json.dumps(found, allow_nan=False))
        except (TypeError, ValueError, RecursionError):  # of no kind, number or depth that JSON has
            kept = None
        if not isinstance(kept, dict) or not all(map(str.isidentifier, kept)):
            remedy = "set any other value in a function that creates the environment"
            raise wrong(name, value if found is None else found, self.expected, remedy)
        return kept


def _keywords(text: str) -> Any:
    """``a=1,b=x`` or ``{"a": 1, "b": "x"}``; None: it is neither."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text)
        pairs = [part.split("=", 1) for part in text.split(",") if part.strip()]
        return {name.strip(): _json_or_text(value.strip()) for name, value in pairs}
    except (ValueError, RecursionError):  # no JSON, or a part without =
        return None


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@dataclass(frozen=True)
class Maybe:
    """None, which stands for a default that is decided elsewhere, or a value of ``domain``."""

    domain: Domain

    @property
    def expected(self) -> str:
        return self.domain.expected

    def __call__(self, name: str, value: Any) -> Any:
        return None if value is None else self.domain(name, value)


def is_number(domain: Domain) -> bool:
    """Whether the domain's values are numbers that need not be whole."""
    return isinstance(domain.domain if isinstance(domain, Maybe) else domain, Number)


# Names that other libraries have for an option.
HABITS = {
    "lr": "learning_rate", "gamma": "discount", "ent_coef": "entropy_coef",
    "total_timesteps": "steps", "timesteps": "steps", "num_envs": "environments",
    "n_envs": "environments", "batch_size": "environments", "lam": "gae_lambda",
    "net_arch": "hidden_sizes", "env_id": "env",
    "env_args": "env_kwargs",
    "normalize_advantage": "normalize", "max_steps": "steps", "max_time": "max_seconds",
    "target_kl": "natural_gradient", "lstm_hidden_size": "recurrent", "use_lstm": "recurrent",
}  # fmt: skip


def suggestion(name: str, known: Iterable[str]) -> str:
    """What the user probably meant."""
    if HABITS.get(name) in (known := list(known)):
        return f"here it is called {HABITS[name]}"
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "choose one of these"


def wrong(name: str, value: object, expected: str, remedy: str) -> EligibilityError:
    """The error for a value outside its domain."""
    return InvalidValueError(f"`{name}`", shown(value), expected, remedy)


def shown(value: object) -> str:
    """A value as an error shows it: in part, if it is long or deep."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a number with more digits than Python writes
        return f"a {type(value).__name__} of thousands of digits"
