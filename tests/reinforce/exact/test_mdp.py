"""Tabular processes: trajectories against the Bellman equation, and published problems."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce import exact


def random_mdp(horizon: int | None = 3, seed: int = 0) -> exact.TabularMDP:
    """Three states, the last one terminal, two actions; some arrows are impossible."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(3, 2, 3, generator=generator, dtype=torch.float64)
    weights[0, 1, 0] = weights[1, 0, 2] = 0.0
    return exact.TabularMDP(
        transition=weights / weights.sum(-1, keepdim=True),
        reward=torch.randn(3, 2, 3, generator=generator, dtype=torch.float64),
        initial=torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64),
        terminal=torch.tensor([False, False, True]),
        horizon=horizon,
    )


def random_logits(seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("horizon", [1, 2, 4])
def test_trajectories_and_bellman_agree_on_return_and_gradient(
    horizon: int, discount: float
) -> None:
    mdp, logits = random_mdp(horizon), random_logits()
    trajectories = mdp.law(logits)
    assert float(trajectories.probs.detach().sum()) == pytest.approx(1.0, abs=1e-14)

    def reward(episodes: exact.Trajectories) -> Tensor:
        return episodes.discounted_return(discount)

    value = mdp.expected_return(logits, discount)
    torch.testing.assert_close(exact.expectation(trajectories, reward), value)
    (by_bellman,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(exact.gradient(trajectories, reward, logits), by_bellman)


def test_trajectories_are_distinct_consistent_and_padded() -> None:
    mdp = random_mdp(horizon=3)
    episodes = mdp.law(random_logits()).values
    steps = episodes.taken.sum(1)
    columns = (episodes.states, episodes.actions, episodes.taken, episodes.final_state[:, None])
    rows = torch.cat(columns, 1)
    assert len(rows.unique(dim=0)) == len(rows) == len(episodes)
    assert episodes.terminated.equal(episodes.final_state == 2)
    assert bool((steps[~episodes.terminated] == 3).all())
    assert set(steps.tolist()) == {1, 2, 3}
    for i, length in enumerate(steps.tolist()):
        path = [*episodes.states[i, :length].tolist(), int(episodes.final_state[i])]
        arrows = list(zip(path, episodes.actions[i].tolist(), path[1:], strict=False))
        assert all(mdp.transition[arrow] > 0 for arrow in arrows)
        assert [float(mdp.reward[arrow]) for arrow in arrows] == episodes.rewards[
            i, :length
        ].tolist()
        assert 2 not in path[:-1]
    assert not bool(episodes.rewards[~episodes.taken].any())


def test_reward_to_go_is_unbiased_and_whole_return_has_more_variance() -> None:
    """The policy gradient theorem, and the reason for causality, by enumeration."""
    mdp, logits = random_mdp(horizon=3), random_logits()
    trajectories = mdp.law(logits)
    probs = torch.softmax(logits.detach(), 1)

    def estimate(episode: exact.Trajectories, causal: bool) -> Tensor:
        weights = episode.rewards.flip(-1).cumsum(-1).flip(-1)[0]
        if not causal:
            weights = weights[:1].expand(3)
        gradient = torch.zeros_like(probs)
        for t in range(int(episode.taken.sum())):
            s, a = int(episode.states[0, t]), int(episode.actions[0, t])
            gradient[s] -= weights[t] * probs[s]
            gradient[s, a] += weights[t]
        return gradient

    causal = exact.moments(trajectories, lambda e: estimate(e, True))
    whole = exact.moments(trajectories, lambda e: estimate(e, False))
    truth = exact.gradient(trajectories, exact.Trajectories.discounted_return, logits)
    torch.testing.assert_close(causal.mean, truth)
    torch.testing.assert_close(whole.mean, truth)
    assert float(causal.variance.sum()) < float(whole.variance.sum())


def test_forbidden_actions_are_never_taken() -> None:
    logits = random_logits().detach()
    logits[0, 1] = -math.inf
    logits.requires_grad_()
    mdp = random_mdp(horizon=3)
    trajectories = mdp.law(logits)
    taken = trajectories.values.taken & (trajectories.values.states == 0)
    assert not bool(trajectories.values.actions[taken].any())
    value = mdp.expected_return(logits)
    torch.testing.assert_close(
        exact.expectation(trajectories, exact.Trajectories.discounted_return), value
    )


def short_corridor() -> exact.TabularMDP:
    """Sutton and Barto 2018, Example 13.1: right is left in the middle one of three states."""
    transition = torch.zeros(4, 2, 4, dtype=torch.float64)
    for state, action, following in [
        (0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 0), (2, 0, 1), (2, 1, 3), (3, 0, 3), (3, 1, 3)
    ]:  # fmt: skip
        transition[state, action, following] = 1.0
    return exact.TabularMDP(
        transition=transition,
        reward=torch.full_like(transition, -1.0),
        initial=torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64),
        terminal=torch.tensor([False, False, False, True]),
        horizon=None,
    )


def corridor_value(right: Tensor) -> Tensor:
    """All states look alike: one probability of going right."""
    logits = torch.stack([torch.log1p(-right), right.log()]).expand(4, 2)
    return short_corridor().expected_return(logits)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.586, 0.95])
def test_short_corridor_has_the_published_value(p: float) -> None:
    right = torch.tensor(p, dtype=torch.float64)
    assert float(corridor_value(right)) == pytest.approx((2 * p - 4) / (p * (1 - p)), rel=1e-12)


def test_short_corridor_is_best_at_two_minus_root_two() -> None:
    best = torch.tensor(2 - math.sqrt(2), dtype=torch.float64, requires_grad=True)
    value = corridor_value(best)
    assert float(value.detach()) == pytest.approx(-(6 + 4 * math.sqrt(2)), rel=1e-13)
    (slope,) = torch.autograd.grad(value, best)
    assert abs(float(slope)) < 1e-12
    away = corridor_value(torch.tensor([2 - math.sqrt(2) - 1e-3], dtype=torch.float64)[0])
    assert float(away) < float(value.detach())


def test_short_corridor_cut_at_a_horizon_tends_to_the_endless_one() -> None:
    mdp = short_corridor()
    logits = torch.zeros(4, 2, dtype=torch.float64)
    endless = float(mdp.expected_return(logits))
    cut = exact.TabularMDP(mdp.transition, mdp.reward, mdp.initial, mdp.terminal, horizon=400)
    assert float(cut.expected_return(logits)) == pytest.approx(endless, rel=1e-10)
    assert endless == pytest.approx(-12.0)


@pytest.mark.parametrize(("with_baseline", "published"), [(True, 0.849), (False, 0.498)])
def test_gradient_bandit_of_sutton_and_barto_figure_2_5(
    with_baseline: bool, published: float
) -> None:
    """Share of optimal actions in the last 50 of 1000 steps, α = .1, 2000 runs, rewards near +4.

    The share of one run lies in [0, 1], so the standard error of 2000 runs is at most
    √(s(1 − s)/2000) < .0112. The published share is such a mean too: the difference of the two has
    √2 times that error, and the allowance is three of those.
    """
    generator = torch.Generator().manual_seed(25)
    runs, arms, steps = 2000, 10, 1000
    values = 4 + torch.randn(runs, arms, generator=generator)
    best = values.argmax(1)
    preferences, average = torch.zeros(runs, arms), torch.zeros(runs)
    optimal = torch.zeros(runs)
    each = torch.arange(runs)
    for step in range(steps):
        probs = torch.softmax(preferences, 1)
        action = torch.multinomial(probs, 1, generator=generator).squeeze(1)
        reward = values[each, action] + torch.randn(runs, generator=generator)
        baseline = (average if step else reward) if with_baseline else torch.zeros(runs)
        eligibility = -probs
        eligibility[each, action] += 1
        preferences += 0.1 * (reward - baseline)[:, None] * eligibility
        average += (reward - average) / (step + 1)
        optimal += (action == best) * (step >= steps - 50)
    share = float(optimal.mean() / 50)
    error = math.sqrt(2 * published * (1 - published) / runs)
    assert share == pytest.approx(published, abs=3 * error)


# Mistakes ------------------------------------------------------------------------------------


def test_too_many_trajectories_are_predicted_and_refused() -> None:
    mdp = random_mdp(horizon=2)
    count = len(mdp.law(random_logits()))
    assert len(mdp.law(random_logits(), limit=count)) == count
    with pytest.raises(InvalidValueError) as caught:
        mdp.law(random_logits(), limit=count - 1)
    assert str(caught.value) == (
        f"enumeration of trajectories: got {count}, expected at most {count - 1}; use a shorter "
        "horizon, or raise `limit`"
    )
    with pytest.raises(InvalidValueError, match=r"got about 10\^\d+, expected at most 1000000"):
        random_mdp(horizon=5000).law(random_logits())


def test_endless_process_has_no_list_of_trajectories() -> None:
    with pytest.raises(InvalidValueError) as caught:
        random_mdp(horizon=None).law(random_logits())
    assert str(caught.value) == (
        "`horizon`: got None, expected a number of steps; there are infinitely many trajectories"
    )


def test_policy_that_never_ends_is_refused() -> None:
    logits = torch.zeros(4, 2, dtype=torch.float64)
    logits[:, 1] = -math.inf  # always left
    with pytest.raises(InvalidValueError) as caught:
        short_corridor().expected_return(logits)
    assert str(caught.value) == (
        "`logits`: got a policy whose episodes never end, expected a terminal state reachable "
        "from every state, or a discount below 1; give the process a horizon"
    )


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"transition": torch.full((3, 2, 3), 0.5)},
            InvalidValueError,
            "`transition`: got a minimum of 0.5 and sums from 1.5 to 1.5, expected probabilities "
            "that sum to 1 along the last axis; fill the rows of terminal states too, for "
            "instance with a step to themselves",
        ),
        (
            {"initial": torch.tensor([0.0, 0.5, 0.5])},
            InvalidValueError,
            "`initial`: got mass on a terminal state, expected none; an episode has at least one "
            "step",
        ),
        (
            {"initial": torch.tensor([0.5, 0.5])},
            ShapeError,
            "`initial`: got shape [2], expected [3], as the tables are over [states, actions, "
            "states]; reshape it; nothing is broadcast silently",
        ),
        ({"horizon": 0}, InvalidValueError, "`horizon`: got 0, expected at least 1, or None; "
         "set it"),
    ],
)  # fmt: skip
def test_tables_that_describe_no_process_are_refused(
    changes: dict[str, object], kind: type[Exception], text: str
) -> None:
    tables = {**vars(random_mdp()), **changes}
    with pytest.raises(kind) as caught:
        exact.TabularMDP(**tables)
    assert str(caught.value) == text


def test_logits_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        random_mdp().law(torch.zeros(2, 2))
    assert str(caught.value) == (
        "`logits`: got shape [2, 2], expected [3, 2], [states, actions]; reshape it; nothing is "
        "broadcast silently"
    )
