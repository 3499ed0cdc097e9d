"""Policies: what is sampled, and every closed form against torch's distributions by autograd."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    kl_divergence,
)

from eligibility.errors import InvalidTypeError
from eligibility.train.learner import Reinforce
from eligibility.train.policies import BernoulliPolicy, CategoricalPolicy, Policy, policy_for

HERE = "tests.train.environments:"


@dataclass(frozen=True)
class Case:
    """A space, and the same policy written with torch's distributions, one a factor."""

    space: spaces.Space
    factors: Callable[[Tensor], list[Distribution]]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """log π(a), ``[N]``."""
        factors = self.factors(outputs)
        actions = [action] if len(factors) == 1 else action.unbind(-1)
        return sum(f.log_prob(a.to(outputs)) for f, a in zip(factors, actions, strict=True))

    def entropy(self, outputs: Tensor) -> Tensor:
        """H, ``[N]``."""
        return sum(factor.entropy() for factor in self.factors(outputs))


CASES = {
    "Discrete": Case(spaces.Discrete(4), lambda z: [Categorical(logits=z)]),
    "MultiDiscrete": Case(
        spaces.MultiDiscrete([2, 3, 4]),
        lambda z: [Categorical(logits=part) for part in z.split([2, 3, 4], -1)],
    ),
    "MultiBinary": Case(spaces.MultiBinary(3), lambda z: [Independent(Bernoulli(logits=z), 1)]),
    "Box": Case(
        spaces.Box(-1, 1, (2,)),
        lambda z: [Independent(Normal(z[:, :2], z[:, 2:].exp()), 1)],
    ),
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Case, Policy, Tensor, Tensor]:
    """A case, its policy, outputs in float64, and actions drawn for them."""
    case = CASES[request.param]
    policy = policy_for(case.space)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, policy.size, generator=generator, dtype=torch.float64)
    noise = torch.empty(50, *policy.noise_shape)
    policy.fill_noise(noise, generator)
    actions = policy.sample(outputs, noise)
    assert actions.shape == (50, *policy.action_shape)
    return case, policy, outputs, actions


def test_eligibility_is_the_gradient_of_log_prob(case: tuple) -> None:
    written, policy, outputs, actions = case
    leaf = outputs.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(written.log_prob(leaf, actions).sum(), leaf)
    torch.testing.assert_close(policy.eligibility(outputs, actions), wanted, rtol=1e-12, atol=1e-13)


def test_the_fisher_product_is_the_hessian_of_the_divergence(case: tuple) -> None:
    written, policy, outputs, _ = case
    generator = torch.Generator().manual_seed(1)
    tangent = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
    leaf = outputs.clone().requires_grad_()
    pairs = zip(written.factors(outputs), written.factors(leaf), strict=True)
    divergence = sum(kl_divergence(old, new) for old, new in pairs)
    (slope,) = torch.autograd.grad(divergence.sum(), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad(slope, leaf, tangent)
    got = policy.fisher_product(outputs, tangent)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_entropy_and_its_gradient_are_those_of_autograd(case: tuple) -> None:
    written, policy, outputs, _ = case
    leaf = outputs.clone().requires_grad_()
    wanted = written.entropy(leaf)
    (gradient,) = torch.autograd.grad(wanted.sum(), leaf)
    entropy, entropy_gradient = policy.entropy(outputs)
    torch.testing.assert_close(entropy, wanted.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(entropy_gradient, gradient, rtol=1e-12, atol=1e-13)


def test_the_mode_is_the_most_probable_action(case: tuple) -> None:
    written, policy, outputs, actions = case
    best = written.log_prob(outputs, policy.mode(outputs))
    assert (best >= written.log_prob(outputs, actions)).all()


def test_actions_for_the_environment_are_in_its_space(case: tuple) -> None:
    written, policy, _, actions = case
    for action in policy.to_environment(actions):
        assert written.space.contains(np.asarray(action, written.space.dtype))


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Pearson's statistic."""
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_gumbel_max_draws_each_category_as_often_as_its_probability() -> None:
    policy, draws = CategoricalPolicy(4), 100_000
    logits = torch.tensor([2.0, 0.0, -1.0, -3.0])
    noise = torch.empty(draws, 4)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    counts = torch.bincount(policy.sample(logits.expand(draws, 4), noise), minlength=4)
    assert chi_square(counts, logits.softmax(-1)) < 16.27  # the 0.999 quantile, 3 degrees


def test_logistic_noise_draws_each_bit_as_often_as_its_probability() -> None:
    policy, draws = BernoulliPolicy((3,)), 100_000
    logits = torch.tensor([2.0, 0.0, -3.0])
    noise = torch.empty(draws, 3)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    ones = policy.sample(logits.expand(draws, 3), noise).long().sum(0)
    for count, probability in zip(ones, logits.sigmoid(), strict=True):
        counts = torch.stack([count, draws - count])
        both = torch.stack([probability, 1 - probability])
        assert chi_square(counts, both) < 10.83  # the 0.999 quantile, 1 degree


def test_a_discrete_space_that_does_not_start_at_zero_is_shifted() -> None:
    policy = policy_for(spaces.Discrete(3, start=-1))
    assert policy.to_environment(torch.tensor([0, 1, 2])).tolist() == [-1, 0, 1]
    several = policy_for(spaces.MultiDiscrete([[2], [3]], start=[[5], [7]]))
    assert several.to_environment(torch.tensor([[1, 2]])).tolist() == [[[6], [9]]]


def test_a_box_is_measured_from_its_middle_and_clipped_at_its_ends() -> None:
    policy = policy_for(spaces.Box(np.array([-2, 0, -np.inf], "f"), np.array([2, 10, 1], "f")))
    numbers = torch.tensor([[0.5, 0.5, 0.5], [-3.0, 3.0, 30.0]])
    assert policy.to_environment(numbers).tolist() == [[1.0, 7.5, 0.5], [-2.0, 10.0, 1.0]]


@pytest.mark.parametrize(
    ("env", "optimum", "action"),
    [("Indices", 2.0, [2, 1]), ("Bits", 3.0, [[1], [0], [1]])],
)
def test_the_optimum_of_a_one_step_task_is_found(
    env: str, optimum: float, action: list[object]
) -> None:
    model = Reinforce(HERE + f"{env}-v0", steps=40_000, stop_at=optimum - 0.02).learn()
    assert model.progress.solved
    assert model.predict(np.array([1, 0], np.float32)).tolist() == action
    assert model.evaluate(10).mean_return == optimum


def test_the_optimum_of_a_continuous_one_step_task_is_found() -> None:
    model = Reinforce(HERE + "Target-v0", steps=40_000, stop_at=-0.02, learning_rate=0.005).learn()
    assert model.progress.solved
    assert model.predict(np.array([1, 0], np.float32)).tolist() == pytest.approx([1.5, -3], abs=0.3)
    log_scale = model.network.constants.detach()
    assert (log_scale < math.log(0.5)).all()  # the noise costs return: it is learned away


def test_a_gaussian_policy_comes_back_from_its_checkpoint(tmp_path) -> None:
    model = Reinforce(HERE + "Target-v0").learn(total_steps=500)
    model.save(tmp_path / "model")
    observation = np.array([1, 0], np.float32)
    loaded = Reinforce.load(tmp_path / "model")
    assert loaded.predict(observation).tolist() == model.predict(observation).tolist()
    assert loaded.predict(observation).dtype == np.float32


def test_an_unsupported_action_space_is_refused() -> None:
    text = (
        "the action space: got Text(1, 3, charset=a), expected Discrete, MultiDiscrete, "
        "MultiBinary, or Box of floating-point numbers; wrap the environment, for instance in "
        "gymnasium.wrappers.TransformAction"
    )
    with pytest.raises(InvalidTypeError, match=f"^{re.escape(text)}$"):
        policy_for(spaces.Text(3, charset="a"))
