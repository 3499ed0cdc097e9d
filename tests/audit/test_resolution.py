"""Normal numbers: what three nodes cannot see is not called unbiased."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import eligibility as el
from eligibility.audit.choices import Choices
from eligibility.audit.quadrature import COARSE, FINE, rule
from eligibility.audit.reporting.report import AuditReport


class Agent:
    """A Gaussian policy around 0, whose action is changed on its way to the environment."""

    def __init__(self, scale: float, change: Any, score_changed: bool, credit: Any) -> None:
        self.mean = nn.Parameter(torch.zeros(3))
        self.log_scale = nn.Parameter(torch.tensor([math.log(scale)]))
        self.optimizer = torch.optim.SGD([self.mean, self.log_scale], lr=0.1)
        self.change, self.score_changed, self.credit = change, score_changed, credit
        self.log_probs: list[Tensor] = []
        self.drawn: list[Tensor] = []

    def act(self, observation: Any) -> Any:
        policy = Normal((self.mean @ torch.as_tensor(observation))[None], self.log_scale.exp())
        drawn = policy.sample()
        self.drawn.append(drawn)
        action = self.change(drawn)
        self.log_probs.append(policy.log_prob(action if self.score_changed else drawn).sum())
        return action.numpy()

    def update(self, rewards: list[float]) -> None:
        loss = -torch.stack(self.log_probs).sum() * (sum(rewards) + self.credit(self.drawn))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs, self.drawn = [], []


def audit(
    scale: float,
    change: Any = torch.tanh,
    score_changed: bool = False,
    credit: Any = lambda drawn: 0.0,
    max_paths: int = 40,
) -> AuditReport:
    return el.audit_agent(
        lambda: Agent(scale, change, score_changed, credit),
        environment="Pendulum-v1",
        discount=1.0,
        max_paths=max_paths,
    )


class ActorCritic:
    """A Gaussian policy, and a critic with parameters of its own or the policy's as well."""

    def __init__(self, shared: bool) -> None:
        self.mean, self.value = (nn.Parameter(torch.full((3,), 0.1)) for _ in range(2))
        self.optimizer = torch.optim.SGD([self.mean, self.value], lr=0.1)
        self.shared = shared
        self.log_probs: list[Tensor] = []
        self.values: list[Tensor] = []

    def act(self, observation: Any) -> Any:
        seen = torch.as_tensor(observation)
        policy = Normal((self.mean @ seen)[None], 0.5)
        action = policy.sample()
        self.log_probs.append(policy.log_prob(action).sum())
        self.values.append((self.value + (self.mean if self.shared else 0.0)) @ seen)
        return action.numpy()

    def update(self, rewards: list[float]) -> None:
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        errors = returns - torch.stack(self.values)
        loss = (errors**2 - torch.stack(self.log_probs) * errors.detach()).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs, self.values = [], []


@pytest.mark.parametrize("shared", [False, True])
def test_a_critic_of_its_own_shares_nothing_though_rewards_depend_on_the_action(
    shared: bool,
) -> None:
    report = el.audit_agent(
        lambda: ActorCritic(shared), environment="Pendulum-v1", discount=1.0, max_paths=40
    )
    names = {convention.name for convention in report.conventions}
    assert ("shared-critic-parameters" in names) == shared, report.text()
    assert shared or report.verdict == "unbiased", report.text()


def clip(action: Tensor) -> Tensor:
    return action.clamp(-1.0, 1.0)


@pytest.mark.parametrize("change", [torch.tanh, clip])
def test_what_the_environment_makes_of_a_number_is_its_own_affair(change: Any) -> None:
    report = audit(1.0, change)
    assert report.verdict == "unbiased", report.text()
    assert report.paths == 3 + 3**3  # of one and of three steps; the other values are no paths
    assert report.probability == pytest.approx(1.0)
    assert report.quadrature_error < 1e-8
    assert "continuous draws are replaced by 3 quadrature nodes" in report.notes[0]


def test_a_clipped_action_is_found_where_no_node_is_clipped() -> None:
    report = audit(0.3, clip, score_changed=True)  # nodes up to 0.52 and 0.86: nothing to see
    assert report.verdict == "biased", report.text()
    assert report.findings[0].rule == "transformed-action-scored"
    assert report.residual < 1e-8
    assert "too rarely to show in the residual" in report.findings[0].evidence


def test_a_credit_that_differs_between_the_nodes_is_not_called_unbiased() -> None:
    far = 0.75 * math.sqrt(3.0) + 0.1
    report = audit(0.75, credit=lambda drawn: float(drawn[0] > far))
    assert report.verdict == "unexplained", report.text()
    assert report.exit_status == 3


def test_where_more_nodes_cannot_be_afforded_it_is_said() -> None:
    report = audit(1.0, max_paths=16)
    assert report.verdict == "unbiased"  # by a rule, which holds at the other values too
    assert math.isnan(report.quadrature_error)
    assert report.notes[0].endswith("more than 16 paths: the error of 3 is unknown")


@pytest.mark.parametrize("nodes", [COARSE, FINE])
def test_nodes_have_the_moments_of_a_normal_number(nodes: int) -> None:
    values, weights = rule(nodes)
    for degree in range(2 * nodes):  # (d − 1)!! for even d
        moment = float(np.dot(weights, np.array(values) ** degree))
        exact = math.prod(range(1, degree, 2)) if degree % 2 == 0 else 0
        assert moment == pytest.approx(exact, abs=1e-12 * 10**degree)


def test_a_value_off_the_nodes_has_no_probability_and_is_no_outcome_of_a_search() -> None:
    choices = Choices(seed=1, off_nodes=True)
    value = choices.choose_normal(1.0, 2.0)
    (draw,) = choices.draws
    assert abs(value) <= 4.0
    assert draw.value == 1.0 + 2.0 * value
    assert draw.probs[draw.picked] == 0.0
    assert sum(draw.probs) == pytest.approx(1.0)
