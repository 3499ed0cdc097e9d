"""``Box``, ``Discrete``, ``MultiDiscrete`` and ``MultiBinary``: numbers, indices and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.spaces import Bits, Index, Indices, Numbers
from eligibility.train.observations.observations import (
    Image,
    Observations,
    check_range,
    encoding_of,
    one_hot,
    read_array,
)

# An image narrower than this has nothing for a convolution to slide over.
_NARROWEST_IMAGE = 5


class BoxObservations(Observations):
    """The numbers as they are, in one row; those of uint8 are divided by 255.

    A box of uint8 with two axes, or of any dtype with three, is an image: the shortest of its first
    and last axis is the colour. With ``bounds`` each number that has both is measured from the
    middle of its range, in units of range/√12: one that were uniform there would have mean 0 and
    variance 1.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        bounds: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self._space_shape = shape
        self.features = int(np.prod(shape))
        self.shape = (self.features,)
        self.dtype = dtype.type if dtype in (np.uint8, np.int8) else np.float32
        self.numbers = torch.ones(self.features, dtype=torch.bool)
        self.images = _images(shape, self.dtype)
        self._units = None
        if bounds is not None and self.dtype == np.float32:
            self._units = _middle_and_spread(*(bound.reshape(-1) for bound in bounds))

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        array = np.asarray(batch)
        rows = array if array.ndim == 2 else array.reshape(len(array), -1)
        if self._units is None:
            return rows
        middle, spread = self._units
        measured: np.ndarray[Any, Any] = (rows - middle) / spread
        return measured

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        seen, several = read_array(observation, self._space_shape, self.dtype)
        return self.keep(seen), several

    def encode(self, kept: Tensor) -> Tensor:
        if kept.dtype == torch.uint8:
            return kept / 255
        return kept.float() if kept.dtype == torch.int8 else kept

    def arrange(self, kept: Tensor, features: Tensor) -> Tensor:
        return features.reshape(-1, *self._space_shape)


def _middle_and_spread(
    low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Mean and standard deviation of a uniform number; 0 and 1 where a bound is missing."""
    low, high = low.astype(float), high.astype(float)
    # The largest numbers of float32 stand for "without bound" in some environments.
    bounded = (low < high) & (high - low <= np.finfo(np.float32).max)
    with np.errstate(invalid="ignore", over="ignore"):  # inf − inf, where it is not bounded
        middle = np.where(bounded, (low + high) / 2, 0)
        spread = np.where(bounded, (high - low) / 12**0.5, 1)
    return middle.astype(np.float32), spread.astype(np.float32)


def _images(shape: tuple[int, ...], dtype: type[np.generic]) -> tuple[Image, ...]:
    channel_axis: int | None = None
    if len(shape) == 3:
        channel_axis = 0 if shape[0] < shape[2] else 2
    elif len(shape) != 2 or dtype != np.uint8:
        return ()
    sides = [size for axis, size in enumerate(shape) if axis != channel_axis]
    return (Image(0, shape, channel_axis),) if min(sides) >= _NARROWEST_IMAGE else ()


@encoding_of.register
def _(kind: Numbers, space: Any, scale: bool) -> BoxObservations:
    bounds = (kind.low, kind.high) if scale else None
    return BoxObservations(tuple(space.shape), space.dtype, bounds)


class IndexObservations(Observations):
    """``Discrete`` and ``MultiDiscrete``: a one-hot vector for each index, side by side."""

    dtype = np.int64

    def __init__(self, sizes: np.ndarray[Any, Any], start: np.ndarray[Any, Any]) -> None:
        self._start, self._end, flat = start, start + sizes, sizes.reshape(-1)
        self.categories = flat.size
        self.shape = (self.categories,)
        self.features = int(flat.sum())
        self.numbers = torch.zeros(self.features, dtype=torch.bool)
        self._from_zero = torch.from_numpy(start.reshape(-1).astype(np.int64))
        self._offsets = torch.from_numpy(np.cumsum(flat) - flat)

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        return np.asarray(batch).reshape(len(batch), -1)

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        seen, several = read_array(observation, self._start.shape, self.dtype)
        check_range(seen, self._start, self._end)
        return self.keep(seen), several

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        return self._from_zero.repeat(number, 1).numpy()

    def indices(self, kept: Tensor) -> Tensor:
        return kept - self._from_zero + self._offsets

    def encode(self, kept: Tensor) -> Tensor:
        return one_hot(self.indices(kept), self.features)

    def arrange(self, kept: Tensor, features: Tensor) -> Tensor:
        return (kept - self._from_zero).reshape(-1, *self._start.shape)


class MultiBinaryObservations(BoxObservations):
    """``MultiBinary``: the bits, kept and arranged as a box of them would be; never an image."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, np.dtype(np.int8))
        self.numbers, self.images = torch.zeros(self.features, dtype=torch.bool), ()

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        seen, several = super().read(observation)
        check_range(seen, 0, 2)
        return seen, several


@encoding_of.register
def _(kind: Index, space: Any, scale: bool) -> IndexObservations:
    return IndexObservations(np.asarray(kind.number), np.asarray(kind.first))


@encoding_of.register
def _(kind: Indices, space: Any, scale: bool) -> IndexObservations:
    return IndexObservations(kind.numbers, kind.first)


@encoding_of.register
def _(kind: Bits, space: Any, scale: bool) -> MultiBinaryObservations:
    return MultiBinaryObservations(kind.shape)
