"""The interface between the network's outputs and the environment's actions.

A policy has no weights. It says what the network's outputs mean: how an action is drawn from
them, and what gradient an action sends back to them, Williams' characteristic eligibility.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, ShapeError

# What a mask says of an output, apart from 1 for "free": its logit is −∞, or +∞.
NEVER, FREE, ALWAYS = 0, 1, 2


class Policy(ABC):
    """The interface. ``N`` is any number of steps, ``P`` the network's outputs.

    Attributes:
        size: P, the number of outputs that the network must have.
        constants: How many of them, the last ones, are weights of their own and do not depend on
            the observation.
        largest_entropy: The entropy of the uniform policy in nats; None where there is none.
        noise_shape: The shape of the noise that one action consumes.
        noise_dtype: Its dtype.
        action_shape: The shape of one action as stored.
        action_dtype: Its dtype as stored.
    """

    size: int
    constants: int = 0
    largest_entropy: float | None
    noise_shape: tuple[int, ...]
    noise_dtype: torch.dtype = torch.float32
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype

    # A mask of actions is read as one code an output; where it forbids, the output becomes −∞, and
    # from there on everything else follows: π = 0, e = 0, no share in the entropy.

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """The codes uint8 ``[N, P]`` of N masks, each as the environment gives it.

        Raises:
            ShapeError: They do not fit the action space.
            InvalidTypeError: They are not numbers, or actions of this kind cannot be masked.
        """
        raise InvalidTypeError(
            "the action mask",
            "one for numbers of a Box",
            "none: there is nothing to choose from",
            "omit it, or None for this part of a Dict or Tuple",
        )

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where nothing is allowed, bool ``[N]``."""
        return np.zeros(len(codes), bool)

    @abstractmethod
    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Draw the noise of many steps at once, in place: ``[N, *noise_shape]``."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions ``[N, *action_shape]`` that outputs ``[N, P]`` and noise determine."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The most probable actions ``[N, *action_shape]``."""

    @abstractmethod
    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``∂ log π(action) / ∂ outputs``, ``[N, P]``."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The entropy ``[N]`` in nats, and its gradient at the outputs ``[N, P]``."""

    @abstractmethod
    def fisher_product(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        """``F u``: the Fisher information E[e eᵀ] at each row of outputs, times ``[N, P]``."""

    @abstractmethod
    def to_environment(self, action: Tensor) -> Any:
        """The actions in the form that the vector environment takes."""

    def first(self, actions: Any) -> Any:
        """The first action of those that `to_environment` has made."""
        return actions[0]


def read_masks(masks: Any, width: int, meaning: str) -> np.ndarray[Any, Any]:
    """N masks of ``width`` numbers as an array ``[N, width]``.

    Raises:
        ShapeError, InvalidTypeError: They are not that.
    """
    try:
        array = np.asarray(masks)
    except ValueError:  # rows of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(
            "the action mask", f"{array.dtype} values", f"{width} numbers", meaning
        )
    if array.ndim < 2 or array[0].size != width:
        raise ShapeError("the action mask", f"shape {list(array.shape[1:])}", f"[{width}]", meaning)
    return array.reshape(len(array), width)
