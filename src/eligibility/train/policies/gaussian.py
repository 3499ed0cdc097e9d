"""``Box``: Williams' Gaussian units, one a number, with learned means and standard deviations.

What is drawn, and kept, is the normal number; what becomes of it on its way to the environment,
clipping or tanh, has no weights in it, so the eligibility is that of the normal number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.rules.location_scale import normal_loc, normal_scale
from eligibility.spaces import Numbers
from eligibility.train.policies.policy import Policy, policy_of


class _NormalNumbers(Policy):
    """Independent normal numbers; the outputs are the means, then ln σ.

    A bounded axis is measured in halves of its range from its middle, so that 0 is the middle and
    ±1 the ends. ln σ does not depend on the observation and starts at 0: σ = 1.
    """

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        # asked for when a policy is made: an audit runs it in double precision
        self.noise_dtype = self.action_dtype = torch.float32
        self.kind = Numbers(low, high)
        self.shape, self.low, self.high = low.shape, low, high
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):  # inf − inf, where it is not bounded
            self._middle = np.where(bounded, low / 2 + high / 2, 0).astype(low.dtype)
            self._half = np.where(bounded, high / 2 - low / 2, 1).astype(low.dtype)
        self.constants = int(np.prod(low.shape))
        self.size = 2 * self.constants
        self.largest_entropy = None
        self.noise_shape = self.action_shape = (self.constants,)

    def fill_noise(self, noise: Tensor, generator: torch.Generator) -> None:
        noise.normal_(generator=generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, log_scale = outputs.chunk(2, -1)
        return mean + log_scale.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.chunk(2, -1)[0]

    def eligibility(self, outputs: Tensor, action: Tensor) -> Tensor:
        """``(y − μ)/σ²`` for μ, and ``σ · ((y − μ)² − σ²)/σ³`` for ln σ."""
        mean, log_scale = outputs.chunk(2, -1)
        scale = log_scale.exp()
        number, loc, wide = action.double(), mean.double(), scale.double()
        at_mean = normal_loc(number, loc, wide).to(outputs.dtype)
        at_scale = normal_scale(number, loc, wide).to(outputs.dtype)
        return torch.cat([at_mean, scale * at_scale], -1)

    def fisher(self, outputs: Tensor) -> Callable[[Tensor], Tensor]:
        """``F = diag(1/σ²)`` at μ and ``diag(2)`` at ln σ."""
        log_scale = outputs.chunk(2, -1)[1]
        return torch.cat([(-2 * log_scale).exp(), torch.full_like(log_scale, 2)], -1).mul

    def divergence(self, outputs: Tensor, other: Tensor) -> Tensor:
        """``Σ ln σ'/σ + (σ² + (μ − μ')²)/(2 σ'²) − ½``; tanh of the numbers changes nothing."""
        mean, log_scale = outputs.chunk(2, -1)
        new_mean, new_log_scale = other.chunk(2, -1)
        wider = new_log_scale - log_scale
        apart = (mean - new_mean) * torch.exp(-new_log_scale)
        return (wider + (torch.exp(-2 * wider) + apart.square() - 1) / 2).sum(-1)

    def _in_units(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Numbers in the environment's units and within its bounds."""
        units = numbers.reshape(-1, *self.shape) * self._half + self._middle
        clipped: np.ndarray[Any, Any] = np.clip(units, self.low, self.high)
        return clipped.astype(self.low.dtype, copy=False)


class GaussianPolicy(_NormalNumbers):
    """Normal numbers, clipped to the bounds of the space, if it has any, by the environment.

    What is drawn beyond an end reaches the environment as that end. To the gradient the clipping
    is a part of the environment: the eligibility is that of the number drawn, which is what keeps
    it unbiased.

    References:
        Williams 1992, Machine Learning 8:229-256, §6, eq. (12), and note 2 for ln σ.
    """

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H = Σ ln σ + ½ ln(2πe)``; its gradient is 0 at μ and 1 at ln σ."""
        mean, log_scale = outputs.chunk(2, -1)
        entropy = _normal_entropy(log_scale)
        return entropy, torch.cat([torch.zeros_like(mean), torch.ones_like(log_scale)], -1)

    def to_environment(self, action: Tensor) -> Any:
        return self._in_units(action.numpy())


class SquashedGaussianPolicy(_NormalNumbers):
    r"""``tanh`` of normal numbers u: inside the bounds, without clipping.

    The density of ``y = tanh u`` is ``N(u; μ, σ) / (1 − y²)``. The correction has no weights in
    it, so it drops out of the eligibility, but not out of the entropy:

        ``H(y) = H(u) + E[ln(1 − tanh² u)]``.

    The `mode` is tanh μ, the median of each number: the density itself may be largest at an end.
    Entropies are in units in which the ends are ±1.

    References:
        Haarnoja et al. 2018, "Soft actor-critic", appendix C, eq. (20) and (21).
    """

    def entropy(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``H(u) + E[ln(1 − tanh² u)]``, the expectation by quadrature.

        Its gradient is ``E[−2 tanh u]`` at μ and ``1 + E[−2 tanh(u) σ z]`` at ln σ.
        """
        mean, log_scale = outputs.chunk(2, -1)
        nodes, weights = (torch.from_numpy(array).to(outputs) for array in _quadrature())
        deviation = log_scale.exp().unsqueeze(-1) * nodes
        numbers = mean.unsqueeze(-1) + deviation
        # 1 − tanh² u = 4 e^{−2|u|} / (1 + e^{−2|u|})²
        far = 2 * numbers.abs()
        correction = (2 * math.log(2) - far - 2 * torch.log1p(torch.exp(-far))) @ weights
        slope = -2 * torch.tanh(numbers)
        at_log_scale = 1 + (slope * deviation) @ weights
        entropy = _normal_entropy(log_scale) + correction.sum(-1)
        return entropy, torch.cat([slope @ weights, at_log_scale], -1)

    def to_environment(self, action: Tensor) -> Any:
        return self._in_units(np.tanh(action.numpy()))


def _normal_entropy(log_scale: Tensor) -> Tensor:
    return (log_scale + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


@cache
def _quadrature() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Nodes and weights for the mean over a standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    return nodes, weights / weights.sum()


@policy_of.register
def _(kind: Numbers, space: Any, squash: bool) -> Policy | None:
    if kind.low.dtype.kind != "f":
        return None
    if not squash:
        return GaussianPolicy(kind.low, kind.high)
    if not (np.isfinite(kind.low) & np.isfinite(kind.high)).all():
        raise InvalidValueError(
            "`squash_actions`",
            f"{space}",
            "lower and upper bounds on every number",
            "omit it, or bound the numbers with gymnasium.wrappers.TransformAction",
        )
    return SquashedGaussianPolicy(kind.low, kind.high)
