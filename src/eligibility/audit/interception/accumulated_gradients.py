"""Gradients that an optimizer's step was made with and that a later step is made with again.

PyTorch adds to the gradients that are there. A program that does not set them to zero takes each
step with the sum of all that came before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def is_still(self, gradient: torch.Tensor | None) -> bool:
        """Whether ``gradient`` is this one, and nobody has written to it since."""
        return gradient is self.gradient and self.gradient._version == self.version


class AccumulatedGradients:
    """Follows the gradients of a run's tensors, each known by its index."""

    def __init__(self) -> None:
        self._used: dict[int, _Used] = {}  # gradients that a step was made with
        self._left: dict[int, float] = {}  # norms of those still there when a backward began

    def before_backward(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gradients that were used and are still there will be added to."""
        there = {
            key: gradient
            for key in {*self._used, *self._left}
            if (gradient := tensors[key].grad) is not None and bool(gradient.any())
        }
        still = {
            key: used.norm for key, used in self._used.items() if used.is_still(there.get(key))
        }
        self._left = {key: norm for key, norm in self._left.items() if key in there} | still

    def share(self, gradients: Mapping[int, torch.Tensor]) -> float:
        """How much of a step's gradients an earlier step was made with, by norm; they are used."""
        total = again = 0.0
        for key, gradient in gradients.items():
            norm = float(gradient.norm())
            left = self._left.pop(key, None)
            total += norm**2
            again += left**2 if left is not None and bool(gradient.any()) else 0.0
            self._used[key] = _Used(gradient, gradient._version, norm)
        if not again:
            return 0.0
        return float((again / total) ** 0.5) if total else 1.0
