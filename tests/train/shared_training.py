"""Trains a few models and writes their weights, alone or as one of several processes."""

from __future__ import annotations

from typing import Any
from unittest import mock

from safetensors.torch import save_file

import eligibility as el
from eligibility.train import natural

# A damping at which conjugate gradients do not magnify rounding.
NATURAL = {"natural_gradient": 0.01, "damping": 1.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "time-dependent-leave-one-out": {"env": "CartPole-v1"},
    "state-value": {"env": "CartPole-v1", "baseline": "state-value", "gae_lambda": 0.9},
    "moving-average": {"env": "CartPole-v1", "baseline": "moving-average", "normalize": False},
    "natural": {"env": "CartPole-v1", **NATURAL, "line_search": True},
    "natural recurrent": {"env": "CartPole-v1", **NATURAL, "recurrent": "gru"},
    "recurrent": {"env": "CartPole-v1", "recurrent": "gru"},
    # Copies of one environment that are stepped in turn, and observations seen by all processes.
    "normalised": {"env": "MountainCarContinuous-v0", "normalize_observations": True},
}


def main(arguments: list[str]) -> None:
    """``arguments``: the file for the weights."""
    (out,) = arguments
    # Of a third of the steps or of the episodes, so that some processes have none of these.
    with mock.patch.object(natural, "_LARGEST_SAMPLE", 64):
        _train(out)


def _train(out: str) -> None:
    weights = {}
    for name, options in OPTIONS.items():
        model = el.Reinforce(
            **options, seed=3, environments=8, shards=4, max_episode_steps=40, stop_at=1e9
        )
        model.learn(total_steps=1_000)
        weights |= {f"{name}.{key}": t for key, t in model.network.state_dict().items()}
    if model.leads:
        save_file(weights, out)
