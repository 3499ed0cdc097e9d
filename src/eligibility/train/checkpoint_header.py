"""What a checkpoint holds apart from its tensors, checked before it is used.

A checkpoint may come from a stranger, and a checksum proves that nobody changed it by accident, not
that it is true. So each entry has a type and a range here; memory is taken for none of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.train.config import Config
from eligibility.train.domains import LARGEST_WHOLE, shown
from eligibility.train.progress import WINDOW, Progress

# What an id may consist of; a name with other characters could steer the terminal it is shown on.
_ID = re.compile(r"[\w./:-]{1,200}", re.ASCII)
# Fields of `Progress` that may be negative, infinite or NaN.
_FREE = {"rollout_return", "mean_return", "entropy", "explained_variance"}


@dataclass(frozen=True)
class Header:
    """What a checkpoint says of its model."""

    config: Config
    progress: Progress  # where training stands; seconds are those of the record, and 0 here
    recent: tuple[float, ...]  # the returns of the last 100 finished episodes
    own_environment: bool  # the environment was the user's code, which a checkpoint does not hold
    own_network: bool  # likewise the network


def read_header(found: Any) -> Header:
    """The header of a JSON object."""
    content = _object("the header", found)
    own_environment = _flag(content, "own_environment")
    config = read_config(content.get("config"), own_environment=own_environment)
    progress = _progress(_object("`progress`", content.get("progress")))
    recent = content.get("recent")
    if not isinstance(recent, list) or len(recent) > WINDOW or not all(map(_is_finite, recent)):
        raise _wrong("`recent`", recent, f"at most {WINDOW} finite numbers")
    if len(recent) != min(progress.episodes, WINDOW):
        raise _wrong("`recent`", f"{len(recent)} returns", f"those of {progress.episodes} episodes")
    own_network = _flag(content, "own_network")
    return Header(config, progress, tuple(map(float, recent)), own_environment, own_network)


def read_config(found: Any, *, own_environment: bool = False) -> Config:
    """The config of a JSON object, as checkpoints and run folders hold it."""
    content = _object("`config`", found)
    env = content.get("env")
    if not isinstance(env, str) or not (
        env.isprintable() if own_environment else _ID.fullmatch(env)
    ):
        raise _wrong("`env`", env, "the id of an environment")
    try:
        return Config(**content)
    except TypeError:  # a keyword that is not an option
        known = {field.name for field in fields(Config)}
        raise _wrong("`config`", sorted({*content} - known), "options of this version") from None
    except EligibilityError as error:
        raise _wrong(error.what, error.got, error.expected) from error


def _progress(content: dict[str, Any]) -> Progress:
    """Names that this version does not know are left out; those that are missing, the default."""
    known = {field.name: field for field in fields(Progress)}
    values = {name: value for name, value in content.items() if name in known}
    for name, value in values.items():
        default: Any = known[name].default
        if isinstance(default, bool):
            fits = isinstance(value, bool)
        elif default is None:
            fits = value is None or isinstance(value, str)
        elif isinstance(default, int):
            fits = type(value) is int and 0 <= value <= LARGEST_WHOLE
        else:
            fits = _is_number(value) and (name in _FREE or not value < 0)
        if not fits:
            raise _wrong(f"`progress.{name}`", value, "a count that training could have reached")
    return Progress(**values)


def _object(what: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _wrong(what, found, "an object")
    return found


def _flag(content: dict[str, Any], name: str) -> bool:
    value = content.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(f"`{name}`", value, "true or false")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) <= LARGEST_WHOLE)


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _wrong(what: str, got: Any, expected: str) -> InvalidValueError:
    got = got if isinstance(got, str) and got.isprintable() else shown(got)
    return InvalidValueError(what, got[:100], expected, "restore the file from a copy")
