"""Random numbers that are not enumerated: whether a program uses any, and their seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class OtherNumbers:
    """Watches the three global generators, from the first reset on.

    Args:
        seed: Seed them first; None: leave them as they are.
    """

    def __init__(self, seed: int | None) -> None:
        if seed is not None:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
        self._used: dict[str, None] = {}
        self._before = _states()

    def used(self) -> tuple[str, ...]:
        """The generators that the program has drawn from."""
        self._compare()
        return tuple(self._used)

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """What is drawn within is not the program's."""
        self._compare()
        try:
            yield
        finally:
            self._before = _states()

    def _compare(self) -> None:
        now = _states()
        for kind, state in now.items():
            if state != self._before[kind]:
                self._used[f"the global generator of {kind}"] = None
        self._before = now


def _states() -> dict[str, Any]:
    legacy: Any = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (legacy[1].tobytes(), *legacy[2:]),
        "random": random.getstate(),
    }
