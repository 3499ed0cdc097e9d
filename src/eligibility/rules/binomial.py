"""Binomial: n coins with the same probability p, y of them 1."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Binomial

from eligibility.rules.registry import register_eligibility

_REFERENCE = "n Bernoulli units of Williams 1992, eq. (5) and (7), that share p"


@register_eligibility(Binomial, "probs", equation="(y − n p) / (p (1 − p))", reference=_REFERENCE)
def eligibility_probs(
    value: Tensor, total_count: Tensor, probs: Float[Tensor, "*batch"]
) -> Float[Tensor, ...]:
    r"""Eligibility of the coins' probability, ``y/p − (n − y)/(1 − p)``.

    Args:
        value: The number of ones y in [0, n], shape ``[*samples, *batch]``.
        total_count: The number of coins n, shape ``[*batch]``.
        probs: p in [0, 1], shape ``[*batch]``.

    Returns:
        ∂ log p(y)/∂p, shape ``[*samples, *batch]``; ±∞ for an outcome of probability 0.

    Notes:
        A count of 0 contributes exactly 0, also where p = 0: the limit of ``0·log p``.

    Example:
        >>> eligibility_probs(torch.tensor(0.), torch.tensor(5.), torch.tensor(0.))
        tensor(-5.)
    """
    zeros = total_count - value
    ones_term = torch.where(value == 0, torch.zeros_like(probs), value / probs)
    return ones_term - torch.where(zeros == 0, torch.zeros_like(probs), zeros / (1 - probs))


@register_eligibility(Binomial, "logits", equation="y − n σ(l)", reference=_REFERENCE)
def eligibility_logits(
    value: Tensor, total_count: Tensor, logits: Float[Tensor, "*batch"]
) -> Float[Tensor, ...]:
    r"""Eligibility of the coins' log-odds, ``y − n σ(l) = y σ(−l) − (n − y) σ(l)``.

    Args:
        value: The number of ones y in [0, n], shape ``[*samples, *batch]``.
        total_count: The number of coins n, shape ``[*batch]``.
        logits: The log-odds l, shape ``[*batch]``.

    Returns:
        ∂ log p(y)/∂l, shape ``[*samples, *batch]``.

    Example:
        >>> eligibility_logits(torch.tensor(3.), torch.tensor(4.), torch.tensor(0.))
        tensor(1.)
    """
    return value * torch.sigmoid(-logits) - (total_count - value) * torch.sigmoid(logits)
