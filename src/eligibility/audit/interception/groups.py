"""The calls by which a program drew random numbers, as far as they may have made an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """One call of the program that drew random numbers.

    Attributes:
        units: The choices that made each number.
        values: What it was, as far as known.
        ids: Which base numbers of hand-made noise they are.
    """

    units: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]
    ids: tuple[int, ...] = ()


def joined(groups: Sequence[Group], environments: int, widths: set[int]) -> list[Group]:
    """Groups as they are; or, where each call drew a part of the actions, put together."""
    if _one_by_one(groups, environments, widths):
        starts = range(0, len(groups), environments)
        return [_one_after_another(groups[start : start + environments]) for start in starts]
    parts: list[Group] = []
    whole: list[Group] = []
    for group in groups:
        if not group.units or len(group.units) % environments:
            return list(groups)
        parts.append(group)
        width = sum(len(part.units) for part in parts) // environments
        if width > max(widths):
            return list(groups)
        if width in widths:
            whole.append(_side_by_side(parts, environments))
            parts = []
    return list(groups) if parts else whole


def _one_by_one(groups: Sequence[Group], environments: int, widths: set[int]) -> bool:
    """Whether each call drew the action of one environment, for all of them in turn."""
    sizes = {len(group.units) for group in groups}
    if len(sizes) != 1 or not sizes <= widths or len(groups) % environments:
        return False
    return min(sizes) % environments > 0


def _one_after_another(parts: Sequence[Group]) -> Group:
    """One group of several environments, of which each has a part."""
    units = tuple(unit for part in parts for unit in part.units)
    return Group(units, tuple(value for part in parts for value in part.values))


def _side_by_side(parts: Sequence[Group], environments: int) -> Group:
    """One group of several environments, their numbers side by side."""
    if len(parts) == 1:
        return parts[0]
    units: list[tuple[int, ...]] = []
    values: list[float] = []
    for row in range(environments):
        for part in parts:
            each = slice(
                row * len(part.units) // environments, (row + 1) * len(part.units) // environments
            )
            units += part.units[each]
            values += part.values[each] if len(part.values) == len(part.units) else ()
    return Group(tuple(units), tuple(values))
