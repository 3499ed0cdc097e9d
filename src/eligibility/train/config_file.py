"""Options from a file: YAML, TOML or JSON, the names as in `Config`, with ``env`` among them."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError, MissingDependencyError
from eligibility.train.config import Config
from eligibility.train.domains import is_number, suggestion
from eligibility.train.environments import check_trusted, required

# The standard library reads TOML from Python 3.11 on.
_TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"
SUFFIXES = (".yaml", ".yml", ".toml", ".json")


def read_options(path: Path) -> dict[str, Any]:
    """The options that a file sets; dashes in names may stand for underscores."""
    if path.suffix not in SUFFIXES:
        raise _wrong(path, f"the suffix {path.suffix!r}", "choose another format")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, getattr(error, "strerror", "") or "no text", "check its name") from error
    content = _parse(path, text)
    if not isinstance(content, dict):
        raise _wrong(path, f"a {type(content).__name__}", "write lines such as seed: 1")
    known = {field.name: field.metadata["domain"] for field in fields(Config)}
    options = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise _wrong(path, f"the unknown option `{key}`", suggestion(name, known))
        options[name] = _as_number(value) if is_number(known[name]) else value
    return options


def read_trusted(path: Path, env: str | None, allowed: Collection[str]) -> dict[str, Any]:
    """The same, where the file may import only what is allowed; ``env`` counts if it is given."""
    options = read_options(path)
    check_trusted(options.get("env_kwargs"), allowed, f"the config `{path}`")
    if env is not None:
        return {**options, "env": env}
    check_trusted(options.get("env"), allowed, f"the config `{path}`")
    return options


def _parse(path: Path, text: str) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".toml":
            return required(_TOML, "tomli").loads(text)
        return required("yaml", "pyyaml").safe_load(text)
    except MissingDependencyError:
        raise
    except Exception as error:  # each format has different errors
        reason = " ".join(str(error).split())
        raise _wrong(path, f"a text that is not {path.suffix[1:]} ({reason})", "correct it") from (
            error
        )


def _as_number(value: Any) -> Any:
    """YAML reads 1e-3 and inf as texts; here they are numbers."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _wrong(path: Path, got: str, remedy: str) -> InvalidValueError:
    expected = "a file of options in YAML, TOML or JSON (.yaml, .toml, .json)"
    return InvalidValueError(f"the config `{path}`", got, expected, remedy)
