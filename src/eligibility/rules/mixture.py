"""MixtureSameFamily: the eligibility of a marginal is the posterior mean of that of the joint.

With component densities f_k, weights π and the responsibilities ``r_k = π_k f_k(y)/f(y)``, the
logits have ``r − π`` and a parameter of component k has r_k times its own eligibility. Parameters
are named by the path to them: ``mixture_distribution.logits``, ``component_distribution.loc``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, GeneralizedPareto, MixtureSameFamily

from eligibility.errors import InvalidValueError, UnsupportedDistributionError
from eligibility.rules.constructed import is_given
from eligibility.rules.multinomial import exponentiate, sum_of_others
from eligibility.rules.outcomes import check_value
from eligibility.rules.registry import (
    Composition,
    constructed_parameters,
    find_rule,
    register_composition,
)
from eligibility.rules.rule import Rule, held_tensor, read_parameter
from eligibility.shapes import check_sample_shape, double_precision

_WEIGHTS, _COMPONENT = "mixture_distribution.", "component_distribution."
_REFERENCE = "Fisher's identity: the score of a marginal is the posterior mean of the joint score"


def mixture_parameters(dist: MixtureSameFamily) -> tuple[str, ...]:
    """The paths to what the mixture and its components were constructed with."""
    weights = constructed_parameters(dist.mixture_distribution)
    component = constructed_parameters(dist.component_distribution)
    return (*(_WEIGHTS + name for name in weights), *(_COMPONENT + name for name in component))


def mixture_rule(dist: MixtureSameFamily, parameter: str, coordinates: str | None) -> Rule:
    """For the weights, how responsible each component is; for a component, its rule times that."""
    if parameter.startswith(_COMPONENT):
        return _component_rule(dist, parameter, coordinates)
    if parameter not in (_WEIGHTS + "logits", _WEIGHTS + "probs"):
        raise UnsupportedDistributionError(
            f"`wrt` of {type(dist).__name__}",
            repr(parameter),
            " or ".join(map(repr, mixture_parameters(dist))),
            "name the parameter by the path to it",
        )
    if coordinates not in (None, "weights"):
        raise InvalidValueError(
            f"`coordinates` of the {parameter} of {type(dist).__name__}",
            repr(coordinates),
            "'weights'",
            "the weights of a mixture have only this convention",
        )
    by_logits = parameter.endswith("logits")
    return Rule(
        distribution=type(dist),
        parameter=parameter,
        function=_logits if by_logits else _weights,
        reads=("dist",),
        name="mixture, logits" if by_logits else "mixture, unnormalised weights",
        equation="r − π, r_k = π_k f_k(y)/f(y)" if by_logits else "(f_k(y)/f(y) − 1)/Σw",
        reference=_REFERENCE,
        symbols={"y": "value"},
    )


def _component_rule(dist: MixtureSameFamily, parameter: str, coordinates: str | None) -> Rule:
    base = find_rule(dist.component_distribution, parameter[len(_COMPONENT) :], coordinates)

    def function(value: Tensor, mixture: MixtureSameFamily) -> Tensor:
        component = mixture.component_distribution
        own = base(in_double(component), _for_components(mixture, value))
        return _times_responsibility(mixture, value, own).to(held_tensor(component).dtype)

    def summands(value: Tensor, mixture: MixtureSameFamily) -> Mapping[str, Tensor]:
        component = mixture.component_distribution
        terms = base.terms(in_double(component), _for_components(mixture, value))
        dtype = held_tensor(component).dtype
        return {
            f"r · ({symbol})": _times_responsibility(mixture, value, term).to(dtype)
            for symbol, term in terms.items()
        }

    def why_biased(mixture: Any) -> str | None:
        return base.why_biased(mixture.component_distribution) if base.why_biased else None

    return replace(
        base,
        distribution=type(dist),
        parameter=parameter,
        function=function,
        reads=("dist",),
        name=f"{base.name}, times its responsibility in a mixture",
        equation=f"r · ({base.equation})",
        reference=f"{base.reference}; {_REFERENCE}",
        symbols={
            symbol: path if path == "value" else _COMPONENT + path
            for symbol, path in base.symbols.items()
        },
        summands=summands,
        why_biased=why_biased,
    )


def _logits(value: Tensor, dist: MixtureSameFamily) -> Tensor:
    """``r − π``; where a weight is nearly 1, as the difference of the two complements."""
    scores, weights = _scores(dist, value)
    share, others = _normalised(weights)
    posterior, rest = _normalised(exponentiate(scores + weights.log()))
    return torch.where(share > 0.5, others - rest, posterior - share).to(
        held_tensor(dist.mixture_distribution).dtype
    )


def _weights(value: Tensor, dist: MixtureSameFamily) -> Tensor:
    """``(f_k/f − 1)/Σw`` as ``expm1(ln f_k − ln f)``; a weight of 0 does no harm."""
    scores, weights = _scores(dist, value)
    by_probs = is_given(dist.mixture_distribution, "probs")
    total = weights.sum(-1, keepdim=True)
    marginal = torch.logsumexp(scores + (weights / total).log(), -1, keepdim=True)
    excess = torch.expm1(scores - marginal)
    return (excess / total if by_probs else excess).to(held_tensor(dist.mixture_distribution).dtype)


def _times_responsibility(dist: MixtureSameFamily, value: Tensor, own: Tensor) -> Tensor:
    scores, weights = _scores(dist, value)
    posterior, _ = _normalised(exponentiate(scores + weights.log()))
    posterior = posterior.reshape(posterior.shape + (1,) * (own.ndim - posterior.ndim))
    return torch.where(posterior == 0, torch.zeros_like(own), posterior * own)


def _scores(dist: MixtureSameFamily, value: Tensor) -> tuple[Tensor, Tensor]:
    """``ln f_k(y)``, ``[*samples, *batch, K]``, and the weights, both in double precision."""
    component = in_double(dist.component_distribution)
    scores: Tensor = component.log_prob(_for_components(dist, value))
    if is_given(dist.mixture_distribution, "probs"):
        return scores, read_parameter(dist.mixture_distribution, "probs").to(scores.dtype)
    return scores, exponentiate(
        read_parameter(dist.mixture_distribution, "logits").to(scores.dtype)
    )


def _for_components(dist: MixtureSameFamily, value: Tensor) -> Tensor:
    """``value`` once for each component: ``[*samples, *batch, K, *event]``, in double precision."""
    axis = -1 - len(dist.event_shape)
    samples = value.ndim - len(dist.event_shape) - len(dist.batch_shape)
    shape = (*value.shape[: max(samples, 0)], *dist.component_distribution.batch_shape)
    if value.is_floating_point():
        value = value.to(double_precision(value.device))
    return value.unsqueeze(axis).expand(*shape, *dist.event_shape)


def _normalised(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of the total, and of what the others have."""
    total = weights.sum(-1, keepdim=True)
    return weights / total, sum_of_others(weights) / total


def in_double(dist: Distribution) -> Distribution:
    """The same distribution with every tensor that it holds in double precision.

    A GeneralizedPareto stays as it is: torch's density of it fails in float64.
    """
    if isinstance(dist, GeneralizedPareto):
        return dist
    twin = copy.copy(dist)
    for name, value in vars(dist).items():
        if isinstance(value, Tensor) and value.is_floating_point():
            vars(twin)[name] = value.to(double_precision(value.device))
        elif isinstance(value, Distribution):
            vars(twin)[name] = in_double(value)
    return twin


@check_value.register
def _(dist: MixtureSameFamily, value: Tensor) -> None:
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    check_value(dist.component_distribution, _for_components(dist, value))


register_composition(MixtureSameFamily, Composition(mixture_parameters, mixture_rule))
