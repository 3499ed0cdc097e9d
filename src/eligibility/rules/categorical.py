"""Categorical: one draw from K categories, given as an index. One-hot, it is the multinomial."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Categorical

from eligibility.rules import multinomial
from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import register_eligibility
from eligibility.shapes import check_action, check_sample_shape

# These formulas lose nothing in float32, so they are not widened further.
_register = partial(register_eligibility, working=torch.float32)
_LOGITS = {"a": "value", "z": "logits"}
_WEIGHTS = {"a": "value", "w": "probs"}
_categorical = partial(_register, Categorical, reference=multinomial.REFERENCE)


def _terms_logits(value: Tensor, logits: Tensor) -> dict[str, Tensor]:
    own, through_sum = multinomial.terms_logits(_one_hot(value, logits), logits).values()
    return {"one_hot(a)": own, "−softmax(z)": through_sum}


def _terms_weights(value: Tensor, probs: Tensor) -> dict[str, Tensor]:
    own, through_sum = multinomial.terms_weights(_one_hot(value, probs), probs).values()
    return {"[k = a]/w_k": own, "−1/Σw": through_sum}


@_categorical(
    "logits",
    name="categorical, logits",
    equation="one_hot(a) − softmax(z)",
    symbols=_LOGITS,
    terms=_terms_logits,
)
def eligibility_logits(
    value: Int[Tensor, "*#batch"], logits: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
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


@_categorical(
    "logits",
    name="categorical, logits from the weights",
    equation="one_hot(a) − w/Σw",
    symbols=_WEIGHTS,
)
def eligibility_logits_from_probs(
    value: Int[Tensor, "*#batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    """The same for given weights w; nothing is clamped on the way."""
    return multinomial.eligibility_logits_from_probs(_one_hot(value, probs), probs)


@_categorical(
    "probs",
    name="categorical, unnormalised weights",
    equation="[k = a]/w_k − 1/Σw",
    symbols=_WEIGHTS,
    terms=_terms_weights,
    coordinates="weights",
)
def eligibility_weights(
    value: Int[Tensor, "*#batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    """Eligibility of unnormalised weights; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_weights(_one_hot(value, probs), probs)


@_categorical(
    "probs",
    name="categorical, ambient coordinates",
    equation="[k = a]/w_k",
    symbols=_WEIGHTS,
    coordinates="ambient",
)
def eligibility_ambient(
    value: Int[Tensor, "*#batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    """Eligibility in ambient coordinates; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_ambient(_one_hot(value, probs), probs)


@_categorical(
    "probs",
    name="categorical, K − 1 free probabilities",
    equation="[k = a]/w_k − [K = a]/w_K",
    symbols=_WEIGHTS,
    coordinates="free",
)
def eligibility_free(
    value: Int[Tensor, "*#batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K-1"]:
    """Eligibility of K − 1 free probabilities; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_free(_one_hot(value, probs), probs)


@_categorical(
    "probs",
    name="categorical, along the simplex",
    equation="([k = a] − 1/K)/w_a",
    symbols=_WEIGHTS,
    coordinates="tangent",
)
def eligibility_tangent(
    value: Int[Tensor, "*#batch"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    """Eligibility along the simplex; see `eligibility.rules.multinomial`."""
    return multinomial.eligibility_tangent(_one_hot(value, probs), probs)


multinomial.register_from_logits(Categorical)


@check_value.register
def _(dist: Categorical, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_action(value, dist.param_shape[-1], "value")


def _one_hot(value: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(value.long(), like.shape[-1])
