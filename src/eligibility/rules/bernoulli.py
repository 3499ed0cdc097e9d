"""Bernoulli: Williams' own unit, one coin with probability p = P(y = 1)."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.distributions import Bernoulli

from eligibility.rules import binomial
from eligibility.rules.registry import register_eligibility
from eligibility.rules.special import logistic

# These formulas lose nothing in float32, so they are not widened further.
_register = partial(register_eligibility, working=torch.float32)
_PROBS = {"y": "value", "p": "probs"}
_LOGITS = {"y": "value", "l": "logits"}


_bernoulli = partial(_register, Bernoulli)


@_bernoulli(
    "probs",
    name="Bernoulli unit, probability",
    equation="(y − p) / (p (1 − p))",
    reference="Williams 1992, eq. (5)",
    symbols=_PROBS,
    terms=lambda value, probs: binomial.terms_probs(value, 1, probs),
)
def eligibility_probs(
    value: Shaped[Tensor, "*#batch"], probs: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*#batch"]:
    r"""Eligibility of a coin's probability, ``(y − p) / (p (1 − p))``.

    Since y is 0 or 1 this is ``1/p`` for y = 1 and ``−1/(1 − p)`` for y = 0: one division, no
    cancellation.

    Args:
        value: The outcome y, 0 or 1, shape ``[*samples, *batch]``.
        probs: p in [0, 1], shape ``[*batch]``.

    Returns:
        ∂ log p(y)/∂p, shape ``[*samples, *batch]``; ±∞ for an outcome of probability 0.

    Example:
        >>> eligibility_probs(torch.tensor([1., 0.]), torch.tensor([0.25, 0.25]))
        tensor([ 4.0000, -1.3333])

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (5).
    """
    return torch.where(value == 1, 1 / probs, -1 / (1 - probs))


@_bernoulli(
    "probs",
    name="Bernoulli unit, probability from the log-odds",
    equation="(y − p) / (p (1 − p)), p = σ(l)",
    reference="Williams 1992, eq. (5)",
    symbols=_LOGITS,
)
def eligibility_probs_from_logits(
    value: Shaped[Tensor, "*#batch"], logits: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*#batch"]:
    """The same for a coin given by its log-odds: ``1 + e^−l`` for y = 1, ``−1 − e^l`` for y = 0."""
    return torch.where(value == 1, 1 + torch.exp(-logits), -1 - torch.exp(logits))


@_bernoulli(
    "logits",
    name="Bernoulli-logistic unit",
    equation="y − σ(l)",
    reference="Williams 1992, eq. (7)",
    symbols=_LOGITS,
    terms=lambda value, logits: binomial.terms_logits(value, 1, logits),
)
def eligibility_logits(
    value: Shaped[Tensor, "*#batch"], logits: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*#batch"]:
    r"""Eligibility of a coin's log-odds, ``y − σ(l)``: the Bernoulli-logistic unit.

    For y = 1 it is computed as ``σ(−l)``, which keeps every digit where ``1 − σ(l)`` has none left.

    Args:
        value: The outcome y, 0 or 1, shape ``[*samples, *batch]``.
        logits: The log-odds l = log(p / (1 − p)), shape ``[*batch]``.

    Returns:
        ∂ log p(y)/∂l, shape ``[*samples, *batch]``.

    Example:
        >>> eligibility_logits(torch.tensor([1., 0.]), torch.tensor([20., 20.]))
        tensor([ 2.0612e-09, -1.0000e+00])

    References:
        Williams 1992, Machine Learning 8:229-256, eq. (7), with input 1.
    """
    return torch.where(value == 1, logistic(-logits), -logistic(logits))


@_bernoulli(
    "logits",
    name="Bernoulli-logistic unit, from the probability",
    equation="y − p",
    reference="Williams 1992, eq. (7)",
    symbols=_PROBS,
)
def eligibility_logits_from_probs(
    value: Shaped[Tensor, "*#batch"], probs: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*#batch"]:
    """The same for a coin given by its probability; nothing is clamped on the way."""
    return torch.where(value == 1, 1 - probs, -probs)
