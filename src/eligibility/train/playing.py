"""Fresh episodes of several runs, as one matrix of returns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from eligibility.train.evaluation import Evaluation, summarize
from eligibility.train.learner import Reinforce
from eligibility.train.statistics import Array

_SEED = 0  # of the resampling, where no seed is given


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
    returns = np.stack(
        [
            Reinforce.load(folder, env=env, allow_modules=allow_modules).play(
                episodes, seed, deterministic
            )
            for folder in folders
        ]
    )
    return summarize(returns, _SEED if seed is None else seed), returns
