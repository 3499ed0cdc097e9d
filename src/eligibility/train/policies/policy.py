"""The interface between the network's outputs and the environment's actions.

A policy has no weights. It says what the network's outputs mean: how an action is drawn from
them, and what gradient an action sends back to them, Williams' characteristic eligibility.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.spaces import Kind


class Policy(ABC):
    """The interface. ``N`` is any number of steps, ``P`` the network's outputs."""

    kind: Kind  # kind of the action space; a composite has those of its parts
    size: int  # P, the number of outputs that the network must have
    # How many of them, the last ones, are separate weights and do not depend on the observation.
    constants: int = 0
    # The entropy of the uniform policy in nats; None where there is none.
    largest_entropy: float | None
    noise_shape: tuple[int, ...]  # the shape of the noise that one action consumes
    noise_dtype: torch.dtype = torch.float32
    action_shape: tuple[int, ...]  # the shape of one action as stored
    action_dtype: torch.dtype  # its dtype as stored

    @property
    def leaves(self) -> list[Policy]:
        """Those of the parts of a composite; itself otherwise."""
        return [self]

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """The codes uint8 ``[N, P]`` of N masks, each as the environment gives it."""
        return self.kind.codes(masks)

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where nothing is allowed, bool ``[N]``."""
        return self.kind.stuck(codes)

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
    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``u ↦ F u`` for ``[N, P]``: the Fisher information E[e eᵀ] at each row of outputs.

        What all products share is computed once, here.
        """

    @abstractmethod
    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``KL(π ‖ π')`` in nats, ``[N]``, of the policies with these outputs ``[N, P]``."""

    @abstractmethod
    def to_environment(self, action: Tensor) -> Any:
        """The actions in the form that the vector environment takes."""

    def first(self, actions: Any) -> Any:
        """The first action of those that `to_environment` has made."""
        return actions[0]


@singledispatch
def policy_of(kind: Kind | None, space: Any, squash: bool) -> Policy | None:
    """The policy of a kind of actions, registered next to it; None if there is none."""
    return None
