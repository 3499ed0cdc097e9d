"""The calls by which a program drew random numbers, as far as they may have made an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.choices import Choices


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

    def part(self, row: int, rows: int) -> Group:
        """What one of several rows, such as environments, has of it."""
        width = len(self.units) // rows
        part = slice(row * width, (row + 1) * width)
        return Group(self.units[part], self.values[part])


class Calls:
    """Those since the last step: the next action is made of one of them, or of several."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._laws: dict[int, list[tuple[float, float, float]]] = {}
        self.groups: list[Group] = []
        self.stepped = False
        self.served: set[int] = set()  # environments that have had their part

    def add(self, group: Group) -> None:
        """One more; the first one after a step begins a new list."""
        if self.stepped:
            self.give()
        self.groups.append(group)

    def add_noise(self, group: Group) -> None:
        """One that asked hand-made noise, perhaps the same numbers as the one before."""
        last = self.groups[-1] if self.groups and not self.stepped else None
        if last is not None and last.ids == group.ids:
            both = zip(last.units, group.units, strict=True)
            self.groups[-1] = replace(group, units=tuple(old + new for old, new in both))
        else:
            self.add(group)

    def settle(self, position: int, loc: float, scale: float, value: float) -> None:
        """A normal number was used as ``value`` of N(loc, scale²)."""
        self._laws.setdefault(position, []).append((loc, scale, value))

    def serve(self, environment: int) -> None:
        """An environment has taken a step."""
        self.served.add(environment)
        self.stepped = True

    def take(self) -> list[Group]:
        """Those that no step was made of."""
        return [] if self.stepped else self.groups

    def give(self, *groups: Group) -> None:
        """The next step is made of these."""
        self.groups, self.stepped = list(groups), False
        self.served.clear()

    def of(
        self, position: int, environments: int, components: Array, widths: set[int]
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[bool, ...]]:
        """For each call that may have drawn an action, its choices and whether the values fit.

        Args:
            position: The place of the environment among those that act.
            environments: How many act.
            components: The action that arrived.
            widths: How many numbers may have been drawn for it.
        """
        groups, matches = [], []
        for group in joined(self.groups, environments, widths):
            width, rest = divmod(len(group.units), environments)
            own = group.part(position, environments) if width in widths and not rest else group
            values = self._acted(own.units, own.values, components)
            groups.append(tuple(chain.from_iterable(own.units)))
            fits = len(values) == len(components) and np.allclose(values, components, atol=1e-6)
            matches.append(bool(fits))
        return tuple(groups), tuple(matches)

    def _acted(
        self, units: Sequence[tuple[int, ...]], values: tuple[float, ...], components: Array
    ) -> tuple[float, ...]:
        """Take each normal number in the form in which it became the action, if there are several.

        The others are parts of it, such as ``action - mean`` in a density that is written out.
        """
        if len(units) != len(components):
            return values
        used = list(values)
        for index, (unit, component) in enumerate(zip(units, components.tolist(), strict=True)):
            laws = self._laws.get(unit[-1], []) if unit else []
            if not laws:
                continue
            own = [law for law in laws if abs(law[2] - component) <= 1e-6 * (1 + abs(component))]
            loc, scale, value = (own or [law for law in laws if law[0] != 0.0] or laws)[0]
            draw = self._choices.draws[unit[-1]]
            self._choices.draws[unit[-1]] = replace(draw, loc=loc, scale=scale, value=value)
            used[index] = value
        return tuple(used)


def joined(groups: Sequence[Group], environments: int, widths: set[int]) -> list[Group]:
    """Groups as they are; or, where each call drew a part of the actions, put together."""
    if _one_by_one(groups, environments, widths):
        starts = range(0, len(groups), environments)
        return [one_after_another(groups[start : start + environments]) for start in starts]
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


def one_after_another(parts: Sequence[Group]) -> Group:
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
            own = part.part(row, environments)
            units += own.units
            values += own.values if len(part.values) == len(part.units) else ()
    return Group(tuple(units), tuple(values))
