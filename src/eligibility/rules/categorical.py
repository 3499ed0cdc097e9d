"""Categorical: one draw from K categories, given as an index. One-hot, it is the multinomial."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Categorical

from eligibility.rules import multinomial
from eligibility.rules.registry import check_value, register_eligibility
from eligibility.shapes import check_action, check_sample_shape

_REFERENCE = "extends Williams 1992, §4 (the paper has no categorical unit)"


@register_eligibility(
    Categorical, "logits", equation="one_hot(a) − softmax(z)", reference=_REFERENCE
)
def eligibility_logits(
    value: Int[Tensor, "*batch"], logits: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    r"""Eligibility of the logits, ``one_hot(a) − softmax(z)``. The entries sum to 0.

    Args:
        value: The category a in [0, K), shape ``[*samples, *batch]``.
        logits: z, shape ``[*batch, K]``; −∞ forbids a category.

    Returns:
        ∂ log π(a)/∂z, shape ``[*samples, *batch, K]``.

    Example:
        >>> eligibility_logits(torch.tensor(0), torch.zeros(4))
        tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    """
    return multinomial.eligibility_logits(_one_hot(value, logits), logits)


@register_eligibility(
    Categorical,
    "probs",
    equation="[k = a]/w_k − 1/Σw",
    reference=_REFERENCE,
    coordinates="weights",
)
def eligibility_weights(
    value: Int[Tensor, "*batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    """Eligibility of unnormalised weights; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_weights(_one_hot(value, probs), probs)


@register_eligibility(
    Categorical, "probs", equation="[k = a]/w_k", reference=_REFERENCE, coordinates="ambient"
)
def eligibility_ambient(
    value: Int[Tensor, "*batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    """Eligibility in ambient coordinates; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_ambient(_one_hot(value, probs), probs)


@register_eligibility(
    Categorical,
    "probs",
    equation="[k = a]/w_k − [K = a]/w_K",
    reference=_REFERENCE,
    coordinates="free",
)
def eligibility_free(
    value: Int[Tensor, "*batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K-1"]:
    """Eligibility of K − 1 free probabilities; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_free(_one_hot(value, probs), probs)


@register_eligibility(
    Categorical,
    "probs",
    equation="([k = a] − 1/K)/w_a",
    reference=_REFERENCE,
    coordinates="tangent",
)
def eligibility_tangent(
    value: Int[Tensor, "*batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    """Eligibility along the simplex; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_tangent(_one_hot(value, probs), probs)


@check_value.register
def _(dist: Categorical, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_action(value, dist.probs.shape[-1], "value")


def _one_hot(value: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(value.long(), like.shape[-1])
