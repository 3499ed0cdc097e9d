"""Every random number of a run is a function of the seed and of what it is for.

Nothing is carried from one rollout to the next, so a rollout can be repeated, or a run resumed,
from its number alone.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """What random numbers are for; each has its own, independent of the others."""

    INITIALISATION = 0
    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3


def derive(
    seed: int, stream: Stream, number: int = 0, shard: int = 0
) -> tuple[int, torch.Generator]:
    """A seed for the environments and a generator for the rest, for the ``number``-th use."""
    key = (stream, number, shard) if shard else (stream, number)
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    environments, generator = (int(word) for word in sequence.generate_state(2))
    return environments, torch.Generator().manual_seed(generator)
