"""Masks of the actions that an environment forbids: where they come from.

The first of these is taken: the entry ``action_mask`` of a ``Dict`` observation (PettingZoo's
habit), the method ``action_masks()`` (sb3-contrib's), ``info["action_mask"]`` (Gymnasium's). What a
mask looks like depends on the action space: see `codes` in `eligibility.spaces`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv, VectorWrapper

from eligibility.errors import EligibilityError
from eligibility.spaces import FREE
from eligibility.train.observations.masked import Masked, check_not_stuck
from eligibility.train.policies import Policy

KEY = "action_mask"
_METHOD = "action_masks"


def with_masks(
    vector: VectorEnv[Any, Any, Any], policy: Policy
) -> VectorEnv[Any, Any, Any] | MaskedVector:
    """The environments with masks added to their observations; unchanged if they have none."""
    source = _source(vector)
    return vector if source is None else MaskedVector(vector, policy, source)


def observed_mask(space: Any) -> bool:
    """Whether the observations have a mask among them."""
    return isinstance(space, Dict) and KEY in space.spaces


class MaskedVector(VectorWrapper[Any, Any, Any]):
    """A vector environment whose observations are `Masked`; ``source`` is one of `_source`."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], policy: Policy, source: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(env)
        self._policy, self._source = policy, source

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, info = self.env.reset(seed=seed, options=options)
        self._going = np.ones(self.num_envs, bool)
        return self._masked(observations, info), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._going &= ~(np.asarray(terminated) | np.asarray(truncated))
        return self._masked(observations, info), rewards, terminated, truncated, info

    def _masked(self, observations: Any, info: dict[str, Any]) -> Masked:
        masks = self._source(observations, info)
        codes = np.full((self.num_envs, self._policy.size), FREE, np.uint8)
        if isinstance(masks, Mapping):
            codes = self._policy.codes(masks)
            codes[~self._going] = FREE
        elif masks is not None:
            rows = [i for i in np.flatnonzero(self._going) if masks[i] is not None]
            if rows:
                plain = isinstance(masks, np.ndarray)
                codes[rows] = self._policy.codes(masks[rows] if plain else [masks[i] for i in rows])
        check_not_stuck(self._policy, codes, "the action mask")
        return Masked(observations, codes)


def _source(vector: VectorEnv[Any, Any, Any]) -> Callable[[Any, Any], Any] | None:
    """What finds all masks, with None for an environment that is free; None: there are none."""
    if observed_mask(vector.single_observation_space):
        return lambda observations, info: observations[KEY]
    several: list[Any] = getattr(vector, "envs", [])
    if several and all(environment.has_wrapper_attr(_METHOD) for environment in several):
        return lambda observations, info: [e.get_wrapper_attr(_METHOD)() for e in several]
    if callable(getattr(vector, _METHOD, None)):
        return lambda observations, info: getattr(vector, _METHOD)()
    if KEY in _first_info(several[0] if several else vector):
        return _from_info
    return None


def _first_info(environment: Any) -> Any:
    try:
        return environment.reset(seed=0)[1]
    except Exception as error:  # an environment is anybody's code
        raise EligibilityError(
            "the environment's reset",
            f"{type(error).__name__}: {error}",
            "no exception",
            "correct the environment",
        ) from error


def _from_info(observations: Any, info: Any) -> Any:
    """A vector environment's info has the values in an array, and ``_key``: who has one."""
    masks, present = info.get(KEY), info.get(f"_{KEY}")
    if masks is None or isinstance(masks, Mapping) or present is None or present.all():
        return masks
    return [mask if there else None for mask, there in zip(masks, present, strict=True)]
