"""Hand-made sampling: a uniform or normal number is drawn only as far as the program asks.

``u < p`` draws which side of p the number is on, ``argmax(logits + gumbel)`` which is the largest,
``mu + sigma * eps`` a quadrature node once its value is used. What asks for more of a uniform
number than a comparison gets a number that is the same on every path, and that is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch

from eligibility.audit.arrays import Array, Booleans, Integers
from eligibility.audit.choices import Choices
from eligibility.audit.noise.symbol import Symbol, winning_probabilities
from eligibility.audit.raised import precision_note
from eligibility.audit.trace import UNREAD

# A threshold so close to the end of what is possible is a rounded 0 or 1, and no outcome.
_ROUNDED = 1e-6
_FEW = 8  # whole numbers that a rounded number may become


class Books(Protocol):
    """What the noise reports to."""

    choices: Choices

    def drawn(
        self, ids: Sequence[int], units: Sequence[tuple[int, ...]], values: Sequence[float]
    ) -> None:
        """For each base number of ``ids``: the choices made for it, and their outcome."""

    def settled(self, position: int, loc: float, scale: float, value: float) -> None:
        """A normal number, drawn by a choice, was used as ``value`` of N(loc, scale²)."""

    def own_numbers(self) -> AbstractContextManager[None]:
        """Within it, numbers are drawn that only stand for noise."""

    def note(self, fact: str) -> None:
        """A fact that the diagnosis reads."""


class Noise:
    """The base numbers of one run, and what is known of each."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._count = 0
        self._between: dict[int, tuple[float, float]] = {}
        self._nodes: dict[int, tuple[int, float]] = {}  # the choice, and the node it took
        self._spent: set[int] = set()
        self._touched: set[int] = set()
        self._scalars: set[int] = set()

    def create(self, shape: tuple[int, ...], normal: bool) -> Symbol:
        """New base numbers."""
        size = int(np.prod(shape))
        ids = np.arange(self._count, self._count + size).reshape(shape)
        self._count += size
        if not shape:
            self._scalars.add(int(ids))
        return Symbol(ids, normal)

    def below(self, symbol: Symbol, values: Any) -> Booleans | None:
        """Whether each element is below each value, broadcast; None if it cannot be told."""
        values = np.asarray(values, dtype=np.float64)
        shape = np.broadcast_shapes(symbol.ids.shape, values.shape)
        wide = symbol.then("add", np.zeros(shape))
        assert wide is not None
        if not self._open(wide.ids):
            return None
        at, sign = wide.thresholds(np.broadcast_to(values, shape))
        ids, at = wide.ids.reshape(-1), at.reshape(-1)
        units = [self._refine(int(unit), at[ids == unit]) for unit in _unique(ids)]
        self._report(_unique(ids), [draws for draws, _ in units], [cell for _, cell in units])
        under = np.array([self._between[int(i)][0] < t for i, t in zip(ids, at, strict=True)])
        result: Booleans = np.where(sign.reshape(-1) > 0, under, ~under).reshape(shape)
        return result

    def floor(self, symbol: Symbol) -> Array | None:
        """Each element's largest whole number below it, if that is one of a few; else None."""
        ends = [symbol.quantiles(np.full(symbol.ids.shape, end)) for end in (0.0, 1.0)]
        if not np.isfinite(ends).all():
            return None
        lowest, highest = np.floor(np.min(ends)), np.ceil(np.max(ends))
        if highest - lowest > _FEW:
            return None
        wide = symbol.take(np.arange(symbol.ids.size).reshape(-1, 1))
        under = self.below(wide, np.arange(lowest + 1.0, highest)[None, :])
        if under is None:
            return None
        floors: Array = (lowest + (~under).sum(axis=1)).reshape(symbol.ids.shape)
        return floors

    def largest(self, symbol: Symbol, smallest: bool = False) -> Integers | None:
        """Index of the largest element along the last axis; None if it cannot be told."""
        if smallest:
            turned = symbol.then("mul", -1.0)
            assert turned is not None
            symbol = turned
        rows = symbol.ids.reshape(-1, symbol.ids.shape[-1])
        if not self._open(rows) or any(len(set(row.tolist())) < len(row) for row in rows):
            return None
        positions = np.arange(rows.size).reshape(rows.shape)
        picked, units = [], []
        for row, where in zip(rows, positions, strict=True):
            known = np.array([self._between.get(int(i), (0.0, 1.0)) for i in row])
            probs = winning_probabilities(symbol.take(where), known[:, 0], known[:, 1])
            if not abs(probs.sum() - 1.0) < 1e-8:
                return None
            units.append((len(self._books.choices.draws),))
            picked.append(self._books.choices.choose((probs / probs.sum()).tolist(), "action"))
            self._spent |= {int(i) for i in row}
        self._report([int(row[0]) for row in rows], units, picked)
        return np.array(picked).reshape(symbol.ids.shape[:-1])

    def settle(self, symbol: Symbol, placeholder: Any, what: str) -> Array:
        """The numbers themselves: quadrature nodes of normal ones; of others, ``placeholder``."""
        ids = symbol.ids.reshape(-1)
        self._touched |= set(ids.tolist())
        if not symbol.normal or any(i in self._between or i in self._spent for i in ids.tolist()):
            self._books.note(f"{UNREAD} {what}")
            return np.asarray(placeholder, dtype=np.float64).reshape(symbol.ids.shape)
        loc, scale, start = symbol.affine()
        units, raw = [], []
        for unit, mean, deviation in zip(
            ids.tolist(), loc.reshape(-1).tolist(), scale.reshape(-1).tolist(), strict=True
        ):
            units.append(self._node(unit, mean, deviation))
            position, node = self._nodes[unit]
            raw.append(mean + deviation * node)
            self._books.settled(position, mean, deviation, raw[-1])
        self._report(ids.tolist(), units, raw)
        return symbol.values(np.array(raw).reshape(symbol.ids.shape), start)

    def _node(self, unit: int, loc: float, scale: float) -> tuple[int, ...]:
        """Choose a normal number's quadrature node, unless it has one."""
        if unit in self._nodes:
            return ()
        position = len(self._books.choices.draws)
        self._nodes[unit] = position, self._books.choices.choose_normal(loc, scale)
        return (position,)

    def known_values(self, symbol: Symbol, placeholder: Array) -> Array:
        """The values of normal numbers, where their nodes are chosen; else ``placeholder``."""
        nodes = [self._nodes.get(int(i), (0, 0.0))[1] for i in symbol.ids.reshape(-1)]
        known = np.array([int(i) in self._nodes for i in symbol.ids.reshape(-1)], dtype=bool)
        values = symbol.values(np.array(nodes).reshape(symbol.ids.shape))
        result: Array = np.where(known.reshape(symbol.ids.shape), values, placeholder)
        return result

    def own_numbers(self) -> AbstractContextManager[None]:
        """Within it, numbers are drawn that only stand for noise."""
        return self._books.own_numbers()

    def computed_in(self, dtype: torch.dtype) -> None:
        """What noise is compared with has this precision."""
        self._books.note(precision_note(dtype))

    @property
    def unasked(self) -> bool:
        """Whether a single number was made that nothing has asked for, in a way that is seen."""
        return bool(self._scalars - self._touched)

    def _open(self, ids: Integers) -> bool:
        """Whether more can be asked of these numbers by comparison."""
        flat = set(ids.reshape(-1).tolist())
        self._touched |= flat
        return not flat & self._spent and not flat & self._nodes.keys()

    def _refine(self, unit: int, thresholds: Array) -> tuple[tuple[int, ...], int]:
        """Choose the cell between ``thresholds`` that the base number lies in."""
        low, high = self._between.get(unit, (0.0, 1.0))
        room = _ROUNDED * (high - low)
        inner = sorted({float(t) for t in thresholds if low + room < t < high - room})
        edges = [low, *inner, high]
        cell, draws = 0, tuple[int, ...]()
        if inner:
            probs = [(b - a) / (high - low) for a, b in pairwise(edges)]
            draws = (len(self._books.choices.draws),)
            cell = self._books.choices.choose(probs, "action")
        self._between[unit] = (edges[cell], edges[cell + 1])
        return draws, cell

    def _report(
        self, ids: Sequence[int], units: Sequence[tuple[int, ...]], values: Sequence[float]
    ) -> None:
        if any(units):
            self._books.drawn(ids, units, values)


def _unique(ids: Integers) -> list[int]:
    """Without repetition, in the order of first appearance."""
    return list(dict.fromkeys(ids.tolist()))
