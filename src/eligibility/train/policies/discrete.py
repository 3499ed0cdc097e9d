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

from eligibility.rules import categorical
from eligibility.spaces import Index, Indices
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
        log_probs = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # 0 ln 0 = 0
        entropy = -(probs * log_probs).sum(-1)
        return entropy, -probs * (log_probs + entropy.unsqueeze(-1))

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = diag(π) − π πᵀ``."""
        probs = torch.softmax(outputs, -1)
        return lambda u: probs * (u - (probs * u).sum(-1, keepdim=True))

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``Σ π (log π − log π')``."""
        return softmax_divergence(outputs, other)

    def to_environment(self, action: Tensor) -> Any:
        """Indices, counted from the space's start."""
        indices = action.numpy()
        return indices + self.start if self.start else indices


class MultiCategoricalPolicy(Policy):
    """Several independent indices; the outputs are the logits of the first, the second, …"""

    action_dtype = torch.int64

    def __init__(self, actions: Any, start: Any = 0) -> None:
        numbers = np.asarray(actions)
        self.kind = Indices(numbers, start)
        self.shape, self.start = numbers.shape, np.asarray(start)
        self.parts = [CategoricalPolicy(int(number)) for number in numbers.reshape(-1)]
        self._sizes = [part.size for part in self.parts]
        self.size = sum(self._sizes)
        self.largest_entropy = sum(math.log(size) for size in self._sizes)
        self.noise_shape = (self.size,)
        self.action_shape = (len(self.parts),)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Standard Gumbel noise."""
        self.parts[0].fill_noise(noise, generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """``argmax(z + g)`` of each part."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        """``argmax z`` of each part."""
        return torch.stack([z.argmax(-1) for z in torch.split(outputs, self._sizes, -1)], -1)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Those of the parts, side by side: log π is a sum over them."""
        logits = torch.split(outputs, self._sizes, -1)
        return torch.cat(
            [part.eligibility(z, a) for part, z, a in self._zip(logits, action.unbind(-1))], -1
        )

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the parts' entropies; the gradients side by side."""
        both = [part.entropy(z) for part, z in self._zip(torch.split(outputs, self._sizes, -1))]
        entropies, gradients = zip(*both, strict=True)
        return torch.stack(entropies).sum(0), torch.cat(gradients, -1)

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """Those of the parts, side by side: they are independent."""
        logits = torch.split(outputs, self._sizes, -1)
        products = [part.fisher(z) for part, z in self._zip(logits)]

        def product(tangent: Tensor) -> Tensor:
            tangents = torch.split(tangent, self._sizes, -1)
            return torch.cat([own(u) for own, u in zip(products, tangents, strict=True)], -1)

        return product

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """The sum of the parts'."""
        both = (torch.split(z, self._sizes, -1) for z in (outputs, other))
        return torch.stack([part.divergence(*z) for part, *z in self._zip(*both)]).sum(0)

    def to_environment(self, action: Tensor) -> Any:
        """Indices in the shape of the space, counted from its start."""
        return action.numpy().reshape(-1, *self.shape) + self.start

    def _zip(self, *others: Any) -> Any:
        return zip(self.parts, *others, strict=True)


def softmax_divergence(logits: Tensor, other: Tensor) -> Tensor:
    """``Σ π (log π − log π')`` along the last axis; where π is 0 nothing is added."""
    log_probs = torch.log_softmax(logits, -1)
    gap = log_probs - torch.log_softmax(other, -1)
    return torch.where(log_probs == -math.inf, 0.0, log_probs.exp() * gap).sum(-1)


@policy_of.register
def _(kind: Index, space: Any, squash: bool) -> Policy:
    return CategoricalPolicy(kind.number, kind.first)


@policy_of.register
def _(kind: Indices, space: Any, squash: bool) -> Policy:
    return MultiCategoricalPolicy(kind.numbers, kind.first)
