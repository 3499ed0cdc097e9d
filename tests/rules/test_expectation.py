"""E[eligibility] = 0: Williams' Theorem 1 rests on it. And where it is not 0, the refusal."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import (
    GeneralizedPareto,
    Pareto,
    Uniform,
)
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical

import eligibility as el
from eligibility.errors import InvalidReinforceError
from tests.rules.cases import CASES, Case
from tests.rules.integration import nodes

BIASED = {Uniform: ("low", "high"), Pareto: ("scale",), GeneralizedPareto: ("loc",)}
# The density of ExpRelaxedCategorical lives on a surface; RelaxedOneHotCategorical is its image.
INTEGRABLE = [case for case in CASES if case.distribution is not ExpRelaxedCategorical]


@pytest.mark.parametrize("case", INTEGRABLE, ids=lambda case: case.name)
def test_expectation_is_zero_unless_the_rule_says_why_not(case: Case) -> None:
    dist = case.build(**case.parameters((), seed=8))
    value, mass = nodes(case, dist)
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(mass.sum(), one, rtol=0, atol=1e-6)
    eligibilities = el.eligibility(dist, value, allow_parameter_dependent_support=True)
    for name, eligibility in eligibilities.items():
        weight = mass.reshape(-1, *[1] * (eligibility.ndim - 1))
        expectation = (weight * eligibility).sum(0)
        zero = torch.zeros_like(expectation)
        if name in BIASED.get(case.distribution, ()):
            assert float(expectation.abs()) > 0.1
        else:
            # Where the support ends at 1, what is beyond 1 − 2⁻⁵³ is left out.
            torch.testing.assert_close(expectation, zero, rtol=0, atol=1e-6)
