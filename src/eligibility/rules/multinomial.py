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
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.distributions import Multinomial, OneHotCategorical

from eligibility.rules.registry import check_value, register_eligibility
from eligibility.shapes import check_counts, check_sample_shape

_FAMILY = (Multinomial, OneHotCategorical)
_REFERENCE = "extends Williams 1992, §4 (the paper has no multinomial unit)"


@register_eligibility(_FAMILY, "logits", equation="y − n softmax(z)", reference=_REFERENCE)
def eligibility_logits(
    value: Num[Tensor, "*batch K"], logits: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    r"""Eligibility of the logits, ``y − n softmax(z)`` with n = Σy. The entries sum to 0.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``; one-hot rows for one draw.
        logits: z, shape ``[*batch, K]``; −∞ forbids a category.

    Returns:
        ∂ log p(y)/∂z, shape of ``value``.

    Example:
        >>> eligibility_logits(torch.tensor([2, 1, 0]), torch.zeros(3))
        tensor([ 1.,  0., -1.])
    """
    return value - value.sum(-1, keepdim=True) * torch.softmax(logits, -1)


@register_eligibility(
    _FAMILY, "probs", equation="y_k/w_k − n/Σw", reference=_REFERENCE, coordinates="weights"
)
def eligibility_weights(
    value: Num[Tensor, "*batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
    r"""Eligibility of unnormalised weights, ``y_k/w_k − n/Σw``: torch's rule for ``probs=``.

    The weights need not sum to 1; ``w·e = 0``, and weights × 100 give e / 100.

    Args:
        value: The counts y >= 0, shape ``[*samples, *batch, K]``.
        probs: The weights w >= 0, shape ``[*batch, K]``.

    Returns:
        ∂ log p(y)/∂w, shape of ``value``; ∞ where an impossible category was drawn.

    Example:
        >>> eligibility_weights(torch.tensor([1, 0, 0, 0]), torch.tensor([0.69, 0.1, 0.2, 0.01]))
        tensor([ 0.4493, -1.0000, -1.0000, -1.0000])
    """
    return eligibility_ambient(value, probs) - value.sum(-1, keepdim=True) / probs.sum(
        -1, keepdim=True
    )


@register_eligibility(
    _FAMILY, "probs", equation="y_k/w_k", reference=_REFERENCE, coordinates="ambient"
)
def eligibility_ambient(
    value: Num[Tensor, "*batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
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


@register_eligibility(
    _FAMILY, "probs", equation="y_k/w_k − y_K/w_K", reference=_REFERENCE, coordinates="free"
)
def eligibility_free(
    value: Num[Tensor, "*batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K-1"]:
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


@register_eligibility(
    _FAMILY,
    "probs",
    equation="y_k/w_k − mean_j(y_j/w_j)",
    reference=_REFERENCE,
    coordinates="tangent",
)
def eligibility_tangent(
    value: Num[Tensor, "*batch K"], probs: Float[Tensor, "*#batch K"]
) -> Float[Tensor, "*batch K"]:
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
    return ambient - ambient.mean(-1, keepdim=True)


@check_value.register
def _(dist: Multinomial, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_counts(value, dist.total_count, "value")


@check_value.register
def _(dist: OneHotCategorical, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_counts(value, 1, "value")
