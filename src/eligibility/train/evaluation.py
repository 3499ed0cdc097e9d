"""How good is a policy? The return of fresh episodes, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from eligibility.train.rollout import Collector
from eligibility.train.seeding import Stream, derive
from eligibility.train.statistics import Array, interquartile_mean, interval, mean


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns of fresh episodes, of one run or of several that differ in their seed.

    Attributes:
        episodes: Their number, of all runs together.
        mean_return: Their mean.
        standard_deviation: Their spread (dividing by the number of episodes).
        minimum: The worst.
        maximum: The best.
        confidence_95: The mean's 95 % interval: percentile bootstrap, 2000 resamples, of the
            runs and of the episodes within them.
        interquartile_mean: The mean of the middle half of the runs' means; of the episodes, where
            there is one run only.
        interquartile_confidence_95: Its interval, likewise.
        runs: The number of runs.
    """

    episodes: int
    mean_return: float
    standard_deviation: float
    minimum: float
    maximum: float
    confidence_95: tuple[float, float]
    interquartile_mean: float
    interquartile_confidence_95: tuple[float, float]
    runs: int = 1


def play(
    collector: Collector, network: nn.Module, seed: int, deterministic: bool, episodes: int
) -> Array:
    """The return of each of the episodes: one of each of the collector's environments, or more."""
    returns: list[float] = []
    rollouts = 0
    while len(returns) < episodes:
        reset_seed, generator = derive(seed, Stream.EVALUATION, rollouts)
        rollout = collector.collect(network, reset_seed, None if deterministic else generator)
        returns += rollout.episode_returns
        rollouts += 1
    return np.array(returns[:episodes])


def summarize(returns: Array, seed: int) -> Evaluation:
    """What returns ``[R, E]`` of R runs with E episodes each say."""
    average = interval(mean, returns, seed)
    middle = interval(interquartile_mean, returns, seed)
    return Evaluation(
        episodes=returns.size,
        mean_return=float(returns.mean()),
        standard_deviation=float(returns.std()),
        minimum=float(returns.min()),
        maximum=float(returns.max()),
        confidence_95=(average.low, average.high),
        interquartile_mean=middle.value,
        interquartile_confidence_95=(middle.low, middle.high),
        runs=len(returns),
    )
