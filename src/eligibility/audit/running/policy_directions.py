"""The gradients of a path that are a policy's, and those that are not: its critic's."""

from __future__ import annotations

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.trace import Trace

Directions = frozenset[tuple[int, int]]  # tensors, and which of the probing directions of each


def critic_gradient(trace: Trace, acting: Directions) -> Array:
    """The gradient along all directions outside the policy."""
    return policy_gradient(trace, acting, outside=True)


def policy_gradient(trace: Trace, acting: Directions, outside: bool = False) -> Array:
    """The gradient along the policy's directions, or along all others."""
    total: dict[tuple[int, int], float] = {}
    for update in trace.updates:
        for tensor, ascent in enumerate(update.ascent):
            for direction, slope in enumerate(ascent or ()):
                along = tensor, direction
                if (along in acting) != outside:
                    total[along] = total.get(along, 0.0) + slope
    return np.array([total[along] for along in sorted(total)] or [0.0])
