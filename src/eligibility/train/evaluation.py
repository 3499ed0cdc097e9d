"""How good is a policy? The return of fresh episodes, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from eligibility.train.rollout import Collector
from eligibility.train.seeding import Stream, derive

_RESAMPLES = 2000


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns of fresh episodes.

    Attributes:
        episodes: Their number.
        mean_return: Their mean.
        standard_deviation: Their spread (dividing by the number of episodes).
        minimum: The worst.
        maximum: The best.
        confidence_95: The mean's 95 % interval: percentile bootstrap, 2000 resamples.
    """

    episodes: int
    mean_return: float
    standard_deviation: float
    minimum: float
    maximum: float
    confidence_95: tuple[float, float]


def evaluate(
    collector: Collector, network: nn.Module, seed: int, deterministic: bool
) -> Evaluation:
    """One episode of each of the collector's environments."""
    reset_seed, generator = derive(seed, Stream.EVALUATION)
    rollout = collector.collect(network, reset_seed, None if deterministic else generator)
    returns = np.array(rollout.episode_returns)
    resampled = np.random.default_rng(reset_seed).choice(returns, (_RESAMPLES, len(returns)))
    low, high = np.percentile(resampled.mean(1), [2.5, 97.5])
    return Evaluation(
        episodes=len(returns),
        mean_return=float(returns.mean()),
        standard_deviation=float(returns.std()),
        minimum=float(returns.min()),
        maximum=float(returns.max()),
        confidence_95=(float(low), float(high)),
    )
