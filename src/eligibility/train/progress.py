"""Where training stands after a rollout: plain numbers, read and written without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

# The number of episodes in the mean that decides whether an environment is solved.
WINDOW = 100


@dataclass(frozen=True)
class Progress:
    """Where training stands after a rollout.

    Attributes:
        updates: Updates made so far.
        steps: Environment steps that counted so far.
        episodes: Episodes finished so far.
        rollout_return: Mean undiscounted return of this rollout's episodes.
        mean_return: The same of the last 100 finished episodes, or of all if they are fewer.
        entropy: Mean entropy of the policy over this rollout's steps, in nats.
        gradient_norm: Euclidean norm of this rollout's policy gradient.
        gradient_noise: The standard deviation of that gradient from one rollout to another, all
            weights together.
        signal_to_noise: The squared length of the expected gradient in units of its square.
        saturated: The share of this rollout's steps at which the policy was all but certain.
        effective_batch: The number of equally weighed steps that would tell as much as they did.
        explained_variance: The share of the returns' variance that the baseline removed.
        solved: Whether the mean of the last 100 has reached `stop_at`.
        warning: What goes wrong, in a sentence; None: nothing that shows.
        training_seconds: From the first reset to the end of this rollout's or update's work.
    """

    updates: int = 0
    steps: int = 0
    episodes: int = 0
    rollout_return: float = math.nan
    mean_return: float = math.nan
    entropy: float = math.nan
    gradient_norm: float = math.nan
    gradient_noise: float = math.nan
    signal_to_noise: float = math.nan
    saturated: float = math.nan
    effective_batch: float = math.nan
    explained_variance: float = math.nan
    solved: bool = False
    warning: str | None = None
    training_seconds: float = 0.0
