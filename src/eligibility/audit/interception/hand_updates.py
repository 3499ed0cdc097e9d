"""Parameters that a program moves itself, without an optimizer of torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from eligibility.audit.choices import UpdatedByHandError
from eligibility.audit.trace import BY_HAND


class HandUpdates:
    """Follows what each loss is differentiated by, as long as no optimizer has stepped it.

    Args:
        trained: What optimizers train; a copy of one of these was not moved, but refreshed.
    """

    def __init__(self, trained: Sequence[torch.Tensor]) -> None:
        self._trained = trained
        self._stepped: set[int] = set()
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor, tuple[str, int]]] = {}

    def differentiates(self, leaves: Iterable[torch.Tensor], place: tuple[str, int]) -> None:
        """A loss of these leaves is about to be differentiated, on this line."""
        for leaf in leaves:
            if id(leaf) not in self._stepped and id(leaf) not in self._before:
                self._before[id(leaf)] = leaf, leaf.detach().clone(), place

    def stepped(self, parameters: Iterable[torch.Tensor]) -> None:
        """An optimizer steps these."""
        for parameter in parameters:
            self._stepped.add(id(parameter))
            self._before.pop(id(parameter), None)

    def check(self) -> str:
        """A note with the line of its loss if anything else has moved since; else an empty one.

        Raises `UpdatedByHandError` if no optimizer has stepped at all. If one has, it may train the
        policy, and what is moved by hand a critic: then the survey decides.
        """
        for leaf, before, place in self._before.values():
            if not torch.equal(leaf, before) and not self._is_refreshed(leaf):
                if not self._stepped:
                    raise UpdatedByHandError(*place)
                return f"{BY_HAND} {place[0]}:{place[1]}"
        return ""

    def _is_refreshed(self, leaf: torch.Tensor) -> bool:
        return any(
            known is not leaf and known.shape == leaf.shape and torch.equal(known, leaf)
            for known in self._trained
        )
