"""``Discrete``, ``MultiDiscrete`` and ``MultiBinary``: indices and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.spaces import Bits, Index, Indices
from eligibility.train.observations.boxes import BoxObservations
from eligibility.train.observations.observations import (
    Observations,
    check_range,
    encoding_of,
    one_hot,
    read_array,
)


class DiscreteObservations(Observations):
    """``Discrete(n)``: a one-hot vector, counted from the space's start."""

    shape = ()
    dtype = np.int64
    categories = 1

    def __init__(self, states: int, start: int = 0) -> None:
        self.features, self.start = states, start
        self.numbers = torch.zeros(states, dtype=torch.bool)

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        """As they are."""
        return np.asarray(batch)

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """See `Observations.read`."""
        seen, several = read_array(observation, (), self.dtype)
        check_range(seen, self.start, self.start + self.features)
        return seen, several

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        """The first state."""
        return np.full(number, self.start)

    def indices(self, kept: Tensor) -> Tensor:
        """The state, counted from 0."""
        return (kept - self.start).unsqueeze(-1)

    def encode(self, kept: Tensor) -> Tensor:
        """One-hot rows."""
        return one_hot(self.indices(kept), self.features)

    def arrange(self, kept: Tensor, features: Tensor) -> Tensor:
        """The state, counted from 0, ``[N]``."""
        return kept - self.start


class MultiDiscreteObservations(Observations):
    """``MultiDiscrete``: a one-hot vector for each index, side by side."""

    dtype = np.int64

    def __init__(self, sizes: np.ndarray[Any, Any], start: np.ndarray[Any, Any]) -> None:
        self._space_shape, self._start = sizes.shape, start.reshape(-1)
        self._sizes = sizes.reshape(-1)
        self.categories = self._sizes.size
        self.shape = (self.categories,)
        self.features = int(self._sizes.sum())
        self.numbers = torch.zeros(self.features, dtype=torch.bool)
        self._from_zero = torch.from_numpy(self._start.astype(np.int64))
        self._offsets = torch.from_numpy(np.cumsum(self._sizes) - self._sizes)

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        """In one row."""
        return np.asarray(batch).reshape(len(batch), -1)

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """See `Observations.read`."""
        seen, several = read_array(observation, self._space_shape, self.dtype)
        seen = seen.reshape(len(seen), -1)
        check_range(seen, self._start, self._start + self._sizes)
        return seen, several

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        """The first indices."""
        return np.tile(self._start.astype(np.int64), (number, 1))

    def indices(self, kept: Tensor) -> Tensor:
        """Those of the first, the second, … one-hot vector."""
        return kept - self._from_zero + self._offsets

    def encode(self, kept: Tensor) -> Tensor:
        """One-hot rows, side by side."""
        return one_hot(self.indices(kept), self.features)

    def arrange(self, kept: Tensor, features: Tensor) -> Tensor:
        """The indices, counted from 0, in the shape of the space."""
        return (kept - self._from_zero).reshape(-1, *self._space_shape)


class MultiBinaryObservations(BoxObservations):
    """``MultiBinary``: the bits, kept and arranged as a box of them would be; never an image."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, np.dtype(np.int8))
        self.numbers, self.images = torch.zeros(self.features, dtype=torch.bool), ()

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """See `Observations.read`."""
        seen, several = super().read(observation)
        check_range(seen, 0, 2)
        return seen, several


@encoding_of.register
def _(kind: Index, space: Any, scale: bool) -> DiscreteObservations:
    return DiscreteObservations(kind.number, kind.first)


@encoding_of.register
def _(kind: Indices, space: Any, scale: bool) -> MultiDiscreteObservations:
    return MultiDiscreteObservations(kind.numbers, kind.first)


@encoding_of.register
def _(kind: Bits, space: Any, scale: bool) -> MultiBinaryObservations:
    return MultiBinaryObservations(kind.shape)
