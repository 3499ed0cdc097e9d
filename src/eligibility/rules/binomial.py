"""Binomial: n coins with the same probability p, y of them 1."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.distributions import Binomial

from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import weigh_inverse_odds, weigh_odds

# These formulas lose nothing in float32, so they are not widened further.
_register = partial(register_eligibility, working=torch.float32)
_REFERENCE = "n Bernoulli units of Williams 1992, eq. (5) and (7), that share p"
_PROBS = {"y": "value", "n": "total_count", "p": "probs"}
_LOGITS = {"y": "value", "n": "total_count", "l": "logits"}
_binomial = partial(_register, Binomial, reference=_REFERENCE)


def terms_probs(value: Tensor, total_count: Tensor | int, probs: Tensor) -> dict[str, Tensor]:
    """The two terms of ``(y − n p)/(p (1 − p))``; a count of 0 contributes exactly 0."""
    zeros = total_count - value
    return {
        "y/p": torch.where(value == 0, torch.zeros_like(probs), value / probs),
        "−(n − y)/(1 − p)": torch.where(zeros == 0, torch.zeros_like(probs), -zeros / (1 - probs)),
    }


def terms_logits(value: Tensor, total_count: Tensor | int, logits: Tensor) -> dict[str, Tensor]:
    """The two terms of ``y − n σ(l)``."""
    return {"y": value + torch.zeros_like(logits), "−n σ(l)": -total_count * torch.sigmoid(logits)}


@_binomial(
    "probs",
    name="Binomial, probability",
    equation="(y − n p) / (p (1 − p))",
    symbols=_PROBS,
    terms=terms_probs,
)
def eligibility_probs(
    value: Shaped[Tensor, "*#batch"],
    total_count: Shaped[Tensor, "*#batch"],
    probs: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*#batch"]:
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
    ones_term, zeros_term = terms_probs(value, total_count, probs).values()
    return ones_term + zeros_term


@_binomial(
    "probs",
    name="Binomial, probability from the log-odds",
    equation="(y − n p) / (p (1 − p)), p = σ(l)",
    symbols=_LOGITS,
)
def eligibility_probs_from_logits(
    value: Shaped[Tensor, "*#batch"],
    total_count: Shaped[Tensor, "*#batch"],
    logits: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*#batch"]:
    """The same for coins given by their log-odds l: ``y (1 + e^−l) − (n − y) (1 + e^l)``."""
    return weigh_inverse_odds(value, total_count - value, logits)


@_binomial(
    "logits", name="Binomial, log-odds", equation="y − n σ(l)", symbols=_LOGITS, terms=terms_logits
)
def eligibility_logits(
    value: Shaped[Tensor, "*#batch"],
    total_count: Shaped[Tensor, "*#batch"],
    logits: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*#batch"]:
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
    return weigh_odds(value, total_count - value, logits)


@_binomial(
    "logits", name="Binomial, log-odds from the probability", equation="y − n p", symbols=_PROBS
)
def eligibility_logits_from_probs(
    value: Shaped[Tensor, "*#batch"],
    total_count: Shaped[Tensor, "*#batch"],
    probs: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*#batch"]:
    """The same for coins given by their probability; nothing is clamped on the way."""
    return value * (1 - probs) - (total_count - value) * probs
