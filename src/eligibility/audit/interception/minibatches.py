"""Rows of a batch that are drawn at random: every row in turn, so that all come equally often.

A program that draws its minibatches uniformly means the mean over the batch. Rows in turn are one
of the outcomes, and have that mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eligibility.audit.arrays import Integers
from eligibility.audit.trace import Step, Update


class Minibatches:
    """Answers draws of several rows at a time."""

    def __init__(self, steps: Sequence[Step], updates: Sequence[Update]) -> None:
        self._steps, self._updates = steps, updates
        self._next = self._collected = 0
        self._answered: int | None = None  # the updates that were made before the newest answer

    def rows(self, count: Any, size: Any) -> Integers | None:
        """[size] rows of a batch of ``count`` steps; None if the program has no such batch."""
        collected = len(self._steps)
        begun = {0, *(update.steps_before for update in self._updates)}
        several = np.ndim(count) == 0 and size is not None and np.prod(size) > 1
        if not several or count < 2 or collected - count not in begun:
            return None
        if collected != self._collected:
            self._next, self._collected = 0, collected
        self._answered = len(self._updates)
        chosen = (self._next + np.arange(int(np.prod(size)))) % int(count)
        self._next = int(chosen[-1] + 1) % int(count)
        return np.asarray(chosen.reshape(size))

    def acts(self) -> bool:
        """Whether the program acts on the newest answer: it has trained on nothing since."""
        acting = self._answered == len(self._updates)
        self._answered = None
        return acting
