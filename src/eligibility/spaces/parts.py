"""``Dict`` and ``Tuple``: spaces that are made of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces


def parts_of(space: Any) -> dict[Any, Any]:
    """The parts of a composite by their keys (``Dict``) or places (``Tuple``); else none."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else {}


def leaves_of(space: Any) -> list[Any]:
    """The spaces that one is made of, in the order of their numbers; itself, if of none."""
    parts = parts_of(space)
    return [leaf for part in parts.values() for leaf in leaves_of(part)] if parts else [space]


def put_together(space: Any, values: Mapping[Any, Any]) -> Any:
    """What a composite's member is, from what its parts have: a dict, or a tuple."""
    return dict(values) if isinstance(space, spaces.Dict) else tuple(values.values())
