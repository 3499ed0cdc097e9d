"""What stands for a continuous draw: few values whose moments are those of its distribution.

Sums over the n nodes of Gauss-Hermite quadrature are exact for polynomials in the draw up to degree
2n − 1. A program that clips or squashes its actions makes no polynomials of them, so the audit
looks twice: at values off the nodes, far ones too, which no rule that was found may fail to
explain, and with more nodes, which shows how far the sums can be trusted.
"""

from __future__ import annotations

import math

import numpy as np

COARSE, FINE = 3, 5
_FAR = 4.0  # standard deviations: how far the values off the nodes go


def rule(nodes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes of a standard normal number, and their weights, which sum to 1."""
    if nodes == COARSE:
        return (-math.sqrt(3.0), 0.0, math.sqrt(3.0)), (1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0)
    found, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return tuple(found.tolist()), tuple((weights / weights.sum()).tolist())


def off_the_nodes(uniform: float) -> float:
    """A value of a standard normal number between the nodes, from one that is uniform on (0, 1)."""
    return _FAR * (2.0 * uniform - 1.0)
