"""``Dict`` and ``Tuple``: their parts, side by side; and which encoding a space has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import EligibilityError, InvalidTypeError, InvalidValueError, ShapeError
from eligibility.spaces import built_of, kind_of, parts_of
from eligibility.train.domains import shown
from eligibility.train.observations.observations import Observations, encoding_of, one_hot


class CompositeObservations(Observations):
    """The parts of a ``Dict`` (by their keys) or of a ``Tuple`` (by their places), side by side.

    Kept as one row of numbers: uint8 if every part is, else float32, in which indices up to 2²⁴
    are exact.
    """

    def __init__(self, parts: Mapping[str, Observations] | Mapping[int, Observations]) -> None:
        self._parts: dict[Any, Observations] = dict(parts)
        several = list(self._parts.values())
        self._widths = [int(np.prod(part.shape)) for part in several]
        self.shape = (sum(self._widths),)
        small = all(part.dtype == np.uint8 for part in several)
        self.dtype = np.uint8 if small else np.float32
        self.features = sum(part.features for part in several)
        self.numbers = torch.cat([part.numbers for part in several])
        starts = np.cumsum([0] + [part.features for part in several])
        self._starts = [int(start) for start in starts]
        self.images = tuple(
            replace(image, start=image.start + start)
            for part, start in zip(several, self._starts, strict=False)
            for image in part.images
        )
        indices_only = all(part.categories for part in several)
        self.categories = sum(part.categories for part in several) if indices_only else 0

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        rows = [part.keep(batch[key]) for key, part in self._parts.items()]
        return np.concatenate([row.reshape(len(row), -1).astype(self.dtype) for row in rows], -1)

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        keys = list(self._parts)
        if isinstance(keys[0], str):
            complete = isinstance(observation, Mapping) and set(keys) <= set(observation)
            expected = f"a dict with {', '.join(keys)}"
        else:
            complete = isinstance(observation, tuple) and len(observation) == len(keys)
            expected = f"a tuple of {len(keys)}"
        if not complete:
            got = type(observation).__name__
            if isinstance(observation, Mapping) and observation:
                got += f" with {', '.join(sorted(map(str, observation)))}"
            remedy = "pass what the environment returned"
            raise InvalidTypeError("`observation`", got, expected, remedy)
        both = [part.read(observation[key]) for key, part in self._parts.items()]
        if len({(len(seen), several) for seen, several in both}) > 1:
            raise ShapeError(
                "`observation`",
                f"parts with {', '.join(str(len(seen)) for seen, _ in both)} rows",
                "the same number of rows in each part",
                "pass what the environment returned",
            )
        rows = [seen.reshape(len(seen), -1).astype(self.dtype) for seen, _ in both]
        return np.concatenate(rows, -1), both[0][1]

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        rows = [part.blank(number).reshape(number, -1) for part in self._parts.values()]
        return np.concatenate([row.astype(self.dtype) for row in rows], -1)

    def encode(self, kept: Tensor) -> Tensor:
        if self.categories:
            return one_hot(self.indices(kept), self.features)
        return torch.cat([part.encode(own) for part, own in self._split(kept)], -1)

    def indices(self, kept: Tensor) -> Tensor:
        places = zip(self._split(kept), self._starts, strict=False)
        return torch.cat([part.indices(own) + start for (part, own), start in places], -1)

    def arrange(self, kept: Tensor, features: Tensor) -> Any:
        own_features = torch.split(features, [part.features for part in self._parts.values()], -1)
        places = zip(self._parts, self._split(kept), own_features, strict=True)
        arranged = {key: part.arrange(own, wide) for key, (part, own), wide in places}
        return arranged if isinstance(next(iter(arranged)), str) else tuple(arranged.values())

    def _split(self, kept: Tensor) -> Iterator[tuple[Observations, Tensor]]:
        """Each part, and its share of what was kept, in the part's own dtype and shape."""
        several = torch.split(kept, self._widths, -1)
        for part, own in zip(self._parts.values(), several, strict=True):
            dtype = torch.from_numpy(np.empty(0, part.dtype)).dtype
            yield part, own.to(dtype).reshape(*own.shape[:-1], *part.shape)


def observations_for(
    space: Any, keys: tuple[str, ...] | None = None, *, scale: bool = False
) -> Observations:
    """The encoding for the observation space of one environment; of a ``Dict``, of these keys."""
    if keys is None:
        return _encoding(space, scale)
    parts = parts_of(space)
    known = [key for key in parts if isinstance(key, str)]
    for key in keys:
        if key not in known:
            raise InvalidValueError(
                "`observation_keys`",
                shown(key),
                " or ".join(known) or "no keys: the observation space is not a Dict",
                "choose keys of the observation space",
            )
    return CompositeObservations({key: _encoding(parts[key], scale, key) for key in keys})


def _encoding(space: Any, scale: bool, place: str = "") -> Observations:
    """The encoding of a space; ``place`` says where in the whole one it stands."""

    def of_leaf(leaf: Any, at: str) -> Observations:
        encoding = encoding_of(kind_of(leaf), leaf, scale)
        if encoding is None:
            raise _unsupported(leaf, at)
        return encoding

    return built_of(space, of_leaf, CompositeObservations, place)


def _unsupported(space: Any, place: str) -> EligibilityError:
    got = type(space).__name__ if place else str(space)
    return InvalidTypeError(
        f"the observation space at `{place}`" if place else "the observation space",
        got,
        "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
        "exclude it with observation_keys, or wrap the environment in "
        "gymnasium.wrappers.TransformObservation",
    )
