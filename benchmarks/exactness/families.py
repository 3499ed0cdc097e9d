"""Every family that is measured."""

from __future__ import annotations

from benchmarks.exactness.family import Family
from benchmarks.exactness.scalar_families import SCALAR
from benchmarks.exactness.vector_families import VECTOR

FAMILIES: list[Family] = [*SCALAR, *VECTOR]
