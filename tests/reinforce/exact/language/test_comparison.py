"""Bias and variance against a second enumeration, and the theorems on baselines and divergences."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import eligibility as el
from eligibility.errors import InvalidValueError, MissingDependencyError, ShapeError

exact = el.exact.language
o = exact.objectives
Estimators = tuple[exact.TokenEstimator, ...]


def short(language: Any) -> Any:
    """The same without the third token: 7 answers, 49 ordered pairs."""
    tables = [language.policy, language.behaviour, language.reference]
    return type(language)(*(table[:3] for table in tables), language.rewards[:7])


def brute_force(language: Any, estimator, size, kl_coef, behaviour):
    """E[g] and E‖g − E g‖² over *ordered* groups, each differentiated down to the logits."""
    every = exact.answers(behaviour)
    mean, second = torch.zeros_like(language.policy), 0.0
    for index in itertools.product(range(len(every)), repeat=size):
        drawn = every.values[torch.tensor([index])]
        policy = language.policy.clone().requires_grad_()
        batch = exact.AnswerGroups(
            drawn.log_probs(policy),
            drawn.log_probs(behaviour),
            drawn.log_probs(language.reference),
            language.rewards[torch.tensor([index])],
            drawn.mask.double(),
        )
        (gradient,) = torch.autograd.grad(estimator(batch, kl_coef).sum(), policy)
        weight = float(every.probs[list(index)].prod())
        mean, second = mean + weight * gradient, second + weight * float(gradient.square().sum())
    return mean.flatten(), second - float(mean.square().sum())


@pytest.mark.parametrize(
    "estimator",
    [*exact.CORRECTIONS, *exact.BASELINES[1:], *exact.KL_ESTIMATORS],
    ids=lambda estimator: estimator.name,
)
def test_moments_are_those_of_ordered_groups_through_the_logits(language: Any, estimator) -> None:
    language = short(language)
    comparison = el.exact.compare(
        language.policy,
        language.behaviour,
        language.rewards,
        language.reference,
        estimators=[estimator],
        drifts=[1.0],
        kl_coef=0.3,
    )
    (error,) = comparison.errors
    mean, variance = brute_force(language, estimator, 2, 0.3, language.behaviour)
    assert torch.allclose(error.mean, mean, atol=1e-14)
    assert error.variance * float(error.truth @ error.truth) == pytest.approx(variance, rel=1e-11)


def test_the_truth_is_the_derivative_of_the_objective(language: Any) -> None:
    policy = language.policy.clone().requires_grad_()
    objective = exact.answers(policy).probs @ language.rewards
    objective = objective - 0.3 * exact.answer_kl(policy, language.reference)
    (wanted,) = torch.autograd.grad(objective, policy)
    comparison = el.exact.compare(
        language.policy, language.behaviour, language.rewards, language.reference, kl_coef=0.3
    )
    assert torch.allclose(comparison.errors[0].truth, wanted.flatten(), atol=1e-15)


def test_on_policy_every_ratio_is_one_and_reinforce_is_unbiased(language: Any) -> None:
    comparison = el.exact.compare(
        language.policy, language.behaviour, language.rewards, drifts=[0.0]
    )
    for error in comparison.errors[:8]:  # those without a divisor
        assert error.bias < 1e-14, error.estimator


@pytest.mark.parametrize("drift", [0.25, 1.0, 2.0])
def test_only_the_ratio_of_the_whole_answer_is_unbiased_off_policy(language: Any, drift) -> None:
    comparison = el.exact.compare(
        language.policy, language.behaviour, language.rewards, drifts=[drift]
    )
    assert comparison["sequence ratio"][0].bias < 1e-14
    # A limit of 2 that no answer reaches changes nothing.
    reached = {"none", "token ratio", "MIS by token, [0.5, 2]", "GSPO, ε = 0.2"}
    for name in reached:
        assert comparison[name][0].bias > 0.01, name


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_mean_with_one_s_own_reward_shrinks_by_one_over_the_group(language: Any, size) -> None:
    comparison = el.exact.compare(
        language.policy,
        language.behaviour,
        language.rewards,
        estimators=exact.BASELINES,
        drifts=[0.0],
        group_sizes=[size],
    )
    mean, left_out = comparison["group mean"][0], comparison["leave-one-out"][0]
    factor = (size - 1) / size
    assert torch.allclose(mean.mean, factor * mean.truth, atol=1e-15)
    assert left_out.bias < 1e-14
    assert mean.variance == pytest.approx(factor**2 * left_out.variance, rel=1e-12)
    assert mean.rescaled_mse == pytest.approx(left_out.rescaled_mse, rel=1e-12)
    assert comparison["whitened"][0].angle > 1.0


def penalty_gradient(language: Any, estimator, drift):
    """What the divergence adds to E[g]: the rewards are a constant."""
    (error,) = el.exact.compare(
        language.policy,
        language.behaviour,
        torch.zeros(15),
        language.reference,
        estimators=[estimator],
        drifts=[drift],
        group_sizes=[1],
        kl_coef=1.0,
    ).errors
    return -error.mean.reshape(7, 3)


def gradient_of(function, language, **options):
    policy = language.policy.clone().requires_grad_()
    return torch.autograd.grad(function(policy, language.reference, **options), policy)[0]


def named(name: str) -> exact.TokenEstimator:
    return next(e for e in exact.KL_ESTIMATORS if e.name == name)


def test_theorem_k1_in_the_reward_is_the_divergence_of_answers(language: Any) -> None:
    got = penalty_gradient(language, named("k1 in the reward"), 0.0)
    assert torch.allclose(got, gradient_of(exact.answer_kl, language), atol=1e-15)


def test_theorem_k1_in_the_loss_is_nothing(language: Any) -> None:
    assert float(penalty_gradient(language, named("k1 in the loss"), 0.0).abs().max()) < 1e-15


@pytest.mark.parametrize("name", ["k2 in the loss", "ratio × k3 in the loss"])
def test_theorem_k2_in_the_loss_is_each_state_s_own_divergence(language: Any, name) -> None:
    got = penalty_gradient(language, named(name), 0.0)
    assert torch.allclose(got, gradient_of(exact.state_kl, language), atol=1e-15)


def test_theorem_k3_in_the_loss_is_each_state_s_forward_divergence(language: Any) -> None:
    got = penalty_gradient(language, named("k3 in the loss"), 0.0)
    wanted = gradient_of(exact.state_kl, language, direction="forward")
    assert torch.allclose(got, wanted, atol=1e-15)


def test_theorem_off_policy_the_ratio_keeps_the_divergence_and_not_the_visits(
    language: Any,
) -> None:
    """ρ_t k3 of answers of μ: each state's reverse divergence, at the states that μ visits."""
    got = penalty_gradient(language, named("ratio × k3 in the loss"), 1.0)
    visits = exact.state_visits(language.behaviour)
    assert torch.allclose(got, gradient_of(exact.state_kl, language, visits=visits), atol=1e-15)


def test_parameters_behind_the_logits(language: Any) -> None:
    """E[g] of shared parameters is the Jacobian's transpose times that of the logits."""
    mixing = torch.randn(21, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theta = torch.linspace(-1, 1, 4, dtype=torch.float64).requires_grad_()
    policy = (mixing @ theta).reshape(7, 3)
    options = {"drifts": [1.0], "estimators": exact.CORRECTIONS[:3]}
    free = el.exact.compare(policy.detach(), language.behaviour, language.rewards, **options)
    bound = el.exact.compare(policy, language.behaviour, language.rewards, wrt=theta, **options)
    for one, other in zip(free.errors, bound.errors, strict=True):
        assert torch.allclose(mixing.T @ one.mean, other.mean, atol=1e-14)
        assert torch.allclose(mixing.T @ one.truth, other.truth, atol=1e-14)


def test_a_sampler_that_cuts_tokens_off_is_biased_with_every_ratio(language: Any) -> None:
    behaviour = language.policy.clone()
    behaviour[0, int(behaviour[0].argmin())] = -math.inf
    comparison = el.exact.compare(
        language.policy,
        behaviour,
        language.rewards,
        estimators=exact.CORRECTIONS[:2],
        drifts=[0.0, 1.0],
    )
    on_policy, cut = comparison["sequence ratio"]
    assert on_policy.bias < 1e-14
    assert cut.behaviour_kl == math.inf
    assert cut.bias > 0.05


def test_errors_are_told_apart(language: Any) -> None:
    """Hand-made moments: E[g] = (3, 4)/10 of the truth (1, 0), variance 0.5."""
    mean, truth = torch.tensor([0.3, 0.4]), torch.tensor([1.0, 0.0])
    error = exact.EstimatorError("x", 1.0, 0.1, 2, mean, truth, 0.5)
    assert error.length == pytest.approx(0.5)
    assert error.bias == pytest.approx(math.hypot(0.7, 0.4))
    assert error.angle == pytest.approx(math.degrees(math.atan2(4, 3)))
    assert error.mse == pytest.approx(0.5 + 0.65)
    best = min(c**2 * (0.5 + 0.25) - 2 * c * 0.3 + 1 for c in torch.linspace(-2, 2, 40001).tolist())
    assert error.rescaled_mse == pytest.approx(best, abs=1e-6)
    nothing = exact.EstimatorError("x", 1.0, 0.1, 2, torch.zeros(2), truth, 0.0)
    assert math.isnan(nothing.angle)
    assert (nothing.bias, nothing.rescaled_mse) == (1.0, 1.0)


def test_the_table_shows_the_errors(language: Any) -> None:
    comparison = el.exact.compare(
        language.policy,
        language.behaviour,
        language.rewards,
        estimators=exact.BASELINES[1:3],
        drifts=[0.0],
        group_sizes=[2, 4],
    )
    assert str(comparison) == comparison.text()
    blocks = comparison.text().split("\n\n")
    assert blocks[0].splitlines()[0] == "drift 0 (KL(π‖μ) = 0.0000), 2 answers a prompt"
    error = comparison["leave-one-out"][1]
    wanted = ["leave-one-out", "0.000", "1.000", "0.0°"]
    wanted += [f"{error.variance:.2f}", f"{error.mse:.2f}", f"{error.rescaled_mse:.3f}"]
    assert blocks[1].splitlines()[-1].split() == wanted


def test_the_picture_has_a_line_an_estimator(language: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "drift.svg"
    comparison = el.exact.compare(language.policy, language.behaviour, language.rewards)
    figure = comparison.plot(path)
    assert [len(axes.lines) for axes in figure.axes] == [10, 10, 10]
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [0.0, 0.25, 0.5, 1.0]
    assert list(line.get_ydata()) == [error.bias for error in comparison["none"]]
    assert path.stat().st_size > 1000
    sizes = el.exact.compare(
        language.policy,
        language.behaviour,
        language.rewards,
        estimators=exact.BASELINES[1:],
        drifts=[0.0],
        group_sizes=[2, 3],
    ).plot()
    assert list(sizes.axes[0].lines[0].get_xdata()) == [2, 3]


def test_without_matplotlib_the_picture_says_what_to_install(language: Any, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    comparison = el.exact.compare(
        language.policy, language.behaviour, language.rewards, drifts=[0.0]
    )
    with pytest.raises(MissingDependencyError) as raised:
        comparison.plot()
    assert str(raised.value) == (
        "`Comparison.plot`: got no matplotlib, expected matplotlib; "
        "pip install 'eligibility[train]'"
    )


REFUSED = {
    "behaviour of another language": (
        {"behaviour": torch.zeros(3, 3).double()},
        ShapeError,
        "`behaviour`: got shape [3, 3], expected [7, 3], logits over the policy's prefixes and "
        "tokens; reshape it; nothing is broadcast silently",
    ),
    "rewards": (
        {"reward": torch.zeros(3)},
        ShapeError,
        "`reward`: got shape [3], expected [15]; return a tensor with one number for each answer",
    ),
    "rewards that are no tensor": (
        {"reward": lambda answers: 1.0},
        ShapeError,
        "`reward`: got float, expected [15]; return a tensor with one number for each answer",
    ),
    "constant rewards": (
        {"reward": torch.zeros(15)},
        InvalidValueError,
        "the gradient to compare with: got 0, expected a direction; pass rewards that differ "
        "between answers, or a reference other than the policy",
    ),
    "no reference": (
        {"estimators": exact.KL_ESTIMATORS, "kl_coef": 0.1},
        InvalidValueError,
        "`reference`: got None, expected the logits that 'k1 in the reward' needs; pass π_ref's "
        "logits",
    ),
    "coefficient without a reference": (
        {"kl_coef": 0.1},
        InvalidValueError,
        "`reference`: got None, expected the logits that β = 0.1 needs; pass π_ref's logits",
    ),
    "no coefficient": (
        {"estimators": exact.KL_ESTIMATORS, "reference": torch.zeros(7, 3).double()},
        InvalidValueError,
        "`kl_coef`: got 0, expected more than 0, because 'k1 in the reward' has a KL; pass β",
    ),
    "a group of one": (
        {"estimators": exact.BASELINES[2:3], "group_sizes": [1]},
        InvalidValueError,
        "the estimate 'leave-one-out' of 1 answers: got a number that is not finite, expected "
        "finite numbers; a baseline that compares answers needs groups of at least 2",
    ),
    "a group of none": (
        {"group_sizes": [0]},
        InvalidValueError,
        "`group_sizes`: got 0, expected at least 1; pass the number of answers per prompt",
    ),
    "too many groups": (
        {"group_sizes": [4], "limit": 1000},
        InvalidValueError,
        "enumeration of groups: got 3060, expected at most 1000; use fewer answers or smaller "
        "groups, or raise `limit`",
    ),
    "a drift backwards": (
        {"drifts": [-1.0]},
        InvalidValueError,
        "`drifts`: got -1.0, expected numbers ≥ 0; 0 is on-policy",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compared_is_refused(language: Any, case: str) -> None:
    changed, error, message = REFUSED[case]
    arguments = {"behaviour": language.behaviour, "reward": language.rewards, **changed}
    with pytest.raises(error) as raised:
        el.exact.compare(language.policy, **arguments)
    assert str(raised.value) == message


def test_an_estimator_that_was_not_compared_is_refused(language: Any) -> None:
    comparison = el.exact.compare(
        language.policy, language.behaviour, language.rewards, estimators=exact.BASELINES[:2]
    )
    with pytest.raises(InvalidValueError) as raised:
        comparison["mean"]
    assert str(raised.value) == (
        "the estimator: got 'mean', expected one of 'no baseline', 'group mean'; name it"
    )
