"""Losses that train only on some answers: the best of each group, or those above a bound.

Such a weight does not change its sign with the rewards, so the gradients of both signs are read
together. Training on the best of several answers is called RAFT (Dong et al. 2023), on those with
a reward above a bound ReST (Gulcehre et al. 2023).
"""

from __future__ import annotations

import itertools

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.language.laws import BOUND, COMMON_SCALES, SELECTED
from eligibility.audit.language.reading import Reading, fitted_to, pattern_alone, project
from eligibility.audit.language.sample import Sample

_DIVISORS = ("constant", "own-length", "batch-tokens", "width")
_SOME = 1e-9  # share of the largest weight above which an answer is trained on


def read_selected(sample: Sample, exact: float) -> Reading | None:
    """The first selection that explains the weights of every batch; None: there is none.

    Args:
        sample: With the whole gradients, of rewards of both signs.
        exact: Shares below it are rounding.
    """
    weights, left = project(sample, sample.scores)
    if not sample.size or left > exact:
        return None
    bound, pattern = _bound(sample, weights), pattern_alone(sample)
    for selected, divisor, scale in itertools.product(SELECTED, _DIVISORS, COMMON_SCALES[:3]):
        if scale != "none" and "advantage" not in selected:
            continue
        if BOUND in selected and bound is None:
            continue
        shape = Reading({}, divisor, scale, 0.0, pattern, selected=selected, bound=bound or 0.0)
        found = fitted_to(sample, shape, weights)
        if found.residual < exact:
            return found
    return None


def _bound(sample: Sample, weights: Array) -> float | None:
    """A number that parts the rewards of the answers with a weight from those without; or None."""
    size = np.abs(np.where(sample.mask, weights, 0.0)).max(-1)
    kept = size > _SOME * size.max()
    if kept.all() or not kept.any():
        return None
    least, most = sample.rewards[kept].min(), sample.rewards[~kept].max()
    return float(least + most) / 2.0 if least > most else None
