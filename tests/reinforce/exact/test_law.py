"""Laws: complete, differentiable, refused when they are too large or cannot be enumerated."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

import eligibility as el
from eligibility.errors import (
    InvalidReinforceError,
    InvalidTypeError,
    InvalidValueError,
    ShapeError,
    UnsupportedDistributionError,
)
from eligibility.reinforce import exact


def f64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


FINITE: dict[str, tuple[Distribution, int]] = {
    "categorical": (td.Categorical(logits=f64(0.3, -1.0, 2.0)), 3),
    "categorical batch": (td.Categorical(logits=f64(0.3, -1.0, 2.0).repeat(2, 1)), 9),
    "one hot": (td.OneHotCategorical(logits=f64(0.3, -1.0, 2.0)), 3),
    "bernoulli batch": (td.Bernoulli(probs=f64(0.3, 0.9, 0.5)), 8),
    "binomial": (td.Binomial(4, probs=f64(0.3, 0.6)), 25),
    "multinomial": (td.Multinomial(3, logits=f64(0.3, -1.0, 2.0)), 10),
    "multinomial batch": (td.Multinomial(2, logits=f64(0.3, -1.0).repeat(2, 1)), 9),
    "independent": (td.Independent(td.Bernoulli(probs=f64(0.3, 0.9)), 1), 4),
}
CONTINUOUS: dict[str, tuple[Distribution, float]] = {
    # law, quadrature error allowed on mean and variance
    "normal": (td.Normal(f64(3.0), f64(0.2)), 1e-13),
    "laplace": (td.Laplace(f64(-1.0), f64(2.0)), 1e-11),
    "gumbel": (td.Gumbel(f64(1.0), f64(2.0)), 1e-11),
    "gamma": (td.Gamma(f64(0.3), f64(4.0)), 1e-11),
    "exponential": (td.Exponential(f64(3.0)), 1e-11),
    "lognormal": (td.LogNormal(f64(0.1), f64(0.5)), 1e-11),
    "beta": (td.Beta(f64(2.5), f64(1.5)), 1e-11),
    "beta, singular at 0": (td.Beta(f64(0.5), f64(1.5)), 1e-11),
    "uniform": (td.Uniform(f64(-1.0), f64(3.0)), 1e-11),
    "student t": (td.StudentT(f64(7.0), f64(1.0), f64(2.0)), 1e-9),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite_law_is_complete_and_agrees_with_log_prob(name: str) -> None:
    policy, size = FINITE[name]
    outcomes = exact.law(policy)
    assert len(outcomes) == size
    assert len({tuple(row.flatten().tolist()) for row in outcomes.values}) == size
    assert float(outcomes.probs.sum()) == pytest.approx(1.0, abs=1e-15 * size)
    joint = policy.log_prob(outcomes.values).reshape(size, -1).sum(1)
    torch.testing.assert_close(outcomes.log_probs, joint, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["bernoulli batch", "binomial", "multinomial", "one hot"])
def test_expectation_of_the_outcome_is_the_mean(name: str) -> None:
    policy, _ = FINITE[name]
    torch.testing.assert_close(exact.expectation(policy, lambda y: y), policy.mean)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quadrature_reproduces_mean_and_variance(name: str) -> None:
    policy, tolerance = CONTINUOUS[name]
    outcomes = exact.law(policy, nodes=None if name == "normal" else 400)
    mean = exact.expectation(outcomes, lambda y: y.flatten())
    variance = exact.expectation(outcomes, lambda y: (y.flatten() - mean) ** 2)
    torch.testing.assert_close(mean, policy.mean.squeeze(), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(variance, policy.variance.squeeze(), rtol=tolerance, atol=0)


def test_gauss_hermite_is_exact_for_polynomials_and_their_gradients() -> None:
    mean = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    spread = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    policy = td.Normal(mean, spread)
    # E[y⁴] = μ⁴ + 6μ²σ² + 3σ⁴; its density is degree 6 after the score, so 4 nodes suffice.
    got = exact.gradient(policy, lambda y: y**4, [mean, spread], nodes=4)
    m, s = 0.7, 1.3
    wanted = f64(4 * m**3 + 12 * m * s**2, 12 * m**2 * s + 12 * s**3)
    torch.testing.assert_close(got, wanted, rtol=1e-13, atol=0)


def test_breaks_make_a_discontinuous_reward_exact() -> None:
    mean = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    policy = td.Normal(mean, 1.0)
    got = exact.gradient(policy, lambda y: (y > 0.5).double(), mean, breaks=[0.5])
    density = math.exp(-0.125) / math.sqrt(2 * math.pi)  # ∂P(y > ½)/∂μ = φ(½)
    assert float(got) == pytest.approx(density, rel=1e-11)
    without = exact.gradient(policy, lambda y: (y > 0.5).double(), mean)
    assert abs(float(without) - density) > 1e-4


def test_cauchy_has_no_mean_and_still_a_law() -> None:
    loc = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    got = exact.gradient(td.Cauchy(loc, 3.0), lambda y: torch.sign(y - 2.0), loc, breaks=[2.0])
    # P(y > 2) − P(y < 2) as a function of loc has the slope 2 · density(0) = 2 / (3π).
    assert float(got) == pytest.approx(2 / (3 * math.pi), rel=1e-11)


def test_impossible_outcomes_are_left_out_and_gradients_stay_finite() -> None:
    logits = torch.tensor([0.0, -math.inf, 1.0], dtype=torch.float64, requires_grad=True)
    policy = td.Categorical(logits=logits)
    assert exact.law(policy).values.tolist() == [0, 2]
    reward = f64(1.0, math.inf, 3.0)
    got = exact.gradient(policy, reward.__getitem__, logits)
    p = 1 / (1 + math.e)
    torch.testing.assert_close(got, f64(-2 * p * (1 - p), 0.0, 2 * p * (1 - p)))


def masked(*legal: bool) -> Tensor:
    return torch.tensor(legal)


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        (el.Categorical(logits=torch.zeros(2, 3), mask=masked(True, False, True)), 4),
        (el.OneHotCategorical(logits=torch.zeros(3), mask=masked(True, False, True)), 2),
        (el.Multinomial(3, logits=torch.zeros(3), mask=masked(True, False, True)), 4),
        (el.Multinomial(torch.tensor(2), logits=torch.zeros(3)), 6),
        (td.Categorical(probs=torch.tensor([0.0, 0.3, 0.7])), 2),  # torch's log_prob says 1e-7
    ],
    ids=repr,
)
def test_forbidden_outcomes_are_left_out(policy: Distribution, size: int) -> None:
    assert len(exact.law(policy)) == size


def test_quadrature_takes_mixtures_and_transforms() -> None:
    parts = td.Normal(f64(-1.0, 2.0), f64(0.5, 1.0))
    mixture = td.MixtureSameFamily(td.Categorical(f64(0.3, 0.7)), parts)
    torch.testing.assert_close(exact.expectation(mixture, lambda y: y), mixture.mean)
    torch.testing.assert_close(
        exact.expectation(mixture, lambda y: (y - mixture.mean) ** 2), mixture.variance
    )
    loc = torch.tensor(0.2, dtype=torch.float64)
    squashed = td.TransformedDistribution(td.Normal(loc, 0.5), [td.SigmoidTransform()])
    direct = exact.expectation(td.Normal(loc, 0.5), torch.sigmoid)
    torch.testing.assert_close(exact.expectation(squashed, lambda y: y), direct)


def test_law_of_a_law_is_itself() -> None:
    outcomes = exact.law(td.Bernoulli(f64(0.3)))
    assert exact.law(outcomes) is outcomes


@pytest.mark.parametrize(
    ("policy", "kind", "message"),
    [
        (
            td.Categorical(torch.ones(20, 4)),
            InvalidValueError,
            "enumeration of outcomes: got about 10^12, expected at most 1000000; "
            "make the problem smaller, or raise `limit`",
        ),
        (
            td.Multinomial(50, torch.ones(10)),
            InvalidValueError,
            "enumeration of counts: got 12565671261, expected at most 1000000; "
            "use fewer trials or categories, or raise `limit`",
        ),
        (
            td.Normal(torch.zeros(2), 1.0),
            ShapeError,
            "`policy`: got Normal with batch shape [2] and event shape [], expected a finite "
            "support, or one scalar continuous law; reduce the problem to one scalar, or build a "
            "Law from your own nodes",
        ),
        (
            td.Poisson(torch.tensor(2.0)),
            UnsupportedDistributionError,
            "`policy`: got Poisson, with infinitely many outcomes, expected a finite support, or "
            "a scalar continuous law; build a Law from the outcomes that matter",
        ),
        (
            td.Uniform(torch.tensor(0.0, requires_grad=True), 1.0),
            InvalidReinforceError,
            "support of Uniform: got a bound that requires a gradient, expected a support that "
            "does not move with the parameters; E[eligibility] is not 0 there; detach the bound, "
            "or reparameterise",
        ),
        (
            td.VonMises(torch.tensor(0.0), torch.tensor(1.0)),
            InvalidValueError,
            None,
        ),
    ],
    ids=lambda argument: type(argument).__name__ if isinstance(argument, Distribution) else None,
)
def test_what_cannot_be_enumerated_is_refused(
    policy: Distribution, kind: type[Exception], message: str | None
) -> None:
    with pytest.raises(kind) as caught:
        exact.law(policy)
    if message is not None:
        assert str(caught.value) == message


@pytest.mark.parametrize(
    "policy",
    [
        td.Binomial(torch.tensor([2, 3]), torch.tensor([0.5, 0.5])),
        el.Multinomial(torch.tensor([2, 3]), torch.ones(2, 2)),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_different_counts_in_one_batch_are_refused(policy: Distribution) -> None:
    with pytest.raises(UnsupportedDistributionError) as caught:
        exact.law(policy)
    assert str(caught.value) == (
        f"support of {type(policy).__name__}: got members of the batch with different total "
        "counts, expected the same support for each of them; build the law of each member by "
        "itself"
    )


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(InvalidTypeError) as caught:
        exact.law(torch.ones(3))
    assert str(caught.value) == (
        "`policy`: got Tensor, expected a torch.distributions object, or a Law; build the "
        "distribution of the outcomes first"
    )


def test_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(InvalidValueError) as caught:
        exact.Law(torch.arange(2), f64(0.5, 0.4).log())
    assert str(caught.value) == (
        "the probabilities of the law: got a sum of 0.9, expected 1 to within 1e-08; list every "
        "outcome; for a quadrature use more nodes, or breaks where the density is not smooth"
    )
