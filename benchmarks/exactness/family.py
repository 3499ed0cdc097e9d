"""What the harness needs to know of a distribution: how to draw inputs, and its density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from mpmath import mpf
from torch import Tensor
from torch.distributions import Distribution


class Draws:
    """Columns of random numbers, one row a point, in float64."""

    def __init__(self, points: int, seed: int) -> None:
        self.points = points
        self._generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float, *event: int) -> Tensor:
        unit = torch.rand(self.points, *event, generator=self._generator, dtype=torch.float64)
        return low + (high - low) * unit

    def log(self, low: float, high: float, *event: int) -> Tensor:
        """10^u, u uniform in [low, high)."""
        return 10 ** self.uniform(low, high, *event)

    def sign(self, *event: int) -> Tensor:
        return torch.where(self.uniform(-1, 1, *event) < 0, -1.0, 1.0)

    def signed(self, low: float, high: float, *event: int) -> Tensor:
        return self.sign(*event) * self.log(low, high, *event)

    def probability(self, *event: int) -> Tensor:
        """A third near 0 (down to 1e-30), a third near 1, a third between."""
        near_one = 1 - self.log(-16, -1, *event)
        kind = self.uniform(0, 3, *event)
        tiny, middle = self.log(-30, -1, *event), self.uniform(0, 1, *event)
        return torch.where(kind < 1, tiny, torch.where(kind < 2, near_one, middle))

    def count(self, highest: Tensor) -> Tensor:
        """Whole numbers from 0 to ``highest``; both ends are frequent."""
        inside = (self.uniform(0, 1) * (highest + 1)).floor().clamp(max=highest)
        kind = self.uniform(0, 4)
        return torch.where(kind < 1, 0.0, torch.where(kind < 2, highest, inside))


Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """One parameterisation of one distribution.

    Attributes:
        label: What the report calls it.
        build: Constructor, called with the parameters and ``validate_args=False``.
        density: ``ln p`` up to a constant, of ``value`` and the parameters as mpmath numbers
            (lists and lists of lists for vectors and matrices).
        draw: Function of `Draws` to the columns of ``value`` and of every argument.
        edges: Further points; an edge gives every column as plain numbers.
        whole: The columns that hold whole numbers, which rounding does not move.
        fixed: Arguments of the constructor that are no parameters with a rule.
        converted: Parameter that the object was not constructed with -> (function of the
            arguments to it, the density in it).
        symmetric: The parameters that are symmetric matrices.
    """

    label: str
    build: Callable[..., Distribution]
    density: Callable[..., mpf]
    draw: Callable[[Draws], Columns]
    edges: tuple[Mapping[str, Any], ...] = ()
    whole: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    converted: Mapping[str, tuple[Callable[..., Any], Callable[..., mpf]]] = field(
        default_factory=dict
    )
    symmetric: tuple[str, ...] = ()

    def columns(self, points: int, seed: int) -> Columns:
        """The random points, then the edges."""
        drawn = self.draw(Draws(points, seed))
        if not self.edges:
            return drawn
        return {
            name: torch.cat(
                [column, torch.tensor([edge[name] for edge in self.edges], dtype=torch.float64)]
            )
            for name, column in drawn.items()
        }
