"""The gradients of a path that are a policy's, and those that are not: its critic's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.trace import Trace

Directions = frozenset[tuple[int, int]]  # tensors, and which of the probing directions of each


def critic_gradient(trace: Trace, acting: Directions) -> Array:
    """The gradient along all directions outside the policy."""
    return _gradient(trace, lambda direction: direction not in acting)


def policy_gradient(trace: Trace, acting: Directions) -> Array:
    """The gradient along the policy's directions."""
    return _gradient(trace, lambda direction: direction in acting)


def _gradient(trace: Trace, wanted: Callable[[tuple[int, int]], bool]) -> Array:
    total: dict[tuple[int, int], float] = {}
    for update in trace.updates:
        for tensor, ascent in enumerate(update.ascent):
            for along in filter(wanted, ((tensor, d) for d in range(len(ascent or ())))):
                total[along] = total.get(along, 0.0) + (ascent or ())[along[1]]
    return np.array([total[along] for along in sorted(total)] or [0.0])
