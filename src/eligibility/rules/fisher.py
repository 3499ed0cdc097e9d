"""Fisher information ``E[e eᵀ]`` of the eligibility e of a parameter.

Closed forms where there is one, else the exact sum over a finite support. A formula reads the
distribution in double precision; the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Independent,
    Multinomial,
    OneHotCategorical,
    TransformedDistribution,
)

from eligibility.errors import UnsupportedDistributionError
from eligibility.rules.constructed import is_given
from eligibility.rules.multinomial import exponentiate, sum_of_others
from eligibility.rules.registry import as_names, constructed_parameters, find_rule, nearest_entry
from eligibility.rules.rule import read_parameter
from eligibility.shapes import double_precision

Formula = Callable[[Distribution], Tensor]

# class -> parameter -> closed form
_FORMULAS: dict[type[Distribution], dict[str, Formula]] = {}


def fisher_information(
    dist: Distribution, wrt: str | tuple[str, ...] | None = None
) -> dict[str, Tensor]:
    """Fisher information of one outcome: ``E[e eᵀ]`` with ``e = ∂ log p(y)/∂ parameter``.

    Args:
        dist: Any ``torch.distributions`` object with a closed form or a finite support.
        wrt: The parameter, or several; default: what ``dist`` was constructed with.

    Returns:
        One tensor a parameter: batch shape + twice the event shape of the parameter. A scalar
        parameter gives ``[*batch]``, a vector of K ``[*batch, K, K]``, a matrix
        ``[*batch, D, D, D, D]``. Blocks between two parameters are not included.

    Raises:
        UnsupportedDistributionError: No closed form, and no finite support to sum over.

    Notes:
        The information about probs of the categorical family is in the coordinates "weights".

    Example:
        >>> policy = torch.distributions.Categorical(probs=torch.tensor([0.5, 0.25, 0.25]))
        >>> fisher_information(policy, wrt="logits")["logits"]
        tensor([[ 0.2500, -0.1250, -0.1250],
                [-0.1250,  0.1875, -0.0625],
                [-0.1250, -0.0625,  0.1875]])

    References:
        Amari 1998, Neural Computation 10:251-276.
    """
    names = constructed_parameters(dist) if wrt is None else as_names(wrt)
    return {name: _information(dist, name) for name in names}


def register_fisher(
    distribution: type[Distribution] | tuple[type[Distribution], ...], parameter: str
) -> Callable[[Formula], Formula]:
    """Decorator for a closed form: a function of the distribution."""
    classes = distribution if isinstance(distribution, tuple) else (distribution,)

    def register(formula: Formula) -> Formula:
        for cls in classes:
            _FORMULAS.setdefault(cls, {})[parameter] = formula
        return formula

    return register


def has_closed_form(cls: type[Distribution], parameter: str) -> bool:
    """Whether the information about this parameter of this class is a formula."""
    return any(parameter in _FORMULAS.get(base, {}) for base in cls.__mro__)


def read(dist: Distribution, attribute: str) -> Tensor:
    """An attribute of ``dist`` in double precision."""
    tensor: Tensor = read_parameter(dist, attribute)
    return tensor.to(double_precision(tensor.device))


def _information(dist: Distribution, parameter: str) -> Tensor:
    rule = find_rule(dist, parameter)
    for cls in type(dist).__mro__:
        if parameter in _FORMULAS.get(cls, {}):
            return _FORMULAS[cls][parameter](dist).to(rule.dtype(dist))
    if nearest_entry(type(dist)) is Independent:
        return _block_diagonal(dist, _information(dist.base_dist, parameter))  # type: ignore[attr-defined]  # of its class
    if nearest_entry(type(dist)) is TransformedDistribution:
        return _information(dist.base_dist, parameter)  # type: ignore[attr-defined]  # of its class
    if dist.has_enumerate_support:
        return _by_enumeration(dist, parameter)
    raise UnsupportedDistributionError(
        f"the Fisher information of the {parameter} of {type(dist).__name__}",
        "a distribution without a closed form for it and without a finite support",
        "one with either",
        "estimate it as the mean of e eᵀ over samples, with e = eligibility(dist, samples)",
    )


def _block_diagonal(dist: Distribution, blocks: Tensor) -> Tensor:
    """``[*batch, *events, *e, *e]`` to ``[*batch, *events, *e, *events, *e]``, 0 between events."""
    batch = len(dist.batch_shape)
    events = dist.reinterpreted_batch_ndims  # type: ignore[attr-defined]  # of its class
    own = (blocks.ndim - batch - events) // 2
    shape = blocks.shape[batch : batch + events]
    flat = blocks.flatten(batch, batch + events - 1) if events else blocks.unsqueeze(batch)
    square = torch.diag_embed(flat.movedim(batch, -1), dim1=batch, dim2=batch + 1 + own)
    half = batch + events + own
    return square.reshape(blocks.shape[:half] + shape + blocks.shape[half:])


def _by_enumeration(dist: Distribution, parameter: str) -> Tensor:
    """``Σ_y p(y) e(y) e(y)ᵀ`` over every outcome y."""
    outcomes = dist.enumerate_support(expand=True)
    mass = dist.log_prob(outcomes).exp()
    eligibility = find_rule(dist, parameter)(dist, outcomes)
    event = eligibility.shape[mass.ndim :]
    flat = eligibility.reshape((*mass.shape, -1))
    information = torch.einsum("m...,m...i,m...j->...ij", mass, flat, flat)
    return information.reshape(mass.shape[1:] + event + event)


# --- one coin, or n of them: information is additive over independent draws -------------------


@register_fisher((Bernoulli, Binomial), "probs")
def coin_probs(dist: Distribution) -> Tensor:
    """``n / (p (1 − p))``."""
    p, q = coin(dist)
    return _draws(dist) / (p * q)


@register_fisher((Bernoulli, Binomial), "logits")
def coin_logits(dist: Distribution) -> Tensor:
    """``n p (1 − p)``."""
    p, q = coin(dist)
    return _draws(dist) * (p * q)


def coin(dist: Distribution) -> tuple[Tensor, Tensor]:
    """p and 1 − p, neither of them by a subtraction that loses it."""
    if is_given(dist, "probs"):
        probs = read(dist, "probs")
        return probs, 1 - probs
    logits = read(dist, "logits")
    return torch.sigmoid(logits), torch.sigmoid(-logits)


# --- K categories, drawn once or n times ------------------------------------------------------


@register_fisher((Categorical, OneHotCategorical, Multinomial), "logits")
def category_logits(dist: Distribution) -> Tensor:
    """``n (diag(π) − π πᵀ)``, the covariance of the counts."""
    share, rest, _ = _shares(dist)
    products = -share.unsqueeze(-1) * share.unsqueeze(-2)
    return _draws(dist)[..., None, None] * _with_diagonal(products, share * rest)


@register_fisher((Categorical, OneHotCategorical, Multinomial), "probs")
def category_weights(dist: Distribution) -> Tensor:
    """``n (diag(1/π) − 1)/(Σw)²``, in the coordinates "weights"."""
    share, rest, total = _shares(dist)
    minus_one = -torch.ones_like(share).unsqueeze(-1) * torch.ones_like(share).unsqueeze(-2)
    information = _with_diagonal(minus_one, rest / share) / total.unsqueeze(-1) ** 2
    return _draws(dist)[..., None, None] * information


def _shares(dist: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """π and 1 − π, ``[*batch, K]``, and the sum of the weights that are given, ``[*batch, 1]``."""
    by_probs = is_given(dist, "probs")
    weights = read(dist, "probs") if by_probs else exponentiate(read(dist, "logits"))
    total = weights.sum(-1, keepdim=True)
    rest = sum_of_others(weights) / total
    return weights / total, rest, total if by_probs else torch.ones_like(total)


def _draws(dist: Distribution) -> Tensor:
    return torch.as_tensor(getattr(dist, "total_count", 1))


def _with_diagonal(matrix: Tensor, diagonal: Tensor) -> Tensor:
    return torch.diagonal_scatter(matrix, diagonal, dim1=-2, dim2=-1)
