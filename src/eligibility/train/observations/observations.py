"""The interface between an environment's observations and a network's inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.spaces import Kind


@dataclass(frozen=True)
class Image:
    """Where in the encoded features an image lies."""

    start: int  # the first of its features
    shape: tuple[int, ...]  # its axes in the order of the environment, such as ``(84, 84, 3)``
    channel_axis: int | None  # which of them is the colour; None: there is none

    @property
    def stop(self) -> int:
        """The first feature after it."""
        return self.start + int(np.prod(self.shape))

    def channels_first(self, features: Tensor) -> Tensor:
        """The image of each row of features ``[N, features]``, as ``[N, C, H, W]``."""
        image = features[:, self.start : self.stop].reshape(-1, *self.shape)
        if self.channel_axis is None:
            return image.unsqueeze(1)
        return image.movedim(self.channel_axis + 1, 1)


class Observations(ABC):
    """How observations are kept in a rollout, and what of them a network sees.

    ``N`` is any number of observations. One that is *kept* is an array of one dtype, whatever the
    space; one that is *encoded* is a row of float32 features.
    """

    shape: tuple[int, ...]  # the shape of one observation as kept
    dtype: type[np.generic]
    features: int  # the number of features of one observation as encoded
    # Which features are numbers on their own scale, and worth normalising: bool ``[features]``. The
    # others are bits, already 0 or 1.
    numbers: Tensor
    images: tuple[Image, ...] = ()  # the images among the features
    categories: int = 0  # for a space of indices only, the number of them; else 0

    @abstractmethod
    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        """The observations of a vector environment, as kept: ``[N, *shape]``. May be a view."""

    @abstractmethod
    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """A user's observation, or several along a first axis, as kept; and whether several."""

    @abstractmethod
    def encode(self, kept: Tensor) -> Tensor:
        """The features ``[*N, features]`` of observations as kept, ``[*N, *shape]``."""

    @abstractmethod
    def arrange(self, kept: Tensor, features: Tensor) -> Any:
        """The observation as tensors in the form of its space, for a network of the user's own.

        Numbers and bits are taken from the features (scaled, and normalised if that is asked
        for), indices from what was kept, counted from 0.
        """

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        """Some observation of the space, ``number`` times, as kept."""
        return np.zeros((number, *self.shape), self.dtype)

    def forbidden(self, kept: Tensor) -> Tensor | None:
        """What to add to a network's outputs for a mask of the actions; None: there is no mask."""
        return None

    def indices(self, kept: Tensor) -> Tensor:
        """Which features are 1, ``[*N, categories]``: the same as `encode`, without the zeros."""
        raise NotImplementedError(f"{type(self).__name__} has features other than one-hot ones")


@singledispatch
def encoding_of(kind: Kind | None, space: Any, scale: bool) -> Observations | None:
    """The encoding of a kind of observations, registered next to it; None if there is none."""
    return None


def read_array(
    observation: Any, shape: tuple[int, ...], dtype: type[np.generic]
) -> tuple[np.ndarray[Any, Any], bool]:
    """An array of observations of a space with this shape, ``[N, *shape]``; whether several."""
    whole = np.issubdtype(dtype, np.integer)
    try:
        seen = np.asarray(observation)
    except ValueError:  # a ragged list
        seen = np.empty(0, object)
    if seen.dtype.kind not in ("biu" if whole else "biuf"):
        raise InvalidTypeError(
            "`observation`",
            f"{type(observation).__name__} of {seen.dtype}",
            f"{'whole numbers' if whole else 'numbers'} of shape {list(shape)}",
            "pass what the environment returned",
        )
    batch = seen.ndim - len(shape)
    if batch not in (0, 1) or seen.shape[batch:] != shape:
        raise ShapeError(
            "`observation`",
            f"shape {list(seen.shape)}",
            f"{list(shape)}, or several of them along a first axis",
            "pass what the environment returned",
        )
    if whole:
        limits = np.iinfo(np.dtype(dtype).name)
        check_range(seen, limits.min, limits.max + 1)
    seen = seen.astype(dtype)
    return (seen, True) if batch else (seen[None], False)


def check_range(seen: np.ndarray[Any, Any], low: Any, high: Any) -> None:
    """Raise unless every whole number is in ``[low, high)``."""
    wrong = (seen < low) | (seen >= high)
    if wrong.any():
        raise InvalidValueError(
            "`observation`",
            str(seen[wrong][0]),
            f"whole numbers in [{low}, {high})" if np.ndim(high) == 0 else "indices of the space",
            "pass what the environment returned",
        )


def one_hot(indices: Tensor, features: int) -> Tensor:
    """Rows of 0 and 1, float32 ``[*N, features]``, from the indices of the ones ``[*N, parts]``."""
    return torch.zeros(*indices.shape[:-1], features).scatter(-1, indices, 1.0)
