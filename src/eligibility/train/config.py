"""Every option of a training run, once: the API's keywords, the command line's options, the docs.

This file imports neither torch nor numpy, so that ``eligibility train --help`` is instant.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field, fields
from typing import Any

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError
from eligibility.train.presets import PRESETS

BASELINE_NAMES = (
    "none",
    "moving-average",
    "leave-one-out",
    "time-dependent-leave-one-out",
    "state-value",
)
CREDITS = ("reward-to-go", "whole-return", "next-reward")
ACTIVATIONS = ("tanh", "relu")


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Config:
    """How to train. Everything but ``env`` has a default; each is checked on construction."""

    env: str = field(metadata={"help": "Id of a Gymnasium environment, such as CartPole-v1."})
    seed: int = _option(0, "Same seed, same run, bit for bit.")
    steps: int = _option(1_000_000, "Stop after the rollout in which this many steps are reached.")
    stop_at: float | None = _option(
        None,
        "Stop when the mean of the last 100 training episodes reaches this return. "
        "Default: the environment's own reward threshold, if it has one; inf: never.",
    )
    environments: int = _option(64, "Environments side by side: episodes in each update.")
    max_episode_steps: int | None = _option(
        None, "Cut episodes after this many steps. Default: the environment's own limit, or 1000."
    )
    discount: float = _option(0.99, "γ in [0, 1] of the rewards-to-go.")
    credit: str = _option(
        "reward-to-go",
        "What an action is credited with: reward-to-go; whole-return, which adds the noise of "
        "the rewards before it; or next-reward, the first that is not 0, discounted: for games "
        "that go on after each point.",
    )
    discount_updates: bool = _option(
        False,
        "Weigh the update of step t by γ^t as well: the gradient of the discounted return itself. "
        "Without, late steps count as much as early ones, as is customary.",
    )
    baseline: str = _option("time-dependent-leave-one-out", f"One of {', '.join(BASELINE_NAMES)}.")
    gae_lambda: float = _option(
        1.0, "λ in [0, 1] of generalised advantages; below 1 only with the baseline state-value."
    )
    bootstrap: bool = _option(
        False,
        "After a truncation, count the value that the baseline state-value predicts for what "
        "would have followed. Without, a time limit is a part of the task.",
    )
    normalize: bool = _option(
        True, "Divide the advantages of an update by their standard deviation."
    )
    entropy_coef: float = _option(0.0, "Weight of the policy's entropy in what is maximised.")
    learning_rate: float = _option(0.005, "Step size of Adam.")
    hidden_sizes: tuple[int, ...] = _option((64, 64), "Widths of the hidden layers, as in 64,64.")
    activation: str = _option("tanh", f"Of the hidden layers: {' or '.join(ACTIVATIONS)}.")
    observation_keys: tuple[str, ...] | None = _option(
        None, "Of Dict observations, the entries that the network sees. Default: all."
    )
    normalize_observations: bool = _option(
        False,
        "Give each number observed mean 0 and variance 1 over what training has seen so far.",
    )
    convolution: bool = _option(
        True, "See images through convolutional layers; without, as flat numbers."
    )
    threads: int = _option(1, "Threads of torch while training; small networks want 1.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden_sizes", _as_sizes(self.hidden_sizes))
        if not isinstance(self.env, str) or not self.env:
            raise _wrong("env", self.env, "the id of an environment", "pass a name: CartPole-v1")
        for name in ("seed", "steps", "environments", "threads"):
            _check_whole(name, getattr(self, name), minimum=0 if name == "seed" else 1)
        if self.max_episode_steps is not None:
            _check_whole("max_episode_steps", self.max_episode_steps, minimum=1)
        if self.stop_at is not None:
            _check_number("stop_at", self.stop_at, -math.inf, math.inf, "a return")
        _check_number("discount", self.discount, 0, 1, "a number in [0, 1]")
        _check_number("entropy_coef", self.entropy_coef, 0, _LARGEST, "a finite number >= 0")
        _check_number("learning_rate", self.learning_rate, 0, _LARGEST, "a finite number > 0")
        if self.learning_rate == 0:
            raise _wrong("learning_rate", 0, "a finite number > 0", "0 would learn nothing")
        object.__setattr__(self, "observation_keys", _as_keys(self.observation_keys))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "True or False", "pass a bool")
        _check_number("gae_lambda", self.gae_lambda, 0, 1, "a number in [0, 1]")
        _check_choice("credit", self.credit, CREDITS)
        _check_choice("activation", self.activation, ACTIVATIONS)
        _check_choice("baseline", self.baseline, BASELINE_NAMES)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Refuse options that would do nothing, or make no sense, together."""
        if "leave-one-out" in self.baseline and self.environments < 2:
            raise InvalidValueError(
                "`environments`",
                str(self.environments),
                f"at least 2 for the baseline {self.baseline}",
                "choose baseline moving-average or none for a single environment",
            )
        if self.credit != "reward-to-go" and self.discount_updates:
            raise InvalidValueError(
                "`discount_updates`",
                "True",
                f"False with credit {self.credit}",
                "the whole discounted return has γ^t in it already"
                if self.credit == "whole-return"
                else "the discount starts anew after each reward",
            )
        predicted = self.baseline == "state-value" and self.credit == "reward-to-go"
        if (self.gae_lambda < 1 or self.bootstrap) and not predicted:
            raise InvalidValueError(
                "`bootstrap`" if self.bootstrap else "`gae_lambda`",
                str(self.bootstrap or self.gae_lambda),
                "the baseline state-value and credit reward-to-go with it",
                "add --baseline state-value",
            )

    @classmethod
    def from_options(cls, env: str, options: dict[str, Any]) -> Config:
        """A config of keywords that a user wrote, over the environment's preset and the defaults.

        Raises:
            InvalidValueError: An unknown keyword, answered with a suggestion, or a wrong value.
        """
        known = [field.name for field in fields(cls) if field.name != "env"]
        for name in options:
            if name not in known:
                raise InvalidValueError(
                    f"`{name}`", "an unknown option", ", ".join(known), suggestion(name, known)
                )
        return cls(env, **{**PRESETS.get(env, {}), **options})


_LARGEST = 1e300
_FLAGS = ("normalize", "discount_updates", "bootstrap", "normalize_observations", "convolution")


def suggestion(name: str, known: Any) -> str:
    """What the user probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "choose one of these"


def _as_sizes(sizes: Any) -> tuple[int, ...]:
    """``(64, 64)`` from a sequence of numbers, or from ``"64,64"`` as the command line has it."""
    if isinstance(sizes, str):
        parts = [part.strip() for part in sizes.split(",") if part.strip()]
        sizes = [int(part) if part.isdecimal() else part for part in parts]
    wrong = not isinstance(sizes, (tuple, list)) or not all(
        type(size) is int and size > 0 for size in sizes
    )
    if wrong:
        raise _wrong(
            "hidden_sizes", sizes, "positive widths such as 64,64", "separate them by commas"
        )
    return tuple(sizes)


def _as_keys(keys: Any) -> tuple[str, ...] | None:
    """``("image",)`` from a sequence of names, or from ``"image"`` as the command line has it."""
    if keys is None:
        return None
    if isinstance(keys, str):
        keys = [part.strip() for part in keys.split(",") if part.strip()]
    if not isinstance(keys, (tuple, list)) or not keys or {type(key) for key in keys} != {str}:
        raise _wrong(
            "observation_keys", keys, "names such as image,direction", "separate them by commas"
        )
    return tuple(keys)


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidValueError(
            f"`{name}`", repr(value), " or ".join(known), suggestion(str(value), known)
        )


def _check_whole(name: str, value: object, minimum: int) -> None:
    if type(value) is not int:
        raise InvalidTypeError(
            f"`{name}`", repr(value), f"a whole number >= {minimum}", "pass an int"
        )
    if value < minimum:
        raise _wrong(name, value, f"a whole number >= {minimum}", "choose a larger one")


def _check_number(name: str, value: object, low: float, high: float, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidTypeError(f"`{name}`", repr(value), expected, "pass a number")
    if not low <= value <= high:  # also catches NaN
        raise _wrong(name, value, expected, "choose another value")


def _wrong(name: str, value: object, expected: str, remedy: str) -> EligibilityError:
    return InvalidValueError(f"`{name}`", repr(value), expected, remedy)
