"""Whether a program sets its gradients to zero between a step of its optimizer and the next one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

_MARK = 1e6  # far above the gradients of the probe's models


class KeptGradients:
    """Leaves a mark in the gradients that a step has used, and looks for it at the next step.

    Attributes:
        marked: Whether a step has been taken.
        kept: Whether the latest gradient was added to a mark.
    """

    def __init__(self) -> None:
        self.marked = self.kept = False
        self._used: list[Tensor] = []
        register_optimizer_step_post_hook(self._mark)

    def about_to_step(self, parameters: Iterable[Tensor]) -> None:
        """The optimizer is about to use the gradients of these parameters."""
        self._used = [parameter for parameter in parameters if parameter.grad is not None]

    def _mark(self, *_: Any) -> None:
        for parameter in self._used:
            parameter.grad = torch.full_like(parameter, _MARK)
            parameter.register_post_accumulate_grad_hook(self._look)  # type: ignore[no-untyped-call]
        self.marked |= bool(self._used)
        self._used = []

    def _look(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.kept = float(parameter.grad.min()) > _MARK / 2.0
