"""Parameters that a program moves itself, without an optimizer of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from eligibility.audit.choices import UpdatedByHandError


class HandUpdates:
    """Follows the leaves of each loss, as long as the program has made no optimizer.

    Args:
        has_optimizer: Whether it has made one.
    """

    def __init__(self, has_optimizer: Callable[[], bool]) -> None:
        self._has_optimizer = has_optimizer
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._place = ("", 0)

    def differentiates(self, leaves: Iterable[torch.Tensor], place: tuple[str, int]) -> None:
        """A loss of these leaves is about to be differentiated, on this line."""
        if not self._has_optimizer():
            self._before = [(leaf, leaf.detach().clone()) for leaf in leaves]
            self._place = place

    def check(self) -> None:
        """Raise `UpdatedByHandError` if one of them has moved since, and no optimizer was made."""
        still = self._has_optimizer() or all(torch.equal(*pair) for pair in self._before)
        if not still:
            raise UpdatedByHandError(*self._place)
