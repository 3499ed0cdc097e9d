"""Baselines: their values by hand, and their unbiasedness by enumerating every outcome."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce.baseline import Baseline
from eligibility.reinforce.baselines import (
    BASELINES,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    TimeDependentLeaveOneOut,
)
from eligibility.reinforce.returns import rewards_to_go
from eligibility.reinforce.state_value import StateTable, StateValue
from eligibility.rules.categorical import eligibility_logits
from eligibility.train.baseline_names import BaselineNames

BATCH = 3  # episodes in each enumerated batch


class Corridor:
    """At most three steps with the same two logits; action 1 ends the episode, with reward 2.

    Rewards differ from step to step and the length depends on the actions, so a baseline that
    looked at the own episode, or at its length, would be found out.
    """

    logits = torch.tensor([0.3, -0.4], dtype=torch.float64)
    step_rewards = (1.0, -2.0, 4.0)

    def episodes(self) -> list[tuple[float, list[int], list[float]]]:
        """Every episode: its probability, actions, rewards."""
        probs = self.logits.softmax(-1)
        found = []
        for actions in ([1], [0, 1], [0, 0, 1], [0, 0, 0]):
            chance = float(torch.stack([probs[action] for action in actions]).prod())
            rewards = [
                2.0 if action else reward
                for action, reward in zip(actions, self.step_rewards, strict=False)
            ]
            found.append((chance, actions, rewards))
        return found

    def exact_gradient(self) -> Tensor:
        """∇ Σ p(episode) R(episode), by autograd of the written-out expectation."""
        logits = self.logits.clone().requires_grad_()
        log_probs = logits.log_softmax(-1)
        value = sum(
            torch.stack([log_probs[action] for action in actions]).sum().exp() * sum(rewards)
            for _, actions, rewards in self.episodes()
        )
        return torch.autograd.grad(value, logits)[0]

    def expected_gradient(self, baseline: Baseline) -> Tensor:
        """E[Σ_t e_t (G_t − b_t)], averaged over the batch, by enumerating every batch.

        Each batch meets the baseline with the past that it was given with: a baseline that
        remembers is unbiased for any past.
        """
        total = torch.zeros_like(self.logits)
        past = {name: tensor.clone() for name, tensor in baseline.state_dict().items()}
        for batch in itertools.product(self.episodes(), repeat=BATCH):
            chance, rewards, actions, alive = 1.0, *torch.zeros(3, 3, BATCH, dtype=torch.float64)
            for column, (probability, taken, paid) in enumerate(batch):
                chance *= probability
                length = len(taken)
                rewards[:length, column] = torch.tensor(paid, dtype=torch.float64)
                actions[:length, column] = torch.tensor(taken, dtype=torch.float64)
                alive[:length, column] = 1
            alive = alive.bool()
            no = torch.zeros_like(alive)
            returns = rewards_to_go(rewards, 1.0, terminated=no, truncated=no)
            states = torch.arange(3.0).reshape(3, 1, 1).expand(3, BATCH, 1)
            baseline.load_state_dict({name: tensor.clone() for name, tensor in past.items()})
            advantage = (returns - baseline(returns, alive, states))[alive]
            e = eligibility_logits(actions[alive].long(), self.logits.expand(len(advantage), 2))
            total += chance * (e * advantage.unsqueeze(-1)).sum(0) / BATCH
        return total


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_the_gradient_is_unbiased_over_every_batch(name: str) -> None:
    baseline = BASELINES[name]()
    generator = torch.Generator().manual_seed(1)
    past = torch.randn(2, 3, BATCH, generator=generator, dtype=torch.float64)
    baseline(2.5 + past[0], observations=past[1].unsqueeze(-1))
    got = Corridor().expected_gradient(baseline)
    torch.testing.assert_close(got, Corridor().exact_gradient(), rtol=1e-12, atol=1e-12)


class BatchMean(Baseline):
    """The mistake that leave-one-out avoids: the own episode is in its baseline."""

    def __call__(
        self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
    ) -> Tensor:
        """The mean over all episodes."""
        assert alive is not None
        return torch.where(alive, returns[alive].mean(), 0)


def test_the_enumeration_finds_the_bias_of_a_mean_that_includes_the_own_episode() -> None:
    got = Corridor().expected_gradient(BatchMean())
    assert (got - Corridor().exact_gradient()).abs().max() > 0.05


def test_no_baseline_is_zero() -> None:
    assert NoBaseline()(torch.ones(2, 3)).tolist() == [[0.0] * 3] * 2


def test_moving_average_never_uses_the_present_batch() -> None:
    baseline = MovingAverage(rate=0.25)
    alive = torch.tensor([[True, True], [True, False]])
    first = baseline(torch.tensor([[3.0, 6.0], [3.0, 99.0]]), alive)
    second = baseline(torch.tensor([[8.0, 8.0], [8.0, 8.0]]), alive)
    third = baseline(torch.zeros(2, 2), alive)
    assert first.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert second.tolist() == [[1.0, 1.0], [1.0, 0.0]]  # ¼ · mean(3, 6, 3)
    assert third.tolist() == [[2.75, 2.75], [2.75, 0.0]]  # ¼ · 8 + ¾ · 1


def test_moving_average_continues_from_its_state() -> None:
    one, other = MovingAverage(), MovingAverage()
    one(torch.tensor([5.0, 7.0]))
    other.load_state_dict(one.state_dict())
    returns = torch.tensor([1.0, 2.0])
    assert one(returns).tolist() == other(returns).tolist() != [0.0, 0.0]


def test_leave_one_out_weighs_the_others_steps_equally() -> None:
    returns = torch.tensor([[3.0, 2.0, 1.0], [2.0, 1.0, 0.0]])
    alive = torch.tensor([[True, True, True], [True, True, False]])
    got = LeaveOneOut()(returns, alive)
    assert got[0].tolist() == pytest.approx([4 / 3, 2.0, 2.0])
    assert got[1].tolist() == pytest.approx([4 / 3, 2.0, 0.0])


def test_time_dependent_leave_one_out_is_zero_for_the_last_one_alive() -> None:
    returns = torch.tensor([[3.0, 2.0], [2.0, 0.0]])
    alive = torch.tensor([[True, True], [True, False]])
    assert TimeDependentLeaveOneOut()(returns, alive).tolist() == [[2.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("baseline", [LeaveOneOut(), TimeDependentLeaveOneOut()])
def test_leaving_one_out_needs_two(baseline: Baseline) -> None:
    text = (
        "`returns`: got shape [5, 1], expected at least two episodes on the last axis; "
        "collect more episodes, or use MovingAverage"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        baseline(torch.ones(5, 1))


def test_a_mask_of_another_shape_is_refused() -> None:
    text = (
        "`alive`: got shape [3], expected [2, 3], the shape of returns; reshape it; "
        "nothing is broadcast silently"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        NoBaseline()(torch.ones(2, 3), torch.ones(3, dtype=torch.bool))


def test_a_rate_outside_its_domain_is_refused() -> None:
    text = "`rate`: got 0, expected a number in (0, 1]; it is the weight of the newest batch"
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        MovingAverage(rate=0.0)


def test_the_names_of_the_command_line_are_those_of_the_classes() -> None:
    assert (*BASELINES, "per-weight") == BaselineNames.names


def test_state_value_recovers_what_is_linear_in_its_features() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(20, 30, 2, generator=generator, dtype=torch.float64)
    time = torch.arange(20.0, dtype=torch.float64).unsqueeze(-1)
    returns = 3 + states @ torch.tensor([1.0, -2.0], dtype=torch.float64) + 0.5 * time
    baseline = StateValue(ridge=1e-12, units=8)
    assert not baseline(returns, None, states).any()
    torch.testing.assert_close(baseline(returns, None, states), returns, rtol=1e-6, atol=1e-6)


def test_state_value_forgets_nothing_through_its_state() -> None:
    states, returns = torch.arange(6.0).reshape(2, 3, 1), torch.arange(6.0).reshape(2, 3)
    one, other = StateValue(), StateValue()
    one(returns, None, states)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(returns, None, states), other(returns, None, states))


def test_without_the_time_state_value_is_one_of_the_state() -> None:
    """It prefers what comes late: a cost at each step leaves less to pay."""
    states = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]).unsqueeze(-1)
    returns = torch.tensor([[-3.0, -3.0], [-2.0, -2.0], [-1.0, -1.0]])
    knowing, ignorant = StateValue(ridge=1e-9), StateValue(ridge=1e-9, time=False)
    for baseline in (knowing, ignorant):
        baseline(returns, None, states)
    torch.testing.assert_close(knowing(returns, None, states), returns, rtol=0, atol=1e-3)
    expected = torch.tensor([[-2.5, -2.5], [-2.5, -2.5], [-1.0, -1.0]])
    torch.testing.assert_close(ignorant(returns, None, states), expected, rtol=0, atol=1e-3)
    shapes = {name: state.shape for name, state in ignorant.learned_state(1).items()}
    assert shapes == {name: state.shape for name, state in ignorant.state_dict().items()}


def test_state_value_ignores_what_is_not_alive() -> None:
    states, returns = torch.arange(6.0).reshape(2, 3, 1), torch.arange(6.0).reshape(2, 3)
    alive = torch.tensor([[True, True, True], [True, True, False]])
    one, other = StateValue(), StateValue()
    one(returns, alive, states)
    other(torch.where(alive, returns, 1e6), alive, states)
    assert torch.equal(one.weights, other.weights)
    assert one(returns, alive, states)[1, 2] == 0


def test_state_value_is_the_ridge_regression_that_autograd_finds() -> None:
    """The minimum of the penalised squares over ``V``'s weights: its gradient there is 0."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(20, 30, 2, generator=generator, dtype=torch.float64)
    time = torch.arange(20).unsqueeze(-1).expand(20, 30)
    returns = torch.sin(3 * states[..., 0]) * states[..., 1] + time
    baseline = StateValue(ridge=0.01, units=5)
    baseline(returns, None, states)
    numbers = torch.cat([states, time.double().unsqueeze(-1)], -1)
    z = (numbers - numbers.mean((0, 1))) / numbers.std((0, 1), correction=0)
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 5)))
    hidden = torch.tanh(z.clamp(-5, 5) @ drawn[1:] * 1.5 / 3**0.5 + drawn[0])
    features = torch.cat([torch.ones(20, 30, 1), z, z**2, z**3, hidden], -1)
    weights = baseline.weights.requires_grad_()
    penalty = 0.01 * (features.square().sum((0, 1)) * weights.square()).sum()
    loss = (features @ weights - returns).square().sum() + penalty
    (gradient,) = torch.autograd.grad(loss, weights)
    assert float(gradient.abs().max()) < 1e-7 * loss.item()
    torch.testing.assert_close(baseline.predict(states, time), features @ weights)


def test_hidden_units_see_what_polynomials_of_single_numbers_cannot() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(50, 30, 2, generator=generator, dtype=torch.float64)
    returns = states.prod(-1)
    unexplained = []
    for units in (0, 128):
        baseline = StateValue(units=units)
        baseline(returns, None, states)
        rest = returns - baseline(returns, None, states)
        unexplained.append(float(rest.var() / returns.var()))
    assert unexplained[0] > 0.9
    assert unexplained[1] < 0.05


def test_what_never_differs_is_no_feature() -> None:
    states = torch.full((4, 5, 2), 1e8, dtype=torch.float64)
    states[..., 1] = torch.arange(20.0).reshape(4, 5)
    baseline = StateValue()
    baseline(states[..., 1], None, states)
    states[..., 0] += 1
    torch.testing.assert_close(
        baseline(states[..., 1], None, states), states[..., 1], rtol=0, atol=0.2
    )


@pytest.mark.parametrize(
    ("observations", "got"), [(None, "None"), (torch.zeros(2, 1, 1), "shape [2, 1, 1]")]
)
def test_state_value_needs_the_observations(observations: Tensor | None, got: str) -> None:
    text = (
        f"`observations`: got {got}, expected [2, 3, D]; "
        "pass the observation before each action, as numbers"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        StateValue()(torch.ones(2, 3), None, observations)


def test_a_ridge_outside_its_domain_is_refused() -> None:
    text = "`ridge`: got 0, expected a finite number > 0; it keeps the solution unique"
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        StateValue(ridge=0.0)


def test_rows_that_are_groups_are_compared_within_themselves() -> None:
    answers = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    alive = torch.ones(5, 4, dtype=torch.bool)
    alive[2, 1] = alive[4, :3] = False  # an answer that does not count; a group of one
    got = LeaveOneOut(rows="groups")(answers, alive)
    for row, (group, counts) in enumerate(zip(answers, alive, strict=True)):
        for column in range(4):
            others = [float(group[j]) for j in range(4) if j != column and counts[j]]
            wanted = sum(others) / len(others) if others and counts[column] else 0.0
            assert float(got[row, column]) == pytest.approx(wanted, abs=1e-6)
    as_time = LeaveOneOut()(answers, alive)
    assert not torch.allclose(got, as_time)  # which pools the rows


def test_other_rows_are_refused() -> None:
    text = (
        "`rows`: got 'prompts', expected 'time' or 'groups'; say what the rows of the returns are"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        LeaveOneOut(rows="prompts")


def test_state_table_is_the_discounted_mean_of_earlier_visits() -> None:
    """Added up visit by visit, with the mean over all states as one more visit."""
    generator = torch.Generator().manual_seed(0)
    baseline = StateTable(4, rate=0.25)
    visits: list[tuple[int, float, int]] = []  # state, return, batch
    for batch in range(4):
        states = torch.randint(3, (5, 6, 1), generator=generator)  # the last is never visited
        returns = torch.randn(5, 6, generator=generator, dtype=torch.float64)
        alive = torch.rand(5, 6, generator=generator) < 0.8
        got = baseline(returns, alive, torch.where(alive.unsqueeze(-1), states, 99))
        weights = [0.75 ** (batch - 1 - when) for _, _, when in visits]
        paid = [weight * value for weight, (_, value, _) in zip(weights, visits, strict=True)]
        mean = sum(paid) / max(sum(weights), 1)
        values = []
        for state in range(4):
            own = [i for i, visit in enumerate(visits) if visit[0] == state]
            total, number = sum(paid[i] for i in own), sum(weights[i] for i in own)
            values.append((total + mean) / (number + 1))
        wanted = torch.where(alive, torch.tensor(values).double()[states.squeeze(-1)], 0)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)
        rows = zip(states.squeeze(-1)[alive].tolist(), returns[alive].tolist(), strict=True)
        visits += [(state, value, batch) for state, value in rows]
    assert float(baseline.predict(torch.tensor([3]))) == pytest.approx(
        float(baseline.sums.sum() / baseline.counts.sum())
    )


def test_the_gradient_of_state_table_is_unbiased_over_every_batch() -> None:
    class Whole(StateTable):
        def __call__(
            self, returns: Tensor, alive: Tensor | None = None, observations: Tensor | None = None
        ) -> Tensor:
            """The states of the corridor as whole numbers."""
            assert observations is not None
            return super().__call__(returns, alive, observations.long())

    baseline = Whole(3)
    states = torch.arange(3.0).reshape(3, 1, 1).expand(3, BATCH, 1)
    baseline(2.5 + torch.arange(9.0, dtype=torch.float64).reshape(3, BATCH), observations=states)
    got = Corridor().expected_gradient(baseline)
    torch.testing.assert_close(got, Corridor().exact_gradient(), rtol=1e-12, atol=1e-12)
