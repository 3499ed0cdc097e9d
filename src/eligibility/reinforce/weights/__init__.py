"""Williams' e_ij: the eligibility of every weight of a network, one for each sample, in factors."""

from eligibility.reinforce.weights.per_sample import (
    PerSampleEligibilities,
    per_sample_eligibilities,
)

__all__ = ["PerSampleEligibilities", "per_sample_eligibilities"]
