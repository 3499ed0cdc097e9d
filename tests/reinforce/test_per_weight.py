"""A baseline for every weight: unbiased by enumeration, and of least variance."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch import Tensor, nn

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce.per_weight import PerWeight
from eligibility.reinforce.weights import per_sample_eligibilities

ARMS = torch.tensor([1.0, -2.0, 4.0, 0.5], dtype=torch.float64)
STATE = torch.tensor([[1.0, -0.5]], dtype=torch.float64)


def policy() -> nn.Linear:
    """A softmax policy over four arms for one state of two numbers."""
    made = nn.Linear(2, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(2))
    return made


def eligibilities(module: nn.Linear, actions: Tensor):
    """Those of several pulls."""
    return per_sample_eligibilities(module, STATE.expand(len(actions), -1), actions)


def probs(module: nn.Linear) -> Tensor:
    """π of the four arms."""
    return module(STATE)[0].softmax(-1).detach()


def exact_gradient(module: nn.Linear) -> dict[str, Tensor]:
    """∇ Σ π r, by autograd."""
    value = module(STATE)[0].softmax(-1) @ ARMS
    names = [name for name, _ in module.named_parameters()]
    return dict(zip(names, torch.autograd.grad(value, list(module.parameters())), strict=True))


def with_a_past(module: nn.Linear) -> PerWeight:
    """A baseline that has seen one pull of each arm."""
    baseline = PerWeight()
    baseline.gradient(eligibilities(module, torch.arange(4)), ARMS)
    return baseline


def expectation(module: nn.Linear, past: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """E of the estimate over every batch of two pulls."""
    total = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    for pair in itertools.product(range(4), repeat=2):
        baseline, actions = PerWeight(), torch.tensor(pair)
        baseline.load_state_dict(past)
        gradient = baseline.gradient(eligibilities(module, actions), ARMS[actions])
        for name, value in gradient.items():
            total[name] += probs(module)[actions].prod() * value
    return total


def test_is_unbiased_over_every_batch() -> None:
    module = policy()
    past = with_a_past(module).state_dict()
    got = expectation(module, past)
    for name, wanted in exact_gradient(module).items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-12, atol=1e-12)


def test_the_enumeration_finds_the_bias_of_a_baseline_from_the_same_batch() -> None:
    module = policy()
    total = torch.zeros_like(module.weight)
    for pair in itertools.product(range(4), repeat=2):
        baseline, actions = PerWeight(rate=1.0), torch.tensor(pair)
        e, rewards = eligibilities(module, actions), ARMS[actions]
        baseline.gradient(e, rewards)  # has now seen the batch that it is used on
        total += probs(module)[actions].prod() * baseline.gradient(e, rewards)["weight"]
    assert (total - exact_gradient(module)["weight"]).abs().max() > 0.05


def test_its_limit_is_the_closed_form_for_categorical_logits() -> None:
    """b_k = (1 − π_k) q_k + π_k E[q | a ≠ k], for the weights of every input of output k."""
    module, baseline = policy(), PerWeight(rate=1.0)
    # Each arm as often as it is likely: the average over this batch is the expectation.
    counts = torch.tensor([2, 3, 1, 4])
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_((counts / counts.sum()).log())
    pi = probs(module)
    actions = torch.repeat_interleave(torch.arange(4), counts)
    e = eligibilities(module, actions)
    baseline.gradient(e, ARMS[actions])
    others = (pi @ ARMS - pi * ARMS) / (1 - pi)
    wanted = (1 - pi) * ARMS + pi * others
    torch.testing.assert_close(baseline(e)["bias"], wanted)
    torch.testing.assert_close(baseline(e)["weight"], wanted[:, None].expand(4, 2))


def test_no_other_number_has_less_variance() -> None:
    module = policy()
    pi, e = probs(module), eligibilities(module, torch.arange(4))["weight"]
    weight = pi[:, None, None]
    best = (weight * ARMS[:, None, None] * e**2).sum(0) / (weight * e**2).sum(0)

    def variance(baseline: Tensor) -> Tensor:
        samples = (ARMS[:, None, None] - baseline) * e
        mean = (weight * samples).sum(0)
        return (weight * (samples - mean) ** 2).sum(0)

    for shift in (-0.1, 0.1):
        assert (variance(best) < variance(best + shift)).all()
    assert variance(best).sum() < variance((pi @ ARMS).expand(4, 2)).sum()


def test_the_first_batch_meets_zero() -> None:
    module, actions = policy(), torch.tensor([0, 2])
    e = eligibilities(module, actions)
    got = PerWeight().gradient(e, ARMS[actions])
    for name, wanted in e.mean(ARMS[actions]).items():
        torch.testing.assert_close(got[name], wanted)


def test_a_weight_that_never_mattered_has_baseline_zero() -> None:
    module, baseline = nn.Linear(2, 3), PerWeight()
    inputs = torch.tensor([[1.0, 0.0]])
    e = per_sample_eligibilities(module, inputs, torch.tensor([1]))
    baseline.gradient(e, torch.tensor([5.0]))
    assert baseline(e)["weight"][:, 1].tolist() == [0, 0, 0]
    torch.testing.assert_close(baseline(e)["weight"][:, 0], torch.full((3,), 5.0))


@pytest.mark.parametrize("rate", [0.0, 1.5])
def test_a_rate_outside_its_domain_is_refused(rate: float) -> None:
    text = (
        f"`rate`: got {rate:g}, expected a number in (0, 1]; it is the weight of the newest batch"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        PerWeight(rate)


def test_another_number_of_rewards_than_of_samples_is_refused() -> None:
    text = (
        "`rewards`: got shape [3], expected [2], one number for each sample; reshape it; "
        "nothing is broadcast silently"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        PerWeight().gradient(eligibilities(policy(), torch.tensor([0, 1])), torch.zeros(3))
