"""What every registered rule promises, by routes that do not use it: autograd, finite differences
of ``log_prob``, and sums or integrals over all outcomes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Gamma, LogNormal, Weibull

import eligibility as el
from eligibility.rules.registry import (
    constructed_parameters,
    find_rule,
    rules_of,
    shipped_distributions,
)
from tests.rules.cases import CASES, COMPOSED, Case

EACH_CASE = pytest.mark.parametrize("case", [*CASES, *COMPOSED], ids=lambda case: case.name)
BY_ODDS = [case for case in CASES if set(case.draws) in ({"probs"}, {"logits"})]
BATCH_SHAPES = [(), (3,), (2, 3)]


def build(case: Case, batch_shape: tuple[int, ...], seed: int = 0) -> Distribution:
    return case.build(**case.parameters(batch_shape, seed))


def sample(dist: Distribution, sample_shape: tuple[int, ...], seed: int = 1) -> Tensor:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Singular sample", UserWarning)  # Wishart's, always
        torch.manual_seed(seed)
        return dist.sample(sample_shape)


def eligibilities(dist: Distribution, value: Tensor) -> dict[str, Tensor]:
    return el.eligibility(dist, value, allow_parameter_dependent_support=True)


def autograd(case: Case, parameters: dict[str, Tensor], value: Tensor) -> dict[str, Tensor]:
    """One gradient per sample: a parameter of its own for every sample."""
    dist = case.build(**parameters)
    lead = value.shape[: value.ndim - len(dist.batch_shape) - len(dist.event_shape)]
    leaves = {
        name: tensor.expand(lead + tensor.shape).clone().requires_grad_()
        for name, tensor in parameters.items()
    }
    log_prob = case.log_prob(case.build(**leaves), value)
    gradients = torch.autograd.grad(log_prob.sum(), list(leaves.values()))
    # Stock Wishart also gives a slope to the entries above the diagonal, which it does not read.
    return {
        name: gradient.tril() if name == "scale_tril" else gradient
        for name, gradient in zip(leaves, gradients, strict=True)
    }


def test_every_rule_has_a_case() -> None:
    tested = {case.distribution for case in [*CASES, *COMPOSED]}
    shipped = set(shipped_distributions())
    assert not shipped - tested, "add a Case to tests/rules/cases.py"


@EACH_CASE
def test_default_is_what_it_was_constructed_with(case: Case) -> None:
    dist = build(case, (40,))
    assert constructed_parameters(dist) == tuple(case.draws)
    if case not in COMPOSED:
        for rule in rules_of(type(dist)):
            getattr(dist, rule.parameter)  # computes the lazy ones
    assert constructed_parameters(dist) == tuple(case.draws)
    assert constructed_parameters(dist.expand((3, 40))) == tuple(case.draws)


@EACH_CASE
def test_equals_autograd(case: Case) -> None:
    parameters = case.parameters((3,), seed=2)
    dist = case.build(**parameters)
    value = sample(dist, (7,))
    expected = autograd(case, parameters, value)
    for name, eligibility in eligibilities(dist, value).items():
        torch.testing.assert_close(eligibility, expected[name], rtol=1e-9, atol=1e-9)


@EACH_CASE
def test_equals_finite_differences(case: Case) -> None:
    parameters = case.parameters((), seed=3)
    dist = case.build(**parameters)
    value = sample(dist, ())
    step = 1e-5
    for name, eligibility in eligibilities(dist, value).items():
        for direction in directions(name, parameters[name]):
            differences = []
            for sign in (1, -1):
                shifted = {**parameters, name: parameters[name] + sign * step * direction}
                differences.append(case.log_prob(case.build(**shifted), value))
            slope = (differences[0] - differences[1]) / (2 * step)
            torch.testing.assert_close((eligibility * direction).sum(), slope, rtol=1e-6, atol=1e-6)


def directions(name: str, parameter: Tensor) -> list[Tensor]:
    """One direction for each entry of a parameter; symmetric and triangular matrices stay so."""
    units = torch.eye(parameter.numel(), dtype=parameter.dtype)
    matrices = units.reshape(-1, *parameter.shape)
    if name == "scale_tril":
        return [unit for unit in matrices if bool(unit.tril().any())]
    if name in ("covariance_matrix", "precision_matrix"):
        return [(unit + unit.mT) / 2 for unit in matrices]
    return list(matrices)


@EACH_CASE
@pytest.mark.parametrize("batch_shape", BATCH_SHAPES, ids=str)
@pytest.mark.parametrize("sample_shape", [(), (4,), (5, 2)], ids=str)
def test_shape_is_that_of_the_samples_and_of_the_parameter(
    case: Case, batch_shape: tuple[int, ...], sample_shape: tuple[int, ...]
) -> None:
    parameters = case.parameters(batch_shape, seed=4)
    dist = case.build(**parameters)
    assert dist.batch_shape == batch_shape
    for name, eligibility in eligibilities(dist, sample(dist, sample_shape)).items():
        assert eligibility.shape == sample_shape + parameters[name].shape


@EACH_CASE
def test_a_batch_is_its_members_one_by_one(case: Case) -> None:
    parameters = case.parameters((2, 3), seed=5)
    dist = case.build(**parameters)
    value = sample(dist, (4,))
    batched = eligibilities(dist, value)
    for i in range(2):
        for j in range(3):
            member = case.build(**{name: tensor[i, j] for name, tensor in parameters.items()})
            for name, one in eligibilities(member, value[:, i, j]).items():
                torch.testing.assert_close(batched[name][:, i, j], one, rtol=1e-12, atol=1e-12)


@EACH_CASE
def test_terms_sum_to_the_rule(case: Case) -> None:
    dist = build(case, (3,), seed=6)
    value = sample(dist, (5,))
    for name in case.draws:
        rule = find_rule(dist, name)
        terms = rule.terms(dist, value)
        torch.testing.assert_close(sum(terms.values()), rule(dist, value), rtol=1e-9, atol=1e-9)


@EACH_CASE
def test_a_reader_is_told_what_the_rule_is(case: Case) -> None:
    dist = build(case, ())
    for name in case.draws:
        rule = find_rule(dist, name)
        assert rule.name
        assert rule.equation
        assert rule.reference
        if case not in COMPOSED:
            assert set(rule.symbols.values()) <= {"value", *rule.reads, rule.parameter}


@pytest.mark.parametrize("case", BY_ODDS, ids=lambda case: case.name)
def test_eligibility_of_every_parameterisation_is_the_same_by_chain_rule(case: Case) -> None:
    """The rule for logits of an object given by probs, and the other way round."""
    (given,) = case.draws
    (other,) = {"probs", "logits"} - {given}
    dist = build(case, (3,), seed=7)
    value = sample(dist, (4,))
    twin = type(dist)(**{other: getattr(dist, other)}, **_fixed(dist))
    left = el.eligibility(dist, value, wrt=other)[other]
    right = el.eligibility(twin, value, wrt=other)[other]
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def _fixed(dist: Distribution) -> dict[str, object]:
    fixed = ("total_count", "temperature")
    return {name: getattr(dist, name) for name in fixed if hasattr(dist, name)}


@pytest.mark.parametrize("build", [LogNormal, Gamma, Weibull], ids=lambda cls: cls.__name__)
def test_integer_outcome_of_a_continuous_law_loses_no_digits(build: type[Distribution]) -> None:
    dist = build(torch.tensor(0.5, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
    whole = el.eligibility(dist, torch.tensor(3))
    assert whole == el.eligibility(dist, torch.tensor(3.0, dtype=torch.float64))
