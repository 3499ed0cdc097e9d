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


def test_a_parameter_that_moves_the_support_is_refused_with_the_reason() -> None:
    dist = Uniform(torch.tensor(0.0), torch.tensor(4.0))
    with pytest.raises(InvalidReinforceError) as caught:
        el.eligibility(dist, torch.tensor(1.0), wrt="low")
    assert str(caught.value) == (
        "the eligibility of the low of Uniform: got an expectation that is not 0: the support "
        "[low, high) moves with it, expected a parameter that does not move the support; choose "
        "the others with wrt, use a pathwise gradient (rsample), or pass "
        "allow_parameter_dependent_support=True to get the number anyway"
    )
    allowed = el.eligibility(dist, torch.tensor(1.0), allow_parameter_dependent_support=True)
    assert allowed == {"low": 0.25, "high": -0.25}


def test_the_other_parameters_of_a_pareto_are_not_refused() -> None:
    dist = Pareto(torch.tensor(1.0), torch.tensor(2.0))
    assert list(el.eligibility(dist, torch.tensor(3.0), wrt="alpha")) == ["alpha"]
    with pytest.raises(InvalidReinforceError, match="the support starts at scale"):
        el.eligibility(dist, torch.tensor(3.0))


@pytest.mark.parametrize(("concentration", "refused"), [(-2.0, True), (-1.0, True), (-0.5, False)])
def test_upper_end_of_a_generalized_pareto(concentration: float, refused: bool) -> None:
    """It moves with scale and concentration, and the density vanishes there for ξ > −1."""
    shape = torch.tensor(concentration)
    dist = GeneralizedPareto(torch.tensor(0.0), torch.tensor(1.0), shape)
    value = torch.tensor(0.25)
    if refused:
        with pytest.raises(InvalidReinforceError, match="not 0 where the support ends"):
            el.eligibility(dist, value, wrt=("scale", "concentration"))
    else:
        assert len(el.eligibility(dist, value, wrt=("scale", "concentration"))) == 2
