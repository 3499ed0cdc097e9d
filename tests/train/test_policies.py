"""Policies: what is sampled, and every closed form against autograd."""

from __future__ import annotations

import re

import pytest
import torch
from gymnasium import spaces

from eligibility.errors import InvalidTypeError
from eligibility.train.policies import CategoricalPolicy, Policy, policy_for

POLICIES = {
    "Discrete(4)": (CategoricalPolicy(4), torch.distributions.Categorical),
}


@pytest.fixture(params=sorted(POLICIES))
def case(request: pytest.FixtureRequest) -> tuple[Policy, type, torch.Tensor, torch.Tensor]:
    """A policy, torch's distribution, outputs in float64 and actions drawn for them."""
    policy, distribution = POLICIES[request.param]
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, policy.size, generator=generator, dtype=torch.float64)
    noise = torch.empty(50, *policy.noise_shape)
    policy.fill_noise(noise, generator)
    return policy, distribution, outputs, policy.sample(outputs, noise)


def test_eligibility_is_the_gradient_of_log_prob(case: tuple) -> None:
    policy, distribution, outputs, actions = case
    leaf = outputs.clone().requires_grad_()
    log_prob = distribution(logits=leaf).log_prob(actions).sum()
    (wanted,) = torch.autograd.grad(log_prob, leaf)
    torch.testing.assert_close(policy.eligibility(outputs, actions), wanted, rtol=0, atol=1e-14)


def test_entropy_and_its_gradient_are_those_of_autograd(case: tuple) -> None:
    policy, distribution, outputs, _ = case
    leaf = outputs.clone().requires_grad_()
    wanted = distribution(logits=leaf).entropy()
    (gradient,) = torch.autograd.grad(wanted.sum(), leaf)
    entropy, entropy_gradient = policy.entropy(outputs)
    torch.testing.assert_close(entropy, wanted.detach(), rtol=0, atol=1e-14)
    torch.testing.assert_close(entropy_gradient, gradient, rtol=0, atol=1e-14)


def test_the_mode_is_the_most_probable_action(case: tuple) -> None:
    policy, distribution, outputs, actions = case
    best = distribution(logits=outputs)
    assert (best.log_prob(policy.mode(outputs)) >= best.log_prob(actions)).all()


def test_gumbel_max_draws_each_category_as_often_as_its_probability() -> None:
    policy, draws = CategoricalPolicy(4), 100_000
    logits = torch.tensor([2.0, 0.0, -1.0, -3.0])
    noise = torch.empty(draws, 4)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    counts = torch.bincount(policy.sample(logits.expand(draws, 4), noise), minlength=4)
    expected = logits.double().softmax(-1) * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 16.27  # the 0.999 quantile for 3 degrees of freedom


def test_a_discrete_space_that_does_not_start_at_zero_is_shifted() -> None:
    policy = policy_for(spaces.Discrete(3, start=-1))
    assert policy.to_environment(torch.tensor([0, 1, 2])).tolist() == [-1, 0, 1]


def test_an_unsupported_action_space_is_refused() -> None:
    text = (
        "the action space: got Box(-1.0, 1.0, (2,), float32), expected Discrete; "
        "wrap the environment so that it takes an index"
    )
    with pytest.raises(InvalidTypeError, match=f"^{re.escape(text)}$"):
        policy_for(spaces.Box(-1, 1, (2,)))
