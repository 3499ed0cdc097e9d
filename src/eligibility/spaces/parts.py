"""``Dict`` and ``Tuple``: spaces that are made of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gymnasium import spaces

Made = TypeVar("Made")


def parts_of(space: Any) -> dict[Any, Any]:
    """The parts of a composite by their keys (``Dict``) or places (``Tuple``); else none."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else {}


def built_of(
    space: Any,
    leaf: Callable[[Any, str], Made],
    joined: Callable[[dict[Any, Made]], Made],
    place: str = "",
) -> Made:
    """What ``leaf`` makes of each space that is not a composite, and ``joined`` of those together.

    ``leaf`` is told where in the whole the space stands: "camera.0", or "" for the whole.
    """
    parts = parts_of(space)
    if not parts:
        return leaf(space, place)
    inner = {
        key: built_of(part, leaf, joined, f"{place}.{key}".strip("."))
        for key, part in parts.items()
    }
    return joined(inner)


def leaves_of(space: Any) -> list[Any]:
    """The spaces that one is made of, in the order of their numbers; itself, if of none."""
    parts = parts_of(space)
    return [leaf for part in parts.values() for leaf in leaves_of(part)] if parts else [space]


def put_together(space: Any, values: Mapping[Any, Any]) -> Any:
    """What a composite's member is, from what its parts have: a dict, or a tuple."""
    return dict(values) if isinstance(space, spaces.Dict) else tuple(values.values())
