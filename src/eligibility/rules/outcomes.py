"""Whether a value is an outcome of a distribution."""

from __future__ import annotations

from functools import singledispatch

from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from eligibility.errors import InvalidValueError
from eligibility.shapes import are_values_readable, check_sample_shape


@singledispatch
def check_value(dist: Distribution, value: Tensor) -> None:
    """Raise unless ``value`` is an outcome of ``dist``; families register their own checks."""
    check_support(dist, value)


def check_support(dist: Distribution, value: Tensor) -> None:
    """Raise unless ``value`` has the shape of an outcome and lies in the support of ``dist``."""
    check_sample_shape(value, dist.batch_shape, dist.event_shape)
    support = support_of(dist)
    if support is None or not are_values_readable(value):
        return
    if not bool(support.check(value).all()):  # type: ignore[no-untyped-call]  # torch
        raise InvalidValueError(
            "`value`",
            f"outcomes outside the support of {type(dist).__name__}",
            str(support),
            "pass what the distribution can sample",
        )


def support_of(dist: Distribution) -> Constraint | None:
    """The support of ``dist``, or None if it does not say."""
    try:
        support: Constraint | None = dist.support
    except NotImplementedError:
        return None
    return support
