"""The gradient of the entropy, in the forms in which programs add it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.catalogue import norm_factor
from eligibility.audit.judgement.evidence import Evidence
from eligibility.audit.judgement.timeline import Timeline


@lru_cache(maxsize=32)
def entropy_columns(evidence: Evidence, line: Timeline, norm: str) -> tuple[Array, ...]:
    """The entropy's gradient on every path, divided as the policy's sum is; and its own mean.

    Only one of them where all batches are equally long: there the two differ by a factor.
    """
    columns: list[Array] = []
    for divided in dict.fromkeys((norm, "mean-over-time")):
        weights = norm_factor(divided, line) * line.present
        column = np.einsum("pi,pid->pd", weights, evidence.entropy).ravel()
        size = float(np.linalg.norm(column))
        if all(abs(c @ column) < (1 - 1e-9) * size * np.linalg.norm(c) for c in columns):
            columns.append(column)
    return tuple(columns)
