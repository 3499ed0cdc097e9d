"""Gradients that an optimizer's step was made with and that a later step is made with again.

PyTorch adds to the gradients that are there. A program that does not set them to zero takes each
step with the sum of all that came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class _Used:
    """A gradient that an optimizer's step was made with.

    Attributes:
        gradient: The tensor itself, not a copy.
        version: How often it had been written to.
        norm: Its size then.
    """

    gradient: torch.Tensor
    version: int
    norm: float


class AccumulatedGradients:
    """Follows the gradients of a run's tensors, each known by its index.

    It is the tensor of numbers that is followed, not whose gradient it is: workers hand theirs to a
    shared network.
    """

    def __init__(self) -> None:
        self._used: dict[int, _Used] = {}  # gradients that a step was made with
        self._left: dict[int, float] = {}  # norms of those still there when a backward began

    def before_backward(self) -> None:
        """Gradients that were used, and that nobody has written to since, may be added to."""
        for key, used in self._used.items():
            if not used.gradient.any():
                self._left.pop(key, None)
            elif used.gradient._version == used.version:
                self._left[key] = used.norm

    def share(self, gradients: Mapping[int, torch.Tensor]) -> float:
        """How much of a step's gradients an earlier step was made with, by norm; they are used."""
        total = again = 0.0
        for key, gradient in gradients.items():
            norm = float(gradient.norm())
            left = self._left.pop(key, None)
            total += norm**2
            if left is not None and norm and gradient is self._used[key].gradient:
                again += left**2
            self._used[key] = _Used(gradient, gradient._version, norm)
        if not again:
            return 0.0
        return float((again / total) ** 0.5) if total else 1.0
