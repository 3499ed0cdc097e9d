"""From the network's outputs to actions and back: one policy an action space, in closed form.

A policy has no weights. It says what the network's outputs mean: how an action is drawn from
them, and what gradient an action sends back to them, Williams' characteristic eligibility.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError
from eligibility.rules import categorical


class Policy(ABC):
    """The interface. ``N`` is any number of steps, ``P`` the network's outputs.

    Attributes:
        size: P, the number of outputs that the network must have.
        noise_shape: The shape of the noise that one action consumes.
        action_shape: The shape of one action as stored.
        action_dtype: Its dtype as stored.
    """

    size: int
    noise_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype

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
    def to_environment(self, action: Tensor) -> Any:
        """The actions in the form that the vector environment takes."""


class CategoricalPolicy(Policy):
    """``Discrete(K)``: one of K actions, the outputs are its logits.

    Sampling is Gumbel-max: ``argmax(z + g)`` with independent standard Gumbel g draws from
    softmax(z) exactly, and the noise of many steps can be drawn before the first.
    """

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64

    def __init__(self, actions: int, start: int = 0) -> None:
        self.size = actions
        self.noise_shape = (actions,)
        self.start = start

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Standard Gumbel noise: −log of a standard exponential."""
        noise.exponential_(generator=generator).log_().neg_()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """``argmax(z + g)``."""
        return (outputs + noise).argmax(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        """``argmax z``."""
        return outputs.argmax(-1)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``one_hot(a) − softmax(z)``."""
        return categorical.eligibility_logits(action, outputs)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = −Σ π log π`` and ``∂H/∂z_k = −π_k (log π_k + H)``."""
        log_probs = torch.log_softmax(outputs, -1)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(-1)
        return entropy, -probs * (log_probs + entropy.unsqueeze(-1))

    def to_environment(self, action: Tensor) -> Any:
        """Indices, counted from the space's start."""
        indices = action.numpy()
        return indices + self.start if self.start else indices


def policy_for(space: Any) -> Policy:
    """The policy for the action space of one environment.

    Raises:
        InvalidTypeError: None is written for this kind of space.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return CategoricalPolicy(int(space.n), int(space.start))
    raise InvalidTypeError(
        "the action space",
        str(space),
        "Discrete",
        "wrap the environment so that it takes an index",
    )
