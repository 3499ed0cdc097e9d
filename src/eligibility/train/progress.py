"""Where training stands after a rollout: plain numbers, read and written without torch."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

# The number of episodes in the mean that decides whether an environment is solved.
WINDOW = 100

# The names under which TensorBoard and Weights & Biases know the fields.
_TAGS = {
    "rollout_return": "return/rollout",
    "mean_return": "return/mean_of_last_100",
    "entropy": "policy/entropy",
    "saturated": "policy/saturated",
    "gradient_norm": "gradient/norm",
    "gradient_noise": "gradient/noise",
    "signal_to_noise": "gradient/signal_to_noise",
    "effective_batch": "gradient/effective_batch",
    "explained_variance": "baseline/explained_variance",
}


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
            weights together, estimated from the gradients of two halves of the episodes (of each
            episode with the baseline per-weight); NaN for a single episode.
        signal_to_noise: ``(norm² − noise²)/noise²``, at least 0: the squared length of the expected
            gradient in units of that variance.
        saturated: The share of this rollout's steps whose action has an eligibility below 0.01 at
            every output: the policy was all but certain there, and nothing can be learned.
        effective_batch: The number of equally weighed steps that would tell as much as they did:
            ``(Σ w)²/Σ w²`` with w the size of a step's advantage times its eligibility.
        explained_variance: The share of the returns' variance that the baseline removed: 1 for one
            that knows every return, below 0 for one that makes them noisier; NaN where all returns
            are equal.
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

    def after(self, returns: Collection[float], steps: int, recent: Collection[float]) -> Progress:
        """The same with a rollout of that number of steps, before anything was learned from it.

        The last 100 episodes, ``recent``, are counted in the order of their environments, not of
        their ends: otherwise the short episodes of a rollout would drop out before its long ones.
        """
        return replace(
            self,
            steps=self.steps + steps,
            episodes=self.episodes + len(returns),
            rollout_return=math.fsum(returns) / len(returns),
            mean_return=math.fsum(recent) / len(recent),
        )


def metrics(progress: Progress) -> dict[str, float]:
    """Tag → number, for what is known; and the speed."""
    known = {tag: float(getattr(progress, name)) for name, tag in _TAGS.items()}
    known["speed/steps_per_second"] = progress.steps / max(progress.training_seconds, 1e-9)
    return {tag: number for tag, number in known.items() if not math.isnan(number)}
