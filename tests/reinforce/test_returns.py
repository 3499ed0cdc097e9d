"""Rewards-to-go: the definition step by step, both ends of an episode, every refusal."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.reinforce.returns import generalized_advantages, rewards_to_go


def backwards(
    rewards: Tensor, discount: float, terminated: Tensor, truncated: Tensor, bootstrap: Tensor
) -> Tensor:
    """The definition, one step after the other from the end, one number at a time."""
    returns = torch.zeros_like(rewards)
    for column in range(rewards.shape[1]):
        following = None
        for t in reversed(range(len(rewards))):
            if terminated[t, column]:
                following = 0.0
            elif truncated[t, column] or following is None:
                following = float(bootstrap[t, column])
            following = float(rewards[t, column]) + discount * following
            returns[t, column] = following
    return returns


@given(
    length=st.integers(1, 40),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_agrees_with_the_definition_for_any_pattern_of_ends(
    length: int, discount: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(length, 3, generator=generator, dtype=torch.float64)
    terminated, truncated = (torch.rand(2, length, 3, generator=generator) < 0.15).unbind()
    bootstrap = torch.randn(length, 3, generator=generator, dtype=torch.float64)
    got = rewards_to_go(
        rewards, discount, terminated=terminated, truncated=truncated, bootstrap=bootstrap
    )
    wanted = backwards(rewards, discount, terminated, truncated, bootstrap)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_bootstraps_after_a_truncation_and_never_after_a_termination() -> None:
    rewards = torch.tensor([1.0, 1.0])
    no, end = torch.tensor([False, False]), torch.tensor([False, True])
    value = torch.tensor([7.0, 10.0])
    terminates = rewards_to_go(rewards, 0.5, terminated=end, truncated=no, bootstrap=value)
    truncates = rewards_to_go(rewards, 0.5, terminated=no, truncated=end, bootstrap=value)
    both = rewards_to_go(rewards, 0.5, terminated=end, truncated=end, bootstrap=value)
    assert terminates.tolist() == [1.5, 1.0]
    assert truncates.tolist() == [1 + 0.5 * 6, 6.0]
    assert both.tolist() == terminates.tolist()


def test_what_follows_an_end_does_not_leak_back_even_if_it_is_nan() -> None:
    rewards = torch.tensor([1.0, float("nan"), 2.0])
    end = torch.tensor([True, True, True])
    got = rewards_to_go(rewards, 0.9, terminated=end, truncated=torch.zeros_like(end))
    assert got[0] == 1
    assert got[2] == 2


def test_integers_give_float32_and_the_input_stays_as_it_was() -> None:
    rewards = torch.tensor([1, 2, 3])
    no = torch.zeros(3, dtype=torch.bool)
    got = rewards_to_go(rewards, 1.0, terminated=no, truncated=no)
    assert got.dtype == torch.float32
    assert got.tolist() == [6.0, 5.0, 3.0]
    assert rewards.tolist() == [1, 2, 3]
    assert not no.any()


def test_is_differentiable_in_the_rewards() -> None:
    rewards = torch.zeros(3, requires_grad=True)
    no = torch.zeros(3, dtype=torch.bool)
    rewards_to_go(rewards, 0.5, terminated=no, truncated=no)[0].backward(torch.tensor(2.0))
    assert rewards.grad is not None
    assert rewards.grad.tolist() == [2.0, 1.0, 0.5]


FLAG = torch.zeros(3, dtype=torch.bool)
REWARD = torch.zeros(3)


@pytest.mark.parametrize(
    ("error", "arguments", "text"),
    [
        (
            ShapeError,
            {"terminated": torch.zeros(3, 1, dtype=torch.bool)},
            "`terminated`: got shape [3, 1], expected [3], the shape of rewards; reshape it; "
            "nothing is broadcast silently",
        ),
        (
            ShapeError,
            {"bootstrap": torch.zeros(1)},
            "`bootstrap`: got shape [1], expected [3], the shape of rewards; reshape it; "
            "nothing is broadcast silently",
        ),
        (
            InvalidTypeError,
            {"truncated": torch.zeros(3)},
            "`truncated`: got dtype float32, expected dtype bool; convert it with truncated.bool()",
        ),
        (
            InvalidValueError,
            {"discount": 1.5},
            "`discount`: got 1.5, expected a number in [0, 1]; 1 means no discount",
        ),
        (
            ShapeError,
            {"rewards": torch.zeros(0), "terminated": FLAG[:0], "truncated": FLAG[:0]},
            "`rewards`: got shape [0], expected [T, *batch] with T >= 1; "
            "put time on the first axis",
        ),
    ],
)
def test_refuses(error: type[Exception], arguments: dict[str, object], text: str) -> None:
    given = {"rewards": REWARD, "discount": 0.9, "terminated": FLAG, "truncated": FLAG} | arguments
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        rewards_to_go(**given)


def random_episodes(seed: int) -> tuple[Tensor, ...]:
    """Rewards, values, next values and both kinds of ends, ``[12, 3]``."""
    generator = torch.Generator().manual_seed(seed)
    rewards, values, following = torch.randn(3, 12, 3, generator=generator, dtype=torch.float64)
    terminated, truncated = (torch.rand(2, 12, 3, generator=generator) < 0.2).unbind()
    following[:-1] = torch.where(truncated[:-1], following[:-1], values[1:])
    return rewards, values, following, terminated, truncated


@pytest.mark.parametrize("seed", range(5))
def test_lambda_one_is_the_reward_to_go_minus_the_value(seed: int) -> None:
    rewards, values, following, terminated, truncated = random_episodes(seed)
    ends = {"terminated": terminated, "truncated": truncated}
    got = generalized_advantages(rewards, values, following, 0.9, 1.0, **ends)
    wanted = rewards_to_go(rewards, 0.9, **ends, bootstrap=following) - values
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_lambda_zero_is_the_error_of_one_step(seed: int) -> None:
    rewards, values, following, terminated, truncated = random_episodes(seed)
    got = generalized_advantages(
        rewards, values, following, 0.9, 0.0, terminated=terminated, truncated=truncated
    )
    wanted = rewards + 0.9 * following * ~terminated - values
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_lambda_outside_its_domain_is_refused() -> None:
    text = "`lambda_`: got 2, expected a number in [0, 1]; 1 trusts the rewards alone"
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        generalized_advantages(REWARD, REWARD, REWARD, 0.9, 2.0, terminated=FLAG, truncated=FLAG)
