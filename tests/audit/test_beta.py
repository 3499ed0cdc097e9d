"""Actions on an interval, drawn from beta distributions: few values stand for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Beta

from eligibility.audit.interception.continuous import _moving
from eligibility.audit.quadrature import COARSE, FINE, beta_rule
from tests.audit.writing import audit_here, line_of

_PROGRAM = """
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Beta, Dirichlet

env = gym.make("Pendulum-v1")
net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2), nn.Softplus())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for episode in range(500):
    obs, _ = env.reset()
    log_probs, entropies, rewards, done = [], [], [], False
    while not done:
        alpha, beta = net(torch.as_tensor(obs, dtype=torch.float32)).split(1)
        dist = Beta(alpha + 0.5, beta + 0.5)
        share = dist.sample()
        log_probs.append(dist.log_prob(share).sum())
        entropies.append(dist.entropy().sum())
        obs, reward, terminated, truncated, _ = env.step((4.0 * share - 2.0).numpy())
        rewards.append(float(reward))
        done = terminated or truncated
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + 0.99 * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    loss = -(torch.stack(log_probs) * returns).sum() - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_CONCENTRATIONS = st.floats(0.2, 200.0)


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    text = _PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_gradient_of_a_beta_policy_is_recognised(tmp_path: Path) -> None:
    report = audit_here(written(tmp_path, (".mean()", ".sum()")), 60)
    assert report.verdict == "convention", report.text()
    assert not report.findings, report.text()
    assert report.rule == "1 × reward-to-go (γ = 0.99), plus 0.01 × entropy"


@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ("log_prob(share)", "log_prob(dist.sample())", "scored-other-action", "dist.log_prob"),
        ("+ 0.99 * running", "", "immediate-reward", "running = reward"),
        (".log_prob(share)", ".log_prob(share).exp()", "probability-not-log-probability", "loss ="),
        ("dist.sample()", "dist.mean.detach()", "argmax-action", "share ="),
    ],
)
def test_a_fault_of_a_beta_policy_is_named(
    old: str, new: str, rule: str, line: str, tmp_path: Path
) -> None:
    path = written(tmp_path, (old, new), (" - 0.01 * torch.stack(entropies).mean()", ""))
    report = audit_here(path, 60)
    assert [finding.rule for finding in report.findings] == [rule], report.text()
    assert report.findings[0].line == line_of(path, line)


def test_a_draw_that_is_not_read_is_no_choice_of_the_likeliest_action(tmp_path: Path) -> None:
    """Though `mean` is in the text, and each state was answered by one action alone."""
    drawn = ("share = dist.sample()", "share = Dirichlet(torch.ones(2)).sample()[:1] * 0 + 0.5")
    report = audit_here(written(tmp_path, drawn), 20)
    assert (report.verdict, report.findings) == ("inconclusive", ()), report.text()
    assert "torch.distributions.Dirichlet" in report.summary


def test_an_action_that_is_made_of_two_numbers_is_not_told_by_one_of_them(tmp_path: Path) -> None:
    """A normal number with a covariance of low rank is drawn as the sum of two."""
    drawn = (
        ("Beta(alpha + 0.5, beta + 0.5)", "Low(alpha, 0.1 * torch.ones(1, 1), beta + 0.5)"),
        ("import Beta, Dirichlet", "import LowRankMultivariateNormal as Low"),
    )
    report = audit_here(written(tmp_path, *drawn), 100)
    assert not report.faults, report.text()


@given(_CONCENTRATIONS, _CONCENTRATIONS, st.sampled_from([COARSE, FINE]))
def test_the_eligibilities_of_a_beta_number_have_no_mean(a: float, b: float, nodes: int) -> None:
    """By the derivatives of torch's own density; a baseline must not look biased."""
    values, weights = beta_rule(nodes, a, b)
    law = torch.tensor([a, b], dtype=torch.float64)
    places = torch.tensor(values, dtype=torch.float64)
    scores: torch.Tensor = torch.autograd.functional.jacobian(
        lambda law: Beta(law[0], law[1], False).log_prob(places), law
    )
    share = np.array(weights)
    assert len(values) == nodes
    assert min(weights) > 0.0
    assert share.sum() == pytest.approx(1.0)
    size = 1.0 + np.abs(scores.numpy()).max()
    np.testing.assert_allclose(share @ scores.numpy(), 0.0, atol=1e-9 * size)


def test_a_reparameterised_beta_number_moves_as_torchs_does(tmp_path: Path) -> None:
    """Compared with the derivative of the quantile at the same value, by differences."""
    a, b = (torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in (1.7, 0.8))
    x = torch.tensor(0.3, dtype=torch.float64)
    by_a, by_b = torch.autograd.grad(_moving(x, a, b), (a, b))
    grid = torch.linspace(0, 0.3, 400_001, dtype=torch.float64)[1:]

    def below(a: float, b: float) -> float:
        density = Beta(a, b, False).log_prob(grid).exp().numpy()
        return float(np.trapezoid(density, grid.numpy()))

    density = float(Beta(1.7, 0.8).log_prob(x).exp())
    for own, (left, right) in ((by_a, ((1.6999, 0.8), (1.7001, 0.8))),
                               (by_b, ((1.7, 0.7999), (1.7, 0.8001)))):  # fmt: skip
        slope = (below(*right) - below(*left)) / 2e-4
        assert float(own) == pytest.approx(-slope / density, rel=1e-3)  # torch approximates it
