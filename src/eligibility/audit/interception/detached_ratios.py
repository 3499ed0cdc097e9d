"""Ratios of probabilities that are only numbers, as in V-trace: no graph of a loss has them."""

from __future__ import annotations

from collections.abc import Callable

import torch

_ROUNDING = 1e-5  # of log-probabilities in single precision


class DetachedRatios:
    """Sees a ratio by its logarithm, which is 0 where a batch is trained on for the first time.

    Args:
        draws: How many numbers the program has drawn: what follows the last draw of an update is
            its loss.
    """

    def __init__(self, draws: Callable[[], int]) -> None:
        self._draws = draws
        self._draws_before = -1

    def exponentiated(self, exponent: torch.Tensor) -> None:
        """The program takes the exponential of these numbers."""
        if exponent.requires_grad or not exponent.is_floating_point() or not exponent.numel():
            return
        if float(exponent.abs().max()) < _ROUNDING:
            self._draws_before = self._draws()

    def are_used(self) -> bool:
        """Whether there was one since the last draw."""
        return self._draws_before == self._draws()
