"""Random numbers that are not enumerated: whether a program uses any, and their seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class OtherNumbers:
    """Watches the three global generators, from the first reset on; a ``seed`` seeds them first."""

    def __init__(self, seed: int | None) -> None:
        if seed is not None:
            seed_generators(seed)
        self._used: dict[str, None] = {}
        self._before = self._first = states()

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
            self._before = states()

    def mark(self) -> None:
        """Come back to this state on `rewind`."""
        self._first = states()

    def rewind(self) -> None:
        """Draw the numbers again that came after the mark, at first the first reset."""
        self._compare()
        set_states(self._first)
        self._before = states()

    def _compare(self) -> None:
        now = states()
        for kind, state in now.items():
            if not _equal(state, self._before[kind]):
                self._used[f"the global generator of {kind}"] = None
        self._before = now


def states() -> dict[str, Any]:
    """Those of the three global generators."""
    return {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "random": random.getstate(),
    }


def set_states(known: dict[str, Any]) -> None:
    """Put them back."""
    torch.set_rng_state(known["torch"])
    np.random.set_state(known["numpy"])
    random.setstate(known["random"])


def seed_generators(seed: int) -> None:
    """Seed them."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, tuple) and any(isinstance(part, np.ndarray) for part in left):
        return all(_equal(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)
