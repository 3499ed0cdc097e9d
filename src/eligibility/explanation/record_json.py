"""The record as JSON and back: every field of every dataclass, and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def write_json(record: Any) -> str:
    """A dataclass as JSON; infinities and NaN are the strings "inf", "-inf" and "nan"."""
    return json.dumps(_to_plain(asdict(record)), ensure_ascii=False, allow_nan=False)


def read_json(kind: type[Record], text: str) -> Record:
    """The dataclass of type ``kind`` that `write_json` wrote."""
    restored = _restore(kind, json.loads(text))
    assert isinstance(restored, kind)
    return restored


def _to_plain(value: Any) -> Any:
    """``value`` with every float that JSON has no word for as a string."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _restore(kind: Any, value: Any) -> Any:
    """``value``, from JSON, as the type ``kind`` that a field of the record is annotated with."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{f.name: _restore(hints[f.name], value[f.name]) for f in fields(kind)})
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        inner = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(value)
        return tuple(_restore(item, entry) for item, entry in zip(inner, value, strict=True))
    if get_origin(kind) in (Union, UnionType):
        present = next(item for item in arguments if item is not type(None))
        return None if value is None else _restore(present, value)
    return float(value) if kind is float else value
