"""The rows of one forward pass: which tokens it scores, and what comes back to its logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.tiny import VOCABULARY


@dataclass
class Scored:
    """The rows of one forward pass.

    Attributes:
        rows: Tokens of each, from its first one on.
        first: The position that the pass begins with.
        places: Rows of the outcome that they belong to, where a token is drawn from each of them.
        makes_logits: Whether a gradient has come by way of its logits.
        place: File and line of the program's call.
        logits: [b, k, V] of its last k columns; None: it makes none.
    """

    rows: list[Tokens]
    first: int = 0
    places: list[int] = field(default_factory=list)
    makes_logits: bool = False
    place: tuple[str, int] = ("", 0)
    logits: Tensor | None = None
    _reached: Tensor | None = None

    def at(self, row: int, column: int) -> list[float]:
        """[V] the logits of a row at a column, counted from the end; empty if there are none."""
        if self.logits is None or -column > self.logits.shape[1]:
            return []
        return list(self.logits[row, column, :VOCABULARY].tolist())

    def reach(self, gradient: Tensor) -> None:
        """[b, k, V] the gradient by the logits of the last k columns."""
        self._reached, self.makes_logits = gradient, True

    def taken(self, columns: int) -> Tensor:
        """[b, T, V] the gradient that has come since the last call."""
        table = torch.zeros(len(self.rows), columns, VOCABULARY, dtype=torch.float64)
        if self._reached is not None:
            table[:, columns - self._reached.shape[1] :] = self._reached[..., :VOCABULARY]
        self._reached = None
        return table


def with_last_token(ids: Tensor) -> Tensor:
    """[b, T + 1] the tokens that ``ids`` [b, T] are cut from, as in ``model(ids[:, :-1])``.

    The last one is scored without being read. Where no tensor has it, ``ids`` themselves.
    """
    if not ids._is_view() or ids.ndim != 2 or ids.stride(1) != 1:
        return ids
    rows, columns, base = *ids.shape, ids._base
    width = int(ids.stride(0))
    if rows == 1 and base is not None:  # its stride says nothing
        width = int(base.stride(-2)) if base.ndim > 1 else base.numel()
    if columns >= width or int(ids.storage_offset()) % width + columns != width - 1:
        return ids
    return ids.as_strided((rows, columns + 1), ids.stride())


def cache_in(given: Any) -> Any:
    """The keys and values in what a model is given or returns, by either of transformers' names."""
    if not isinstance(given, Mapping):  # a tuple, which does not tell
        return None
    caches = (given.get(name) for name in ("cache", "past_key_values"))
    return next((cache for cache in caches if cache is not None), None)
