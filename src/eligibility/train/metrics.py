"""The names under which TensorBoard and Weights & Biases know the fields of a `Progress`."""

from __future__ import annotations

import math

from eligibility.train.progress import Progress

TAGS = {
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


def metrics(progress: Progress) -> dict[str, float]:
    """Tag → number, for what is known; and the speed."""
    known = {tag: float(getattr(progress, name)) for name, tag in TAGS.items()}
    known["speed/steps_per_second"] = progress.steps / max(progress.training_seconds, 1e-9)
    return {tag: number for tag, number in known.items() if not math.isnan(number)}
