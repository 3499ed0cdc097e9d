"""How certain is a result over seeds and episodes? Interquartile means and bootstrap intervals.

Scores are a matrix ``[R, E]``: R runs, which differ in their seed, with E episodes each. The unit
that is drawn again is the run and, within it, the episode: an interval over seeds, not over the
episodes of one lucky seed.

References:
    Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice",
    NeurIPS 34, for the interquartile mean, the stratified bootstrap and the probability of
    improvement; Efron 1979 for the bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A number and its 95 % interval: percentile bootstrap, 2000 resamples."""

    value: float  # value on the original scores
    low: float
    high: float


def units(scores: Array) -> Array:
    """What a statistic is over, ``[..., R]``: the runs' means, or one run's episodes."""
    return scores[..., 0, :] if scores.shape[-2] == 1 else scores.mean(-1)


def interquartile_mean(values: Array) -> Array:
    """The mean of the middle half along the last axis; ⌊n/4⌋ values are cut at each end."""
    cut = values.shape[-1] // 4
    ordered = np.sort(values, -1)
    return np.asarray(ordered[..., cut : values.shape[-1] - cut].mean(-1))


def mean(values: Array) -> Array:
    """The mean along the last axis."""
    return np.asarray(values.mean(-1))


def resampled(scores: Array, generator: np.random.Generator, number: int = RESAMPLES) -> Array:
    """Scores of ``number`` imaginary repetitions, ``[number, R, E]``: runs, then their episodes."""
    runs, episodes = scores.shape
    drawn = scores[generator.integers(runs, size=(number, runs))]
    return np.take_along_axis(drawn, generator.integers(episodes, size=drawn.shape), -1)


def interval(statistic: Callable[[Array], Array], scores: Array, seed: int) -> Interval:
    """A statistic of the units, with its interval."""
    repeated = statistic(units(resampled(scores, np.random.default_rng(seed))))
    return _interval(float(statistic(units(scores))), repeated)


def difference(statistic: Callable[[Array], Array], a: Array, b: Array, seed: int) -> Interval:
    """The statistic of b minus that of a, both resampled."""
    generator = np.random.default_rng(seed)
    repeated = [statistic(units(resampled(scores, generator))) for scores in (a, b)]
    value = float(statistic(units(b)) - statistic(units(a)))
    return _interval(value, repeated[1] - repeated[0])


def probability_of_improvement(a: Array, b: Array, seed: int) -> Interval:
    """That a unit of b, drawn at random, beats one of a; a draw counts half."""
    generator = np.random.default_rng(seed)
    repeated = [units(resampled(scores, generator)) for scores in (a, b)]
    return _interval(float(_share_of_wins(units(a), units(b))), _share_of_wins(*repeated))


def _share_of_wins(a: Array, b: Array) -> Array:
    """Mann & Whitney's count over all pairs: ``[..., n]`` and ``[..., m]`` → ``[...]``."""
    gap = b[..., :, None] - a[..., None, :]
    return np.asarray(((np.sign(gap) + 1) / 2).mean((-2, -1)))


def _interval(value: float, repeated: Array) -> Interval:
    low, high = np.percentile(repeated, [2.5, 97.5])
    return Interval(value, float(low), float(high))
