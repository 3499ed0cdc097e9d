"""``Discrete`` and ``MultiDiscrete``: one index, or several independent ones.

Sampling is Gumbel-max: ``argmax(z + g)`` with independent standard Gumbel g draws from softmax(z)
exactly, and the noise of many steps can be drawn before the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.ops.backends import plain
from eligibility.rules import categorical
from eligibility.spaces import Index, Indices
from eligibility.train.policies.parts import CompositePolicy
from eligibility.train.policies.policy import Policy, policy_of


class CategoricalPolicy(Policy):
    """One of K actions; the outputs are its logits."""

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64

    def __init__(self, actions: int, start: int = 0) -> None:
        self.kind, self.size = Index(actions, start), actions
        self.largest_entropy = math.log(actions)
        self.noise_shape = (actions,)
        self.start = start

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        fill_gumbel(noise, generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """``argmax(z + g)``."""
        return (outputs + noise).argmax(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``one_hot(a) − softmax(z)``."""
        return categorical.eligibility_logits(action, outputs)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = −Σ π log π`` and ``∂H/∂z_k = −π_k (log π_k + H)``."""
        log_probs = torch.log_softmax(outputs, -1)
        probs = log_probs.exp()
        log_probs = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # 0 ln 0 = 0
        entropy = -(probs * log_probs).sum(-1)
        return entropy, -probs * (log_probs + entropy.unsqueeze(-1))

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = diag(π) − π πᵀ``."""
        probs = torch.softmax(outputs, -1)
        return lambda u: probs * (u - (probs * u).sum(-1, keepdim=True))

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``Σ π (log π − log π')``."""
        return plain.kl(plain.log_pmf(outputs), plain.log_pmf(other))

    def to_environment(self, action: Tensor) -> Any:
        indices = action.numpy()
        return indices + self.start if self.start else indices


class MultiCategoricalPolicy(CompositePolicy):
    """Several independent indices; the outputs are the logits of the first, the second, …"""

    def __init__(self, actions: Any, start: Any = 0) -> None:
        numbers = np.asarray(actions)
        parts = [CategoricalPolicy(int(number)) for number in numbers.reshape(-1)]
        super().__init__(dict(enumerate(parts)))
        self.kind = Indices(numbers, start)
        self.shape, self.start = numbers.shape, np.asarray(start)
        self._sizes = [part.size for part in parts]

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        return self.kind.codes(masks)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        fill_gumbel(noise, generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.stack([z.argmax(-1) for z in torch.split(outputs, self._sizes, -1)], -1)

    def to_environment(self, action: Tensor) -> Any:
        return action.numpy().reshape(-1, *self.shape) + self.start

    def first(self, actions: Any) -> Any:
        return actions[0]


def fill_gumbel(noise: Tensor, generator: torch.Generator) -> None:
    """Standard Gumbel noise: −log of a standard exponential."""
    noise.exponential_(generator=generator).log_().neg_()


@policy_of.register
def _(kind: Index, space: Any, squash: bool) -> Policy:
    return CategoricalPolicy(kind.number, kind.first)


@policy_of.register
def _(kind: Indices, space: Any, squash: bool) -> Policy:
    return MultiCategoricalPolicy(kind.numbers, kind.first)
