"""The mathematics: pure tensor functions, one file per family, and the registry that finds them.

Importing this package registers every rule.
"""

# ruff: noqa: F401  # each of these modules registers its rules
from eligibility.rules import (
    bernoulli,
    binomial,
    categorical,
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
