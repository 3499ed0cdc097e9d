"""``MultiBinary``: Williams' Bernoulli-logistic units, one a bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from eligibility.errors import InvalidValueError
from eligibility.rules import bernoulli
from eligibility.train.policies.policy import ALWAYS, FREE, NEVER, Policy, read_masks

# Log-odds from which σ(−l) is 0 in every dtype.
_CERTAIN = 1e4
_NEITHER = 3
_MASK = "give one number a bit: 0 and 1 are what it must be, 2 leaves it free"


class BernoulliPolicy(Policy):
    """Independent bits; the outputs are their log-odds.

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (7).
    """

    action_dtype = torch.int8

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = int(np.prod(shape))
        self.largest_entropy = self.size * math.log(2)
        self.noise_shape = self.action_shape = (self.size,)

    def codes(self, masks: Any) -> np.ndarray[Any, Any]:
        """A mask is one number a bit, as Gymnasium has it: 0 and 1 are the bit, 2 leaves it free.

        Or two numbers a bit, as sb3-contrib has it: whether 0 and whether 1 is allowed.
        """
        rows = [np.reshape(mask, -1) for mask in masks]
        if rows and rows[0].size == 2 * self.size != self.size:
            pairs = read_masks(rows, 2 * self.size, _MASK).reshape(-1, self.size, 2) != 0
            zero, one = pairs[..., 0], pairs[..., 1]
            codes = np.select([zero & one, one, zero], [FREE, ALWAYS, NEVER], _NEITHER)
            return np.asarray(codes, np.uint8)
        bits = read_masks(rows, self.size, _MASK)
        if not np.isin(bits, (0, 1, 2)).all():
            raise InvalidValueError("the action mask", "other numbers", "0, 1 and 2", _MASK)
        return np.asarray(np.array([NEVER, ALWAYS, FREE], np.uint8)[bits.astype(int)])

    def stuck(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where a bit may be neither 0 nor 1."""
        return np.asarray((codes == _NEITHER).any(-1))

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

    def fisher_product(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        """``F = diag(σ(l) σ(−l))``."""
        return torch.sigmoid(outputs) * torch.sigmoid(-outputs) * tangent

    def to_environment(self, action: Tensor) -> Any:
        """Bits in the shape of the space."""
        return action.numpy().reshape(-1, *self.shape)
