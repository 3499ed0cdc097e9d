"""What stands for a continuous draw: few values whose moments are those of its distribution.

Sums over the n nodes of Gauss-Hermite quadrature are exact for polynomials in a normal number up to
degree 2n − 1. Those over a beta number are exact for its eligibilities, ln x and ln(1 − x) without
their means. A program that clips or squashes its actions makes no polynomials of them, so the audit
looks twice: at values off the nodes, far ones too, which no rule that was found may fail to
explain, and with more nodes, which shows how far the sums can be trusted.
"""

from __future__ import annotations

import math

import numpy as np

COARSE, FINE = 3, 5
# How many standard deviations of ln x/(1 − x) the outer ones of three beta nodes lie from its mean,
# and the share of such a triple. As x becomes normal, the fourth moment becomes right, too.
_TRIPLES = {COARSE: ((math.sqrt(3.0), 1.0),), FINE: ((1.2, 0.676), (2.5, 0.324))}
_FAR = 4.0  # standard deviations: how far the values off the nodes go


def rule(nodes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes of a standard normal number, and their weights, which sum to 1."""
    if nodes == COARSE:
        return (-math.sqrt(3.0), 0.0, math.sqrt(3.0)), (1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0)
    found, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return tuple(found.tolist()), tuple((weights / weights.sum()).tolist())


def beta_rule(nodes: int, alpha: float, beta: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes of a number on (0, 1) with the density x^(α−1) (1 − x)^(β−1), and their weights."""
    own, other, both = (_digamma(number) for number in (alpha, beta, alpha + beta))
    shares: dict[float, float] = {}
    for far, share in _TRIPLES[nodes]:
        places = [beta_value(far * side, alpha, beta) for side in (-1.0, 0.0, 1.0)]
        moments = np.array([np.ones(3), np.log(places), np.log1p(np.negative(places))])
        weights = np.linalg.solve(moments, [1.0, own - both, other - both])
        for place, weight in zip(places, weights.tolist(), strict=True):
            shares[place] = shares.get(place, 0.0) + share * weight
    return tuple(shares), tuple(shares.values())


def beta_value(standard: float, alpha: float, beta: float) -> float:
    """The x whose ln x/(1 − x) is ``standard`` standard deviations above its mean."""
    deviation = math.sqrt(_digamma(alpha, 1) + _digamma(beta, 1))
    mean = _digamma(alpha) - _digamma(beta)
    return 1.0 / (1.0 + math.exp(-mean - standard * deviation))


def _digamma(number: float, order: int = 0) -> float:
    """ψ, or its derivative of an ``order``."""
    import torch  # the audit's own process does without

    return float(torch.special.polygamma(order, torch.tensor(number, dtype=torch.float64)))


def off_the_nodes(uniform: float) -> float:
    """A value of a standard normal number between the nodes, from one that is uniform on (0, 1)."""
    return _FAR * (2.0 * uniform - 1.0)
