"""Is B better than A? Two groups of runs, with the uncertainty of the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eligibility.errors import InvalidValueError
from eligibility.train.evaluation import Evaluation, summarize
from eligibility.train.learner import Reinforce
from eligibility.train.statistics import (
    Array,
    Interval,
    difference,
    interquartile_mean,
    mean,
    probability_of_improvement,
)


@dataclass(frozen=True)
class Comparison:
    """B compared with A."""

    a: Evaluation  # what A's episodes say
    b: Evaluation  # what B's say
    mean_difference: Interval  # the mean of B minus that of A
    interquartile_difference: Interval  # the same of the interquartile means
    # That a run of B, drawn at random, beats one of A; an episode, where A and B are one run each.
    # A draw counts half, so that 0.5 means no difference.
    probability_of_improvement: Interval

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the interquartile difference leaves 0 out."""
        return not self.interquartile_difference.low <= 0 <= self.interquartile_difference.high


def play_runs(
    folders: Sequence[Path],
    episodes: int,
    seed: int | None,
    deterministic: bool,
    *,
    env: str | None = None,
    allow_modules: Collection[str] = (),
) -> tuple[Evaluation, Array]:
    """The summary and the returns ``[R, E]`` of E fresh episodes with each of R runs.

    Without a ``seed`` each run's own is taken, so that the runs' episodes differ.
    """
    models = (Reinforce.load(run, env=env, allow_modules=allow_modules) for run in folders)
    returns = np.stack([model.play(episodes, seed, deterministic) for model in models])
    return summarize(returns, 0 if seed is None else seed), returns


def compare(a: Array, b: Array, seed: int) -> Comparison:
    """Compare returns ``[R, E]`` with returns ``[R′, E]``."""
    if (len(a) == 1) != (len(b) == 1):
        raise InvalidValueError(
            "the runs",
            f"{len(a)} against {len(b)}",
            "one run against one, whose episodes are compared, or several against several",
            "train more seeds with eligibility sweep",
        )
    return Comparison(
        a=summarize(a, seed),
        b=summarize(b, seed),
        mean_difference=difference(mean, a, b, seed),
        interquartile_difference=difference(interquartile_mean, a, b, seed),
        probability_of_improvement=probability_of_improvement(a, b, seed),
    )
