"""The steps of a program's own loop in which its answers are trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from eligibility.audit.trainers.gradients import AtPrompts, prompt_share


@dataclass
class Pass:
    """The steps in which the answers are trained on once."""

    steps: int = 0
    scored: set[int] = field(default_factory=set)
    _table: Any = 0.0
    _gradient: Any = 0.0
    _prompts: AtPrompts = field(default_factory=dict)

    def add(self, table: Tensor, gradient: Tensor, scored: set[int], prompts: AtPrompts) -> None:
        """One step: [B, W, V] and [N] its gradients, its rows, and what is at their prompts."""
        self.steps += 1
        self.scored |= scored
        for state, each in prompts.items():
            self._prompts[state] = self._prompts.get(state, 0.0) + each
        self._table, self._gradient = self._table + table, self._gradient + gradient

    def mean(self) -> tuple[Tensor, Tensor]:
        """The mean of the steps' gradients."""
        return self._table / self.steps, self._gradient / self.steps

    @property
    def prompt_share(self) -> float:
        """How much of the gradient is at prompts."""
        return prompt_share(self._prompts, self._table)
