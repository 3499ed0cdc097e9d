"""Actions drawn by a space of gymnasium, as by a program that explores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from eligibility.audit.interception.numpy_samplers import FEW, answer
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.patches import Patches
from eligibility.audit.trace import UNREAD

_SEED = 20250101


def enumerate_spaces(patches: Patches, recorder: Recorder) -> None:
    """A few whole numbers are enumerated; what else spaces draw is the same in every run."""

    def discrete(self: Any, mask: Any = None, probability: Any = None) -> Any:
        weights = np.ones(self.n)
        for given in (mask, probability):
            weights = weights if given is None else np.asarray(given, dtype=float)
        both = mask is not None and probability is not None
        possible = len(weights) == self.n and (weights >= 0).all() and weights.any()
        if self.n > FEW or both or not possible:
            return NotImplemented
        picked = recorder.choices.choose((weights / weights.sum()).tolist(), "other")
        value = self.start + self.dtype.type(picked)
        recorder.sampled([value])
        return value

    def numbers(self: Any) -> Any:
        if self._np_random is None:  # gymnasium seeds it by the operating system
            self.seed(_SEED)
        return stock_numbers(self)

    stock_numbers = spaces.Space.np_random.fget  # type: ignore[attr-defined]  # of the property
    patches.set(spaces.Space, "np_random", property(numbers))
    for kind in (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete):
        _repeat(patches, recorder, kind)
    answer(patches, recorder, spaces.Discrete, "sample", discrete)


def _repeat(patches: Patches, recorder: Recorder, kind: type[spaces.Space[Any]]) -> None:
    def sample(self: Any, *args: Any, **options: Any) -> Any:
        if recorder.running:
            recorder.note(f"{UNREAD} `sample` of a {kind.__name__}")
        return stock(self, *args, **options)

    stock: Callable[..., Any] = patches.set(kind, "sample", sample)
