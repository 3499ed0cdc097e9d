"""``Box``: Williams' Gaussian units, one a number, with learned means and standard deviations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.rules.location_scale import normal_loc, normal_scale
from eligibility.train.policies.policy import Policy


class GaussianPolicy(Policy):
    """Independent normal numbers; the outputs are the means, then ln σ.

    A bounded axis is measured in halves of its range from its middle, so that 0 is the middle and
    ±1 the ends; what is drawn beyond an end reaches the environment as that end. To the gradient
    the clipping is a part of the environment: the eligibility is that of the number drawn, which
    is what keeps it unbiased.

    ln σ does not depend on the observation and starts at 0: σ = 1.

    References:
        Williams 1992, Machine Learning 8:229-256, §6, eq. (12), and note 2 for ln σ.
    """

    action_dtype = torch.float32

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        self.shape, self.low, self.high = low.shape, low, high
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):  # inf − inf, where it is not bounded
            self._middle = np.where(bounded, (low + high) / 2, 0).astype(low.dtype)
            self._half = np.where(bounded, (high - low) / 2, 1).astype(low.dtype)
        self.constants = int(np.prod(low.shape))
        self.size = 2 * self.constants
        self.largest_entropy = None
        self.noise_shape = self.action_shape = (self.constants,)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        """Standard normal noise."""
        noise.normal_(generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """``μ + σ z``."""
        mean, log_scale = outputs.chunk(2, -1)
        return mean + log_scale.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        """``μ``."""
        return outputs.chunk(2, -1)[0]

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``(y − μ)/σ²`` for μ, and ``σ · ((y − μ)² − σ²)/σ³`` for ln σ."""
        mean, log_scale = outputs.chunk(2, -1)
        scale = log_scale.exp()
        at_scale = normal_scale(action, mean, scale)
        return torch.cat([normal_loc(action, mean, scale), scale * at_scale], -1)

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = Σ ln σ + ½ ln(2πe)``; its gradient is 0 at μ and 1 at ln σ."""
        mean, log_scale = outputs.chunk(2, -1)
        entropy = (log_scale + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return entropy, torch.cat([torch.zeros_like(mean), torch.ones_like(log_scale)], -1)

    def fisher_product(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        """``F = diag(1/σ²)`` at μ and ``diag(2)`` at ln σ."""
        log_scale = outputs.chunk(2, -1)[1]
        at_mean, at_log_scale = tangent.chunk(2, -1)
        return torch.cat([at_mean * (-2 * log_scale).exp(), 2 * at_log_scale], -1)

    def to_environment(self, action: Tensor) -> Any:
        """Numbers in the environment's units and within its bounds."""
        units = action.numpy().reshape(-1, *self.shape) * self._half + self._middle
        return np.clip(units, self.low, self.high)
