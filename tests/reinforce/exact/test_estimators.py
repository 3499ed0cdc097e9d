"""Moments of estimators by enumeration of batches: biases and variances that are theorems."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce import exact


class Bandit:
    """Three arms with generic rewards; every estimator below is a function of r and e."""

    def __init__(self, seed: int = 0, arms: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(arms, generator=generator, dtype=torch.float64)
        self.logits.requires_grad_()
        self.reward = torch.randn(arms, generator=generator, dtype=torch.float64)
        self.policy = Categorical(logits=self.logits)
        self.score = exact.eligibilities(self.policy, self.logits)
        self.truth = exact.gradient(self.policy, self.reward.__getitem__, self.logits)


@pytest.fixture(params=[0, 1])
def bandit(request: pytest.FixtureRequest) -> Bandit:
    return Bandit(seed=request.param)


def close(got: Tensor, wanted: Tensor) -> None:
    """float64 rounding of sums over at most a few hundred batches."""
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)


def test_eligibilities_are_one_hot_minus_probs(bandit: Bandit) -> None:
    close(bandit.score, torch.eye(3, dtype=torch.float64) - bandit.policy.probs.detach())


def test_gradient_is_the_expected_reward_times_eligibility(bandit: Bandit) -> None:
    score_route = exact.expectation(
        bandit.policy, lambda a: bandit.reward[a][:, None] * bandit.score[a]
    )
    close(bandit.truth, score_route.detach())


def test_expectation_is_differentiable_and_gradient_differentiates_it(bandit: Bandit) -> None:
    value = exact.expectation(bandit.policy, bandit.reward.__getitem__)
    (by_autograd,) = torch.autograd.grad(value, bandit.logits)
    close(by_autograd, bandit.truth)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_reinforce_is_unbiased_and_its_variance_falls_as_one_over_n(
    bandit: Bandit, samples: int
) -> None:
    def reinforce(action: Tensor) -> Tensor:
        return bandit.reward[action] @ bandit.score[action] / samples

    got = exact.moments(bandit.policy, reinforce, samples=samples)
    single = exact.covariance(bandit.policy, lambda a: bandit.reward[a] @ bandit.score[a])
    assert got.batches == 3**samples
    close(got.mean, bandit.truth)
    close(got.covariance, single / samples)


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_centring_with_the_batch_mean_loses_one_nth_of_the_gradient(
    bandit: Bandit, samples: int
) -> None:
    def centred(action: Tensor) -> Tensor:
        r = bandit.reward[action]
        return (r - r.mean()) @ bandit.score[action] / samples

    got = exact.moments(bandit.policy, centred, samples=samples).mean
    close(got, (1 - 1 / samples) * bandit.truth)


def leave_one_out(bandit: Bandit, action: Tensor) -> Tensor:
    r = bandit.reward[action]
    others = (r.sum() - r) / (len(r) - 1)
    return (r - others) @ bandit.score[action] / len(r)


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_leave_one_out_is_unbiased_and_has_the_variance_of_its_u_statistic(
    bandit: Bandit, samples: int
) -> None:
    got = exact.moments(bandit.policy, lambda a: leave_one_out(bandit, a), samples=samples)
    close(got.mean, bandit.truth)
    closed_form = exact.leave_one_out_variance(
        bandit.policy, bandit.reward.__getitem__, bandit.logits, samples=samples
    )
    close(closed_form, got.variance)


def test_vectorized_estimator_gives_the_same_moments(bandit: Bandit) -> None:
    def estimator(action: Tensor) -> Tensor:
        return leave_one_out(bandit, action)

    one_by_one = exact.moments(bandit.policy, estimator, samples=3)
    at_once = exact.moments(bandit.policy, torch.func.vmap(estimator), samples=3, vectorized=True)
    close(at_once.mean, one_by_one.mean)
    close(at_once.covariance, one_by_one.covariance)


def test_moments_do_not_depend_on_how_batches_are_chunked(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moments() -> exact.Moments:
        return exact.moments(bandit.policy, lambda a: leave_one_out(bandit, a), samples=4)

    whole = moments()
    monkeypatch.setattr("eligibility.reinforce.exact.estimators._CHUNK", 7)
    chunked = moments()
    close(chunked.mean, whole.mean)
    close(chunked.covariance, whole.covariance)


def test_optimal_per_weight_baseline_of_a_categorical_is_the_published_closed_form(
    bandit: Bandit,
) -> None:
    """b_k = E[r e_k²]/E[e_k²] = (1 − π_k) q_k + π_k E[q | a ≠ k]."""
    probs, q = bandit.policy.probs.detach(), bandit.reward
    closed = (1 - probs) * q + probs * (probs @ q - probs * q) / (1 - probs)
    by_moments = optimal_baseline(bandit)
    close(closed, by_moments)
    for k in range(3):  # no other number in place of b_k has less variance
        variances = [per_weight_variance(bandit, by_moments, k, shift)[k] for shift in (-0.1, 0.1)]
        assert min(variances) > per_weight_variance(bandit, by_moments, k, 0.0)[k]


def optimal_baseline(bandit: Bandit) -> Tensor:
    probs, squared = bandit.policy.probs.detach(), bandit.score.square()
    return (probs * bandit.reward) @ squared / (probs @ squared)


def per_weight_variance(bandit: Bandit, baseline: Tensor, k: int, shift: float) -> Tensor:
    shifted = baseline.clone()
    shifted[k] += shift
    return exact.variance(
        bandit.policy,
        lambda a: ((bandit.reward[a][:, None] - shifted) * bandit.score[a]).squeeze(0),
    )


def in_batch_baseline(bandit: Bandit, action: Tensor) -> Tensor:
    r, e = bandit.reward[action][:, None], bandit.score[action]
    b = (r * e.square()).mean(0) / e.square().mean(0)
    return ((r - b) * e).mean(0)


def test_optimal_baseline_from_the_same_single_sample_gives_no_gradient_at_all(
    bandit: Bandit,
) -> None:
    got = exact.moments(bandit.policy, lambda a: in_batch_baseline(bandit, a), samples=1)
    assert float(got.mean.abs().max()) < 1e-15
    assert float(got.variance.max()) < 1e-30


def test_optimal_baseline_from_the_same_batch_is_biased(bandit: Bandit) -> None:
    got = exact.moments(bandit.policy, lambda a: in_batch_baseline(bandit, a), samples=4).mean
    assert float((got - bandit.truth).norm() / bandit.truth.norm()) > 0.1


def test_moving_average_over_past_samples_is_unbiased_at_every_step(bandit: Bandit) -> None:
    """Williams 1992, eq. (10): r̄(t) = γ r(t−1) + (1 − γ) r̄(t−1) never uses the current r."""

    def step_gradients(action: Tensor) -> Tensor:
        average, gradients = torch.tensor(0.0, dtype=torch.float64), []
        for a in action:
            gradients.append((bandit.reward[a] - average) * bandit.score[a])
            average = 0.3 * bandit.reward[a] + 0.7 * average
        return torch.stack(gradients)

    got = exact.moments(bandit.policy, step_gradients, samples=3)
    close(got.mean, bandit.truth.expand(3, -1))
    assert got.variance.shape == (3, 3)


def test_gradient_with_respect_to_several_tensors_is_one_vector() -> None:
    shift = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    base = torch.tensor([0.5, -1.0], dtype=torch.float64)
    unused = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    policy = Bernoulli(logits=scale * base + shift)
    got = exact.gradient(policy, lambda y: y.sum(1), [shift, scale, unused])
    slope = torch.sigmoid(base) * torch.sigmoid(-base)
    wanted = torch.cat([slope, (slope @ base)[None], torch.zeros(3, dtype=torch.float64)])
    close(got, wanted)
    assert exact.eligibilities(policy, [shift, scale, unused]).shape == (4, 6)


# Published numbers ---------------------------------------------------------------------------


def test_rebar_toy_variances_of_tucker_et_al_2017() -> None:
    """E[(b − t)²], t = .499, p = .5: single-sample REINFORCE .0156251, leave-one-out 2.5e-7.

    By hand: f(1) = .251001, f(0) = .249001; g = f(b)(b − p) = ½ f(1) or −½ f(0), so the variance
    is (f(1) + f(0))²/16 = .500002²/16. For the pair: 0 if b₁ = b₂, else ½(f(1) − f(0)) = .001, so
    the variance is .001²/4.
    """
    logit = torch.zeros((), dtype=torch.float64, requires_grad=True)
    policy = Bernoulli(logits=logit)

    def loss(b: Tensor) -> Tensor:
        return (b - 0.499) ** 2

    def reinforce(b: Tensor) -> Tensor:
        return (loss(b) * (b - 0.5)).mean()

    def pair(b: Tensor) -> Tensor:
        return (loss(b) - loss(b.flip(0))) @ (b - 0.5) / 2

    single = float(exact.variance(policy, reinforce))
    assert single == pytest.approx(0.500002**2 / 16, rel=1e-13)
    assert f"{single:.7f}" == "0.0156251"
    double = float(exact.variance(policy, pair, samples=2))
    assert double == pytest.approx(0.002**2 / 16, rel=1e-9)  # f(1) − f(0) cancels 7 bits
    closed = float(exact.leave_one_out_variance(policy, loss, logit, samples=2))
    assert closed == pytest.approx(2.5e-7, rel=1e-9)


def test_bernoulli_toy_gradient_of_kool_et_al_2020() -> None:
    """Three bits of one shared logit η = 0: ∂E Σ(bᵢ − pᵢ)²/∂η = ¼ Σ(1 − 2pᵢ) = −.045."""
    target = torch.tensor([0.6, 0.51, 0.48], dtype=torch.float64)
    eta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    policy = Bernoulli(logits=eta.expand(3))
    got = exact.gradient(policy, lambda b: (b - target).square().sum(1), eta)
    assert float(got) == pytest.approx(-0.045, abs=1e-15)


def test_gaussian_unit_has_the_gradient_of_williams_equation_12() -> None:
    """r = y: ∂E[y]/∂μ = 1 and ∂E[y]/∂σ = 0; the eligibilities are (12)'s."""
    mean = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    spread = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    outcomes = exact.law(Normal(mean, spread))
    got = exact.gradient(outcomes, lambda y: y, [mean, spread])
    torch.testing.assert_close(
        got, torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-13
    )
    y = outcomes.values
    wanted = torch.stack([(y - 0.4) / 0.49, ((y - 0.4) ** 2 - 0.49) / 0.343], 1)
    torch.testing.assert_close(exact.eligibilities(outcomes, [mean, spread]), wanted)


# Mistakes ------------------------------------------------------------------------------------


def message(kind: type[Exception], call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_mistakes_say_what_to_do(bandit: Bandit) -> None:
    policy, logits = bandit.policy, bandit.logits
    assert message(InvalidValueError, exact.moments, policy, lambda a: a, samples=20) == (
        "enumeration of batches: got 3486784401, expected at most 1000000; "
        "use fewer samples or outcomes, or raise `limit`"
    )
    assert message(InvalidValueError, exact.moments, policy, lambda a: a, samples=0) == (
        "`samples`: got 0, expected at least 1; pass a batch size"
    )
    rewards = bandit.reward.__getitem__
    assert (
        message(InvalidValueError, exact.leave_one_out_variance, policy, rewards, logits, samples=1)
        == "`samples`: got 1, expected at least 2; one sample cannot be centred"
    )


def test_reward_of_the_wrong_shape_is_refused(bandit: Bandit) -> None:
    assert (
        message(ShapeError, exact.gradient, bandit.policy, lambda a: bandit.score[a], bandit.logits)
        == "the result of `reward`: got shape [3, 3], expected [3]; return one number for each "
        "outcome"
    )
    assert message(ShapeError, exact.expectation, bandit.policy, lambda a: a.sum()) == (
        "the result of the function: got shape [], expected [3, ...]; it is called once with all "
        "outcomes and returns one row for each"
    )


def test_estimates_of_the_wrong_shape_are_refused(bandit: Bandit) -> None:
    assert message(
        ShapeError, exact.moments, bandit.policy, lambda a: a.sum(), samples=2, vectorized=True
    ) == (
        "the result of a vectorized `estimator`: got shape [], expected [9, ...]; return one "
        "estimate for each batch"
    )
    assert message(ShapeError, exact.moments, bandit.policy, lambda a: torch.zeros(5000)) == (
        "the result of `estimator`: got 5000 numbers, expected at most 4096, because the "
        "covariance is a matrix; estimate the gradient of fewer parameters"
    )


@pytest.mark.parametrize("requires_grad", [True, False])
def test_parameters_that_the_policy_does_not_depend_on_are_refused(requires_grad: bool) -> None:
    logits = torch.zeros(2, requires_grad=requires_grad)
    policy = Categorical(logits=logits)
    other = torch.zeros(2, requires_grad=True)
    assert message(InvalidValueError, exact.gradient, policy, lambda a: a, other) == (
        "`wrt`: got nothing that the policy depends on, expected tensors that require a gradient "
        "and from which the policy was computed; build the policy after requires_grad_(), and "
        "pass the same tensor objects"
    )


def test_underflowing_batches_do_no_harm() -> None:
    tiny = torch.tensor([0.0, -400.0], dtype=torch.float64)
    got = exact.moments(Categorical(logits=tiny), lambda a: a.double().sum(), samples=2)
    assert float(got.mean) == pytest.approx(2 * math.exp(-400), rel=1e-12)
