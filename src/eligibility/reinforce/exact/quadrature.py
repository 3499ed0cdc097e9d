"""Nodes and masses of scalar continuous laws, the masses differentiable in the parameters.

Gauss-Hermite for a Normal; else the double-exponential rule, which takes smooth densities of any
tail and integrable singularities at the ends (Takahasi and Mori 1974, Publ. RIMS 9:721-741).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from eligibility.errors import InvalidReinforceError, UnsupportedDistributionError
from eligibility.rules.rule import held_tensor

# The outermost node of a half line is at e^±316 spreads: far enough for an end like y^-0.9.
_REACH = 6.0
_HERMITE_NODES = 64
_PIECE_NODES = 200


def quadrature(
    dist: Distribution, nodes: int | None, breaks: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Nodes ``[S, *batch]`` and log-weights ``[S]``: ``Σ_s exp(w_s + log p(y_s)) f(y_s) ≈ E f``."""
    low, high = _interval(dist)
    like = held_tensor(dist)
    if isinstance(dist, Normal) and not breaks:
        flat, log_weights = _gauss_hermite(dist, nodes or _HERMITE_NODES)
    else:
        centre = _first_finite(dist, ("mean", "loc"), 0.0)
        spread = _first_finite(dist, ("stddev", "scale"), 1.0)
        points = {low, high, *(point for point in breaks if low < point < high)}
        if math.isinf(low) and math.isinf(high) and len(points) == 2:
            points.add(centre)
        pieces = [
            _piece(a, b, spread, nodes or _PIECE_NODES)
            for a, b in itertools.pairwise(sorted(points))
        ]
        flat, log_weights = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        inside = (flat > low) & (flat < high)
        flat, log_weights = flat[inside], log_weights[inside]
    return flat.to(like).reshape(-1, *dist.batch_shape), log_weights.to(like)


def _gauss_hermite(dist: Normal, nodes: int) -> tuple[Tensor, Tensor]:
    """The weights of the rule hold the density at the current parameters already: it is divided."""
    z, weights = (torch.as_tensor(array) for array in np.polynomial.hermite_e.hermegauss(nodes))
    loc, scale = float(dist.loc.detach()), float(dist.scale.detach())
    # log density = −z²/2 − log(scale √2π), and the weights sum to √2π.
    return loc + scale * z, weights.log() + z.square() / 2 + math.log(scale)


def _piece(low: float, high: float, spread: float, nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes in (low, high) and log-weights: tanh-sinh if both ends are finite, else exp-sinh."""
    t = torch.linspace(-_REACH, _REACH, nodes, dtype=torch.float64)
    step = 2 * _REACH / (nodes - 1)
    u = math.pi / 2 * t.sinh()
    log_du = (step * math.pi / 2 * t.cosh()).log()
    if math.isfinite(low) and math.isfinite(high):
        half = (high - low) / 2
        # Distances from the nearer end keep their digits where tanh(u) would round to ±1.
        distance = 2 * half * torch.sigmoid(-2 * u.abs())
        values = torch.where(u < 0, low + distance, high - distance)
        log_sech_squared = -2 * (u.abs() + torch.log1p(torch.exp(-2 * u.abs())) - math.log(2))
        return values, log_du + math.log(half) + log_sech_squared
    distance = spread * u.exp()
    values = low + distance if math.isfinite(low) else high - distance
    return values, log_du + distance.log()


def _interval(dist: Distribution) -> tuple[float, float]:
    """The ends of the support."""
    support = dist.support
    if support is None or support.is_discrete:
        raise UnsupportedDistributionError(
            "`policy`",
            f"{type(dist).__name__}, with infinitely many outcomes",
            "a finite support, or a scalar continuous law",
            "build a Law from the outcomes that matter",
        )
    bounds = [getattr(support, f"{end}_bound", None) for end in ("lower", "upper")]
    if any(isinstance(bound, Tensor) and bound.requires_grad for bound in bounds):
        raise InvalidReinforceError(
            f"support of {type(dist).__name__}",
            "a bound that requires a gradient",
            "a support that does not move with the parameters",
            "E[eligibility] is not 0 there; detach the bound, or reparameterise",
        )
    low, high = bounds
    return (
        -math.inf if low is None else float(torch.as_tensor(low)),
        math.inf if high is None else float(torch.as_tensor(high)),
    )


def _first_finite(dist: Distribution, names: Sequence[str], default: float) -> float:
    """The first of these attributes that exists and is finite."""
    for name in names:
        try:
            number = float(torch.as_tensor(getattr(dist, name)).detach())
        except (AttributeError, NotImplementedError):
            continue
        if math.isfinite(number):
            return number
    return default
