"""Fisher information is E[e eᵀ]: summed over every outcome, by a route without the closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Multinomial,
    OneHotCategorical,
)

import eligibility as el
from eligibility.errors import UnsupportedDistributionError
from eligibility.rules import fisher
from tests.rules.cases import CASES, Case
from tests.rules.integration import nodes


def formulas(case: Case) -> set[str]:
    """The parameters with a closed form, of the class or of its bases."""
    found = [fisher._FORMULAS.get(cls, {}) for cls in case.distribution.__mro__]
    return {name for own in found for name in own}


CLOSED_FORMS = [case for case in CASES if formulas(case) & set(case.draws)]


@pytest.mark.parametrize("case", CLOSED_FORMS, ids=lambda case: case.name)
def test_is_the_expectation_of_the_outer_product(case: Case) -> None:
    dist = case.build(**case.parameters((), seed=9))
    value, mass = nodes(case, dist)
    eligibilities = el.eligibility(dist, value, allow_parameter_dependent_support=True)
    closed = tuple(name for name in eligibilities if name in formulas(case))
    for name, information in el.fisher_information(dist, closed).items():
        event = eligibilities[name].shape[1:]
        flat = eligibilities[name].reshape(len(mass), -1)
        expected = torch.einsum("m,mi,mj->ij", mass, flat, flat).reshape(event + event)
        torch.testing.assert_close(information, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("case", CLOSED_FORMS, ids=lambda case: case.name)
def test_has_the_batch_shape_and_twice_the_event_shape(case: Case) -> None:
    parameters = case.parameters((2, 3), seed=10)
    dist = case.build(**parameters)
    closed = tuple(name for name in parameters if name in formulas(case))
    for name, information in el.fisher_information(dist, closed).items():
        event = parameters[name].shape[2:]
        assert information.shape == (2, 3, *event, *event)
        one = case.build(**{key: tensor[1, 2] for key, tensor in parameters.items()})
        torch.testing.assert_close(information[1, 2], el.fisher_information(one, name)[name])


@pytest.mark.parametrize("wrt", ["probs", "logits"])
def test_does_not_depend_on_what_the_object_was_given(wrt: str) -> None:
    for cls, width in ((Bernoulli, ()), (Categorical, (3,))):
        logits = torch.randn(4, *width, generator=torch.Generator().manual_seed(0)).double()
        given_logits = cls(logits=logits)
        given_probs = cls(probs=cls(logits=logits).probs)
        torch.testing.assert_close(
            el.fisher_information(given_logits, wrt)[wrt],
            el.fisher_information(given_probs, wrt)[wrt],
        )


def test_logits_of_one_draw_are_the_covariance_of_the_one_hot() -> None:
    probs = torch.tensor([0.2, 0.5, 0.3])
    expected = torch.diag(probs) - torch.outer(probs, probs)
    for dist in (Categorical(probs), OneHotCategorical(probs), Multinomial(1, probs)):
        torch.testing.assert_close(el.fisher_information(dist, "logits")["logits"], expected)


def test_saturated_coin_keeps_its_information() -> None:
    information = el.fisher_information(Bernoulli(logits=torch.tensor(30.0)))["logits"]
    assert float(information) == pytest.approx(math.exp(-30), rel=1e-6)


def test_low_precision_is_rounded_once() -> None:
    probs = torch.tensor(0.001, dtype=torch.bfloat16)
    information = el.fisher_information(Binomial(3, probs=probs))["probs"]
    exact = 3 / (float(probs) * (1 - float(probs)))
    assert torch.equal(information, torch.tensor(exact, dtype=torch.bfloat16))


def test_enumeration_is_the_same_as_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    dist: Distribution = Categorical(logits=torch.tensor([[0.1, 0.5, -1.0], [2.0, 0.0, 0.0]]))
    closed = el.fisher_information(dist, ("probs", "logits"))
    monkeypatch.setattr(fisher, "_FORMULAS", {})
    torch.testing.assert_close(el.fisher_information(dist, ("probs", "logits")), closed)


def test_neither_closed_form_nor_finite_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fisher, "_FORMULAS", {})
    with pytest.raises(UnsupportedDistributionError) as caught:
        el.fisher_information(Multinomial(5, torch.ones(3)))
    assert str(caught.value) == (
        "the Fisher information of the probs of Multinomial: got a distribution without a closed "
        "form for it and without a finite support, expected one with either; estimate it as the "
        "mean of e eᵀ over samples, with e = eligibility(dist, samples)"
    )
