"""The mathematics: pure tensor functions, one file per family, and the registry that finds them.

Importing this package registers every rule.
"""

from eligibility.rules import (
    bernoulli,
    binomial,
    categorical,
    circle,
    composite,
    counts,
    fisher,
    fisher_families,
    location_scale,
    matrix,
    mixture,
    moving_support,
    multinomial,
    positive,
    relaxed,
    simplex,
    unit_interval,
)

__all__ = [
    "bernoulli",
    "binomial",
    "categorical",
    "circle",
    "composite",
    "counts",
    "fisher",
    "fisher_families",
    "location_scale",
    "matrix",
    "mixture",
    "moving_support",
    "multinomial",
    "positive",
    "relaxed",
    "simplex",
    "unit_interval",
]
