"""Independent and TransformedDistribution: the rules of the distribution inside, by the chain rule.

The parameters are those of the distribution inside, under the same names. What a transform holds
(the scale of an ``AffineTransform``, say) is not a parameter of the distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Independent, TransformedDistribution

from eligibility.rules.outcomes import check_support, check_value
from eligibility.rules.registry import (
    Composition,
    constructed_parameters,
    find_rule,
    nearest_entry,
    register_composition,
)
from eligibility.rules.rule import Rule
from eligibility.shapes import check_sample_shape, double_precision


def independent_rule(dist: Independent[Any], parameter: str, coordinates: str | None) -> Rule:
    """The rule of the base: the parameters of one event do not touch those of another."""
    return _inside(find_rule(dist.base_dist, parameter, coordinates), dist, lambda _, value: value)


def transformed_rule(
    dist: TransformedDistribution, parameter: str, coordinates: str | None
) -> Rule:
    """The rule of the base at the inverse image: the Jacobian does not hold its parameters."""
    rule = _inside(find_rule(dist.base_dist, parameter, coordinates), dist, inverse_image)
    return replace(rule, equation=f"{rule.equation}, at T⁻¹(value)")


def _inside(base: Rule, dist: Distribution, value_of: Callable[[Any, Tensor], Tensor]) -> Rule:
    """``base`` as a rule of the distribution around its own, at ``value_of(dist, value)``."""

    def function(value: Tensor, outer: Any) -> Tensor:
        return base(outer.base_dist, value_of(outer, value))

    def summands(value: Tensor, outer: Any) -> Mapping[str, Tensor]:
        return base.terms(outer.base_dist, value_of(outer, value))

    def why_biased(outer: Any) -> str | None:
        return base.why_biased(outer.base_dist) if base.why_biased else None

    return replace(
        base,
        distribution=type(dist),
        function=function,
        reads=("dist",),
        name=f"{base.name}, inside {type(dist).__name__}",
        symbols={
            symbol: path if path == "value" else f"base_dist.{path}"
            for symbol, path in base.symbols.items()
        },
        summands=summands,
        why_biased=why_biased,
    )


def inverse_image(dist: TransformedDistribution, value: Tensor) -> Tensor:
    """The outcome of the base distribution that the transforms map to ``value``."""
    image = value.to(double_precision(value.device)) if value.is_floating_point() else value
    for transform in reversed(dist.transforms):
        image = transform.inv(image)
    return image


@check_value.register
def _(dist: Independent, value: Tensor) -> None:  # type: ignore[type-arg]  # any base
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    if value.shape == dist.event_shape:
        value = value.expand(dist.batch_shape + dist.event_shape)
    check_value(dist.base_dist, value)


@check_value.register
def _(dist: TransformedDistribution, value: Tensor) -> None:
    check_support(dist, value)
    if nearest_entry(type(dist)) is TransformedDistribution:
        check_value(dist.base_dist, inverse_image(dist, value))


for _cls, _rule in ((Independent, independent_rule), (TransformedDistribution, transformed_rule)):
    register_composition(
        _cls, Composition(lambda dist: constructed_parameters(dist.base_dist), _rule)
    )
