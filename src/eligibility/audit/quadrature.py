"""What stands for a continuous draw: few values whose moments are those of its distribution."""

from __future__ import annotations

import math

# Gauss-Hermite quadrature with three nodes: exact for polynomials up to degree 5 in the draw.
NODES = (-math.sqrt(3.0), 0.0, math.sqrt(3.0))
WEIGHTS = (1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0)
