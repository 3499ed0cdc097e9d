"""Multinomial: n draws from K categories, y_k of them k. The categorical family rests on it.

Williams (1992) has no multinomial unit; these rules extend his method to one. For probabilities
there is more than one convention, because the K of them are tied by their sum; each has a name:

=============  ========================  ==========================================================
coordinates    eligibility of entry k    what is held fixed
=============  ========================  ==========================================================
``weights``    ``y_k/w_k − n/Σw``        the other weights; π = w/Σw. What torch computes
``ambient``    ``y_k/w_k``               everything: the normaliser is ignored
``free``       ``y_k/w_k − y_K/w_K``     K − 1 free probabilities; the last one is implied
``tangent``    mean-free ``y_k/w_k``     moves along the simplex only; ambient and weights agree
=============  ========================  ==========================================================

All of them give the same ``y − nπ`` once they are chained through a softmax.

Numerical care: 1 − π_k is never formed by that subtraction. It is the sum of the *other* weights
over their total, so an almost certain category keeps every digit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.distributions import Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough

from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import register_eligibility, rules_of
from eligibility.shapes import check_counts, check_sample_shape

# These formulas lose nothing in float32, so they are not widened further.
_register = partial(register_eligibility, working=torch.float32)
FAMILY = (Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough)
_REFERENCE = "extends Williams 1992, §4 (the paper has no multinomial unit)"
_LOGITS = {"y": "value", "z": "logits"}
_WEIGHTS = {"y": "value", "w": "probs"}
_register_family = partial(_register, FAMILY, reference=_REFERENCE)


def terms_logits(value: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """The two terms of ``y − n softmax(z)``."""
    draws = value.sum(-1, keepdim=True)
    return {
        "y": value + torch.zeros_like(logits),
        "−n softmax(z)": -draws * torch.softmax(logits, -1),
    }


def terms_weights(value: Tensor, probs: Tensor) -> dict[str, Tensor]:
    """The two terms of ``y_k/w_k − n/Σw``: through the category's own weight, through the sum."""
    total = -value.sum(-1, keepdim=True) / probs.sum(-1, keepdim=True)
    return {"y_k/w_k": eligibility_ambient(value, probs), "−n/Σw": total + torch.zeros_like(probs)}


@_register_family(
    "logits",
    name="multinomial, logits",
    equation="y − n softmax(z)",
    symbols=_LOGITS,
    terms=terms_logits,
)
def eligibility_logits(
    value: Num[Tensor, "*#batch K"], logits: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    r"""Eligibility of the logits, ``y − n softmax(z)`` with n = Σy. The entries sum to 0.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``; one-hot rows for one draw.
        logits: z, shape ``[*batch, K]``; −∞ forbids a category.

    Returns:
        ∂ log p(y)/∂z, shape of ``value``.

    Example:
        >>> eligibility_logits(torch.tensor([1, 0, 0]), torch.tensor([20.0, 0.0, 0.0]))
        tensor([ 4.1223e-09, -2.0612e-09, -2.0612e-09])
    """
    return eligibility_logits_from_probs(value, exponentiate(logits))


@_register_family(
    "logits", name="multinomial, logits from the weights", equation="y − n w/Σw", symbols=_WEIGHTS
)
def eligibility_logits_from_probs(
    value: Num[Tensor, "*#batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    """The same for given weights w, as ``y (1 − π) − (n − y) π``: exact for a single draw."""
    total = probs.sum(-1, keepdim=True)
    others = value.sum(-1, keepdim=True) - value
    return value * (sum_of_others(probs) / total) - others * (probs / total)


@_register_family(
    "probs",
    name="multinomial, unnormalised weights",
    equation="y_k/w_k − n/Σw",
    symbols=_WEIGHTS,
    terms=terms_weights,
    coordinates="weights",
)
def eligibility_weights(
    value: Num[Tensor, "*#batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    r"""Eligibility of unnormalised weights, ``y_k/w_k − n/Σw``: torch's rule for ``probs=``.

    The weights need not sum to 1; ``w·e = 0``, and weights × 100 give e / 100.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``.
        probs: The weights w >= 0, shape ``[*batch, K]``.

    Returns:
        ∂ log p(y)/∂w, shape of ``value``; ∞ where an impossible category was drawn.

    Notes:
        Computed as ``(y_k/w_k)(1 − π_k) − (n − y_k)/Σw``, which does not cancel for a single draw.

    Example:
        >>> eligibility_weights(torch.tensor([1, 0, 0, 0]), torch.tensor([0.69, 0.1, 0.2, 0.01]))
        tensor([ 0.4493, -1.0000, -1.0000, -1.0000])
    """
    total = probs.sum(-1, keepdim=True)
    others = value.sum(-1, keepdim=True) - value
    own = eligibility_ambient(value, probs) * (sum_of_others(probs) / total)
    return own - others / total


@_register_family(
    "probs",
    name="multinomial, ambient coordinates",
    equation="y_k/w_k",
    symbols=_WEIGHTS,
    coordinates="ambient",
)
def eligibility_ambient(
    value: Num[Tensor, "*#batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    r"""Eligibility in ambient coordinates, ``y_k/w_k``: 0 for what was not drawn.

    This is the gradient that one expects of ``Σ y_k log w_k`` when the normaliser is forgotten.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``.
        probs: The weights w >= 0, shape ``[*batch, K]``.

    Returns:
        The partial derivatives, shape of ``value``; exactly 0 where y_k = 0, also at w_k = 0.

    Example:
        >>> eligibility_ambient(torch.tensor([0, 1]), torch.tensor([0.75, 0.25]))
        tensor([0., 4.])
    """
    return torch.where(value == 0, torch.zeros_like(probs), value / probs)


@_register_family(
    "probs",
    name="multinomial, K − 1 free probabilities",
    equation="y_k/w_k − y_K/w_K",
    symbols=_WEIGHTS,
    coordinates="free",
)
def eligibility_free(
    value: Num[Tensor, "*#batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K-1"]:
    r"""Eligibility of K − 1 free probabilities, ``y_k/w_k − y_K/w_K``; the last one is implied.

    The vector form of Williams' Proposition 1 in these coordinates is ``Σ⁻¹ (y − n p)``.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``.
        probs: Probabilities that sum to 1, shape ``[*batch, K]``.

    Returns:
        The partial derivatives, shape ``[*samples, *batch, K − 1]``.

    Example:
        >>> eligibility_free(torch.tensor([1, 0, 0]), torch.tensor([0.5, 0.25, 0.25]))
        tensor([2., 0.])
    """
    ambient = eligibility_ambient(value, probs)
    return ambient[..., :-1] - ambient[..., -1:]


@_register_family(
    "probs",
    name="multinomial, along the simplex",
    equation="y_k/w_k − mean_j(y_j/w_j)",
    symbols=_WEIGHTS,
    coordinates="tangent",
)
def eligibility_tangent(
    value: Num[Tensor, "*#batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*#batch K"]:
    r"""Eligibility along the simplex: the projection of ``y_k/w_k`` onto vectors that sum to 0.

    The projection of the ``weights`` rule is the same, because the two differ by a constant.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``.
        probs: Probabilities that sum to 1, shape ``[*batch, K]``.

    Returns:
        The projected gradient, shape of ``value``; the entries sum to 0.

    Example:
        >>> eligibility_tangent(torch.tensor([1, 0]), torch.tensor([0.5, 0.5]))
        tensor([ 1., -1.])
    """
    ambient = eligibility_ambient(value, probs)
    categories = ambient.shape[-1]
    return ((categories - 1) * ambient - sum_of_others(ambient)) / categories


def exponentiate(logits: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Weights ``e^(z − max z)``, correct to the last bits also far below the largest logit.

    The rounding error of the difference, which the exponential would magnify, is recovered exactly
    and put back: ``e^(d + δ) = e^d (1 + δ)``.
    """
    largest = logits.amax(-1, keepdim=True)
    difference = logits - largest
    taken = logits - difference
    error = (logits - (difference + taken)) + (taken - largest)
    weights = torch.exp(difference)
    return weights + torch.where(difference.isfinite(), weights * error, 0.0)


def sum_of_others(weights: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """``Σ_{j≠k} w_j`` for each k, without cancellation.

    Only the largest weight can be most of the total, so only its entry needs a separate sum.
    """
    largest = weights.argmax(-1, keepdim=True)
    rest = weights.scatter(-1, largest, 0.0).sum(-1, keepdim=True)
    total = weights.sum(-1, keepdim=True)
    return (total - weights).scatter(-1, largest, rest)


def _at_softmax(function: Callable[..., Any]) -> Callable[..., Any]:
    def from_logits(value: Tensor, logits: Tensor) -> Any:
        weights = exponentiate(logits)
        return function(value, weights / weights.sum(-1, keepdim=True))

    return from_logits


# The rules of the probs also for objects that are given by logits.
for _rule in [rule for rule in rules_of(Multinomial) if rule.parameter == "probs"]:
    _register_family(
        "probs",
        name=f"{_rule.name}, from the logits",
        equation=f"{_rule.equation}, w = softmax(z)",
        symbols={**_rule.symbols, "w": "probs", "z": "logits"},
        terms=_rule.summands and _at_softmax(_rule.summands),
        coordinates=_rule.coordinates,
    )(_at_softmax(_rule.function))


@check_value.register
def _(dist: Multinomial, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_counts(value, dist.total_count, "value")


@check_value.register
def _(dist: OneHotCategorical, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_counts(value, 1, "value")
