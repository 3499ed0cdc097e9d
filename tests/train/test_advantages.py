"""The estimators' claims about bias, each proved by enumerating every batch of two episodes."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from benchmarks.estimators import DISCOUNT, LOGITS, process, rollout_of
from eligibility.reinforce.baselines import LeaveOneOut
from eligibility.rules.categorical import eligibility_logits
from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.config import Config
from eligibility.train.observations import observations_for
from eligibility.train.rollout import Rollout


def estimator(**options: Any) -> AdvantageEstimator:
    """An estimator that does not normalise, with a past where its baseline can have one."""
    config = Config("FrozenLake-v1", discount=DISCOUNT, normalize=False, **options)
    made = AdvantageEstimator(config, observations_for(spaces.Discrete(3)))
    past = process().law(LOGITS).values[torch.tensor([1, 5])]
    made(rollout_of(past))
    return made


def expected_gradient(**options: Any) -> Tensor:
    """E[½ Σ_episodes Σ_t A_t e_t] over every batch of two episodes."""
    law = process().law(LOGITS)
    made = estimator(**options)
    memory = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    total = torch.zeros_like(LOGITS)
    for pair in itertools.product(range(len(law.values)), repeat=2):
        rollout = rollout_of(law.values[torch.tensor(pair)])
        made.load_state_dict(memory)
        advantages = made(rollout)[0].double()
        states, actions = (
            rollout.observations[rollout.alive].squeeze(-1),
            rollout.actions[rollout.alive],
        )
        scores = eligibility_logits(actions, LOGITS[states])
        chance = law.probs[list(pair)].prod()
        total.index_add_(0, states, chance * advantages.unsqueeze(-1) * scores / 2)
    return total


def exact_gradient(discount: float = DISCOUNT) -> Tensor:
    """The gradient of the expected discounted return, from the Bellman equation."""
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(process().expected_return(logits, discount), logits)[0]


BASELINES = ("none", "moving-average", "leave-one-out", "time-dependent-leave-one-out")


@pytest.mark.parametrize("baseline", [*BASELINES, "state-value"])
@pytest.mark.parametrize(
    "options", [{"credit": "whole-return"}, {"discount_updates": True}], ids=["whole", "to-go"]
)
def test_is_unbiased_for_the_discounted_return(baseline: str, options: dict[str, Any]) -> None:
    got = expected_gradient(baseline=baseline, **options)
    torch.testing.assert_close(got, exact_gradient(), rtol=1e-5, atol=1e-6)  # float32 advantages


def test_reward_to_go_without_the_discount_of_updates_has_the_known_bias() -> None:
    bias = expected_gradient(baseline="none") - exact_gradient()
    assert bias.abs().max() > 0.01


@pytest.mark.parametrize("options", [{"gae_lambda": 0.5}, {"bootstrap": True}], ids=str)
def test_trusting_the_predicted_value_is_biased(options: dict[str, Any]) -> None:
    got = expected_gradient(baseline="state-value", discount_updates=True, **options)
    assert (got - exact_gradient()).abs().max() > 0.01


def test_bootstrapping_counts_the_predicted_value_after_a_truncation_only() -> None:
    made, plain = (estimator(baseline="state-value", bootstrap=flag) for flag in (True, False))
    values = process().law(LOGITS).values
    cut, ended = int((~values.terminated).nonzero()[0]), int(values.terminated.nonzero()[0])
    plain.load_state_dict(made.state_dict())
    rollout = rollout_of(values[torch.tensor([cut, ended])])
    state = rollout.final_observations
    predicted = float(made.baselines["state-value"].predict(state)[0])
    difference = torch.zeros(rollout.alive.shape)
    difference[rollout.alive] = made(rollout)[0] - plain(rollout)[0]
    length = int(rollout.alive[:, 0].sum())
    wanted = [DISCOUNT ** (length - t) * predicted for t in range(length)]
    assert difference[:length, 0].tolist() == pytest.approx(wanted, abs=1e-5)
    assert not difference[:, 1].any()


def test_next_reward_is_the_first_that_is_not_zero_discounted_by_the_steps_to_it() -> None:
    config = Config("FrozenLake-v1", discount=0.5, normalize=False, baseline="none")
    config = dataclasses.replace(config, credit="next-reward")
    rewards = torch.tensor([[0, 0], [-1, 0], [0, 0], [0, 2], [4, 0], [0, 0]]).double()
    alive = torch.ones(6, 2, dtype=torch.bool)
    alive[5, 0] = False
    none = torch.zeros_like(alive)
    rollout = Rollout(rewards, rewards[0], rewards, rewards, none, none, alive)
    got = torch.zeros(6, 2)
    got[alive] = AdvantageEstimator(config, observations_for(spaces.Discrete(3)))(rollout)[0]
    assert got.T.tolist() == [[-0.5, -1, 1, 2, 4, 0], [0.25, 0.5, 1, 2, 0, 0]]


@pytest.mark.parametrize(
    "baseline",
    [
        "state-value+leave-one-out",
        "moving-average+time-dependent-leave-one-out",
        "leave-one-out+moving-average",
    ],
)
def test_several_baselines_one_after_the_other_are_unbiased(baseline: str) -> None:
    got = expected_gradient(baseline=baseline, discount_updates=True)
    torch.testing.assert_close(got, exact_gradient(), rtol=1e-5, atol=1e-6)


def test_a_second_baseline_is_subtracted_from_what_the_first_left() -> None:
    both = estimator(baseline="state-value+leave-one-out", credit="whole-return")
    first = estimator(baseline="state-value", credit="whole-return")
    first.load_state_dict(
        {name: t for name, t in both.state_dict().items() if name.startswith("state-value")}
    )
    rollout = rollout_of(process().law(LOGITS).values[torch.tensor([0, 7])])
    rest = torch.zeros(rollout.alive.shape)
    rest[rollout.alive] = first(rollout)[0]
    wanted = rest - LeaveOneOut()(rest, rollout.alive)
    torch.testing.assert_close(both(rollout)[0], wanted[rollout.alive], rtol=0, atol=1e-6)


def test_explained_variance_is_the_share_that_the_baseline_removed() -> None:
    made = estimator(baseline="time-dependent-leave-one-out")
    rollout = rollout_of(process().law(LOGITS).values[torch.tensor([0, 7])])
    got, explained = made(rollout)
    plain, explained_by_none = estimator(baseline="none")(rollout)
    wanted = 1 - float(got.var(correction=0) / plain.var(correction=0))
    assert explained == pytest.approx(wanted, rel=1e-5)
    assert explained_by_none == 0


def test_normalized_returns_have_the_scale_of_all_so_far() -> None:
    values = process().law(LOGITS).values
    rollouts = [rollout_of(values[torch.tensor(pair)]) for pair in ([1, 5], [0, 3], [2, 7])]
    plain = estimator(baseline="none")
    scaled = estimator(baseline="none", normalize_returns=True)  # both have seen the first
    seen = plain(rollouts[0])[0].tolist()
    for rollout in rollouts[1:]:
        wanted = plain(rollout)[0]
        seen += wanted.tolist()
        torch.testing.assert_close(scaled(rollout)[0], wanted / statistics.pstdev(seen))
