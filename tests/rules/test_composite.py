"""Independent, TransformedDistribution and MixtureSameFamily, beyond the contract of every rule."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Categorical,
    Exponential,
    Independent,
    LogNormal,
    MixtureSameFamily,
    Normal,
    TransformedDistribution,
    Uniform,
)
from torch.distributions.transforms import AffineTransform, ExpTransform

import eligibility as el
from eligibility.errors import (
    InvalidReinforceError,
    InvalidTypeError,
    InvalidValueError,
    UnsupportedDistributionError,
)
from eligibility.rules.registry import find_rule

LOC, SCALE = torch.tensor([0.2, -1.0]), torch.tensor([0.5, 2.0])


def test_transformed_normal_is_the_log_normal() -> None:
    value = torch.tensor([0.3, 4.0])
    by_chain = el.eligibility(TransformedDistribution(Normal(LOC, SCALE), ExpTransform()), value)
    torch.testing.assert_close(by_chain, el.eligibility(LogNormal(LOC, SCALE), value))


def test_what_a_transform_holds_is_no_parameter() -> None:
    dist = TransformedDistribution(Exponential(torch.tensor(1.0)), AffineTransform(0.0, 3.0))
    with pytest.raises(UnsupportedDistributionError, match="'scale', expected 'rate'"):
        el.eligibility(dist, torch.tensor(1.0), wrt="scale")


def test_outcome_that_no_base_outcome_maps_to() -> None:
    dist = TransformedDistribution(Exponential(torch.tensor(1.0)), ExpTransform())
    with pytest.raises(InvalidValueError, match="outside the support of Exponential"):
        el.eligibility(dist, torch.tensor(0.5))  # e^y is at least 1


def test_inside_independent_a_uniform_is_refused_as_well() -> None:
    dist = Independent(Uniform(torch.zeros(2), torch.ones(2)), 1)
    with pytest.raises(InvalidReinforceError, match="low of Independent"):
        el.eligibility(dist, torch.tensor([0.5, 0.5]))


def test_inside_independent_actions_are_checked_as_for_the_base() -> None:
    dist = Independent(Categorical(torch.ones(2, 3)), 1)
    with pytest.raises(InvalidTypeError, match="an integer dtype"):
        el.eligibility(dist, torch.tensor([0.0, 1.0]))
    assert el.eligibility(dist, torch.tensor([0, 1]))["probs"].shape == (2, 3)


def test_coordinates_reach_the_distribution_inside() -> None:
    dist = Independent(Categorical(torch.ones(2, 3)), 1)
    eligibility = el.eligibility(dist, torch.tensor([0, 1]), "probs", "ambient")["probs"]
    torch.testing.assert_close(eligibility, torch.tensor([[3.0, 0, 0], [0, 3.0, 0]]))


def test_a_composed_rule_tells_what_it_is() -> None:
    dist = Independent(TransformedDistribution(Normal(LOC, SCALE), ExpTransform()), 1)
    rule = find_rule(dist, "loc")
    assert rule.name == ("Gaussian unit, mean, inside TransformedDistribution, inside Independent")
    assert rule.equation == "(y − μ)/σ², at T⁻¹(value)"
    assert rule.symbols["σ"] == "base_dist.base_dist.scale"


def two_normals(weights: dict[str, torch.Tensor], dtype: torch.dtype) -> MixtureSameFamily:
    loc, scale = torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 0.5])
    components = Normal(loc.to(dtype), scale.to(dtype))
    return MixtureSameFamily(Categorical(**weights), components)


@pytest.mark.parametrize("given", ["probs", "logits"])
def test_expectation_over_a_mixture_is_zero(given: str) -> None:
    probs = torch.tensor([0.3, 0.7], dtype=torch.float64)
    weights = {"probs": probs} if given == "probs" else {"logits": probs.log()}
    dist = two_normals(weights, torch.float64)
    value = torch.linspace(-12, 12, 2001, dtype=torch.float64)
    mass = dist.log_prob(value).exp() * (24 / 2000)
    for name, eligibility in el.eligibility(dist, value).items():
        expectation = (mass.unsqueeze(-1) * eligibility).sum(0)
        assert float(expectation.abs().max()) < 1e-9, name


def test_a_component_of_weight_zero_has_a_finite_eligibility() -> None:
    """∂ ln f/∂w_k = f_k/f − 1 at Σw = 1, also for w_k = 0."""
    dist = two_normals({"probs": torch.tensor([1.0, 0.0])}, torch.float32)
    eligibility = el.eligibility(dist, torch.tensor(-1.0))
    ratio = 2 * math.exp(-18)  # N(−1; 2, ½)/N(−1; −1, 1)
    torch.testing.assert_close(
        eligibility["mixture_distribution.probs"], torch.tensor([0.0, ratio - 1])
    )
    assert eligibility["component_distribution.loc"].tolist() == [0.0, 0.0]


def test_mixture_far_in_the_tail_does_not_underflow() -> None:
    dist = two_normals({"logits": torch.zeros(2)}, torch.float32)
    eligibility = el.eligibility(dist, torch.tensor(-100.0))
    torch.testing.assert_close(
        eligibility["mixture_distribution.logits"], torch.tensor([0.5, -0.5])
    )
    assert eligibility["component_distribution.loc"].tolist() == [-99.0, 0.0]


def test_mixture_in_half_precision_rounds_once() -> None:
    dist = two_normals({"logits": torch.tensor([0.5, -0.25]).bfloat16()}, torch.bfloat16)
    exact = two_normals({"logits": dist.mixture_distribution.logits.double()}, torch.float64)
    value = torch.tensor(0.75)
    for name, eligibility in el.eligibility(dist, value.bfloat16()).items():
        expected = el.eligibility(exact, value.double())[name]
        assert torch.equal(eligibility, expected.bfloat16())


def test_unknown_path_into_a_mixture() -> None:
    dist = two_normals({"logits": torch.zeros(2)}, torch.float32)
    with pytest.raises(UnsupportedDistributionError) as caught:
        el.eligibility(dist, torch.tensor(0.0), wrt="loc")
    assert str(caught.value) == (
        "`wrt` of MixtureSameFamily: got 'loc', expected 'mixture_distribution.logits' or "
        "'component_distribution.loc' or 'component_distribution.scale'; name the parameter by the "
        "path to it"
    )


def test_weights_of_a_mixture_have_one_convention() -> None:
    dist = two_normals({"probs": torch.ones(2)}, torch.float32)
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(dist, torch.tensor(0.0), "mixture_distribution.probs", "tangent")
    assert str(caught.value) == (
        "`coordinates` of the mixture_distribution.probs of MixtureSameFamily: got 'tangent', "
        "expected 'weights'; the weights of a mixture have only this convention"
    )


def test_fisher_information_of_independent_events_is_block_diagonal() -> None:
    probs = torch.tensor([[0.2, 0.5], [0.1, 0.9], [0.5, 0.5]])
    information = el.fisher_information(Independent(Bernoulli(probs), 2))["probs"]
    assert information.shape == (3, 2, 3, 2)
    expected = torch.diag((1 / (probs * (1 - probs))).flatten()).reshape(3, 2, 3, 2)
    torch.testing.assert_close(information, expected)
    categorical = Categorical(logits=torch.tensor([[0.0, 1.0, 2.0], [0.5, 0.0, 0.0]]))
    blocks = el.fisher_information(categorical)["logits"]
    joint = el.fisher_information(Independent(categorical, 1))["logits"]
    torch.testing.assert_close(joint.reshape(6, 6), torch.block_diag(*blocks))


def test_fisher_information_survives_a_transform() -> None:
    dist = TransformedDistribution(Normal(LOC, SCALE), AffineTransform(1.0, 5.0))
    torch.testing.assert_close(
        el.fisher_information(dist), el.fisher_information(Normal(LOC, SCALE))
    )
