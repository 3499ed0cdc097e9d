"""Observations that come with a mask of the actions: kept together, so that they stay together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.spaces import FREE
from eligibility.train.observations.observations import Observations
from eligibility.train.policies import Policy


class Masked(NamedTuple):
    """What a vector environment with masks returns."""

    observation: Any  # as without masks
    codes: np.ndarray[Any, Any]  # what is allowed, uint8 ``[B, P]``; see `Policy.codes`


class MaskedObservations(Observations):
    """The observation, and behind it one code for each of the policy's outputs.

    A network adds `forbidden` to its outputs, in a rollout and in the gradient alike. ``key`` is
    the entry of a ``Dict`` observation that is its mask, if it has one.
    """

    def __init__(self, observations: Observations, policy: Policy, key: str | None = None) -> None:
        self._inner, self._policy, self._key = observations, policy, key
        self._width = int(np.prod(observations.shape))
        self.shape, self.dtype = (self._width + policy.size,), observations.dtype
        self.features, self.numbers = observations.features, observations.numbers
        self.images, self.categories = observations.images, observations.categories

    def keep(self, batch: Any) -> np.ndarray[Any, Any]:
        """`Masked` observations in one row each; others with nothing forbidden."""
        if isinstance(batch, Masked):
            return self._join(self._inner.keep(batch.observation), batch.codes)
        return self._free(self._inner.keep(batch))

    def read(self, observation: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """See `Observations.read`; with the mask in the observation, or nothing forbidden."""
        if self._key is not None and isinstance(observation, Mapping) and self._key in observation:
            return self.read_masked(observation, observation[self._key])
        rows, several = self._inner.read(observation)
        return self._free(rows), several

    def read_masked(self, observation: Any, masks: Any) -> tuple[np.ndarray[Any, Any], bool]:
        """See `Observations.read`; ``masks`` is one if the observation is one, else one each."""
        rows, several = self._inner.read(observation)
        codes = self._policy.codes(masks if several else [masks])
        if len(codes) != len(rows):
            raise ShapeError(
                "`action_masks`",
                f"{len(codes)} masks",
                f"{len(rows)}",
                "pass one for each observation",
            )
        check_not_stuck(self._policy, codes, "`action_masks`")
        return self._join(rows, codes), several

    def blank(self, number: int) -> np.ndarray[Any, Any]:
        return self._free(self._inner.blank(number))

    def encode(self, kept: Tensor) -> Tensor:
        return self._inner.encode(self._own(kept))

    def arrange(self, kept: Tensor, features: Tensor) -> Any:
        return self._inner.arrange(self._own(kept), features)

    def indices(self, kept: Tensor) -> Tensor:
        return self._inner.indices(self._own(kept))

    def forbidden(self, kept: Tensor) -> Tensor:
        """What to add to the outputs: 0; −∞ where 0 is forced; +∞ where 1 is. ``[N, P]``."""
        values = torch.tensor([-math.inf, 0.0, math.inf])
        return values[kept[..., self._width :].long()]

    def _own(self, kept: Tensor) -> Tensor:
        return kept[..., : self._width].reshape(*kept.shape[:-1], *self._inner.shape)

    def _free(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._join(rows, np.full((len(rows), self._policy.size), FREE))

    def _join(
        self, rows: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        flat = rows.reshape(len(rows), -1)
        return np.concatenate([flat, codes.astype(self.dtype)], -1)


def check_not_stuck(policy: Policy, codes: np.ndarray[Any, Any], what: str) -> None:
    """Raise if an environment leaves nothing to choose from."""
    stuck = policy.stuck(codes)
    if stuck.any():
        raise InvalidValueError(
            f"{what} of environment {int(stuck.argmax())}",
            "a mask that forbids every action",
            "at least one action that is allowed",
            "correct the environment",
        )
