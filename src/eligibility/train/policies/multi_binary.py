"""``MultiBinary``: Williams' Bernoulli-logistic units, one a bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from eligibility.rules import bernoulli
from eligibility.spaces import Bits
from eligibility.train.policies.policy import Policy, policy_of

# Log-odds from which σ(−l) is 0 in every dtype.
_CERTAIN = 1e4


class BernoulliPolicy(Policy):
    """Independent bits; the outputs are their log-odds.

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (7).
    """

    action_dtype = torch.int8

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.kind, self.shape = Bits(shape), shape
        self.size = int(np.prod(shape))
        self.largest_entropy = self.size * math.log(2)
        self.noise_shape = self.action_shape = (self.size,)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Standard logistic noise: the log-odds of a uniform number."""
        noise.uniform_(generator=generator).logit_()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """1 where ``l + noise > 0``, which has probability σ(l)."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        """1 where ``l > 0``."""
        return (outputs > 0).to(self.action_dtype)

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``y − σ(l)``."""
        return bernoulli.eligibility_logits(action, outputs)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = Σ softplus(l) − l σ(l)`` and ``∂H/∂l = −l σ(l) σ(−l)``."""
        outputs = outputs.clamp(-_CERTAIN, _CERTAIN)  # where a bit is certain, 0 · ∞ = 0
        ones = torch.sigmoid(outputs)
        entropy = (softplus(outputs) - outputs * ones).sum(-1)
        return entropy, -outputs * ones * torch.sigmoid(-outputs)

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = diag(σ(l) σ(−l))``."""
        return (torch.sigmoid(outputs) * torch.sigmoid(-outputs)).mul

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``Σ σ(l) (l − m) − softplus(l) + softplus(m)``."""
        own, new = (z.clamp(-_CERTAIN, _CERTAIN) for z in (outputs, other))
        return (torch.sigmoid(own) * (own - new) - softplus(own) + softplus(new)).sum(-1)

    def to_environment(self, action: Tensor) -> Any:
        """Bits in the shape of the space."""
        return action.numpy().reshape(-1, *self.shape)


@policy_of.register
def _(kind: Bits, space: Any, squash: bool) -> Policy:
    return BernoulliPolicy(kind.shape)
