"""From an environment's observations to the network's inputs: one encoding a kind of space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError


class Observations(ABC):
    """How observations are stored and what of them the network sees."""

    shape: tuple[int, ...]
    dtype: type[np.generic]
    features: int

    @abstractmethod
    def encode(self, stored: Tensor) -> Tensor:
        """The network's inputs ``[N, features]`` of stored observations ``[N, *shape]``."""


class FlatObservations(Observations):
    """``Box`` with one axis: the numbers themselves."""

    dtype = np.float32

    def __init__(self, size: int) -> None:
        self.shape, self.features = (size,), size

    def encode(self, stored: Tensor) -> Tensor:
        """As they are."""
        return stored


class DiscreteObservations(Observations):
    """``Discrete(n)``: a one-hot vector."""

    shape = ()
    dtype = np.int64

    def __init__(self, states: int, start: int = 0) -> None:
        self.features, self.start = states, start

    def encode(self, stored: Tensor) -> Tensor:
        """One-hot rows, counted from the space's start."""
        return torch.nn.functional.one_hot(stored - self.start, self.features).float()


def observations_for(space: Any) -> Observations:
    """The encoding for the observation space of one environment.

    Raises:
        InvalidTypeError: None is written for this kind of space.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return FlatObservations(int(space.shape[0]))
    if isinstance(space, spaces.Discrete):
        return DiscreteObservations(int(space.n), int(space.start))
    raise InvalidTypeError(
        "the observation space",
        str(space),
        "Box with one axis, or Discrete",
        "wrap the environment, for instance in gymnasium.wrappers.FlattenObservation",
    )
