"""What a verdict may say: nothing wrong of what is right on average, or of what is not known."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

import eligibility as el
from tests.audit.writing import LOSS, PROGRAM, audit_here, line_of, write_program


def test_what_is_exact_in_expectation_is_never_biased() -> None:
    def every_return_on_every_action(log_probs: Tensor, rewards: Tensor) -> Tensor:
        return -log_probs.sum() * rewards.sum()  # of two episodes: their products have the mean 0

    report = el.audit_loss(every_return_on_every_action, episodes=2, discount=1.0, max_paths=60)
    assert (report.verdict, report.exit_status) == ("unbiased", 0), report.text()
    assert report.residual < report.tolerance
    assert [(f.rule, f.severity) for f in report.findings] == [("broadcast", "warning")]
    assert "noisier than necessary" in report.summary


def test_a_gradient_of_rounding_alone_is_no_gradient() -> None:
    def centred_returns_summed(log_probs: Tensor, returns: Tensor) -> Tensor:
        return -log_probs.mean() * (returns - returns.mean()).sum()

    report = el.audit_loss(centred_returns_summed, discount=1.0, max_paths=60)
    assert report.verdict == "no-gradient", report.text()


def test_what_no_rule_explains_is_no_fault() -> None:
    def of_a_utility(log_probs: Tensor, returns: Tensor) -> Tensor:
        return -(log_probs * returns.exp()).sum()

    report = el.audit_loss(of_a_utility, discount=1.0, max_paths=60)
    assert (report.verdict, report.exit_status) == ("unexplained", 3), report.text()
    assert not report.faults
    assert not report.ok()
    assert report.residual > report.tolerance


@pytest.mark.parametrize("divided", [False, True])
def test_a_mean_may_be_taken_after_the_discount_from_the_start(divided: bool) -> None:
    def from_the_start(log_probs: Tensor, rewards: Tensor) -> Tensor:
        worth = (rewards * 0.9 ** torch.arange(len(rewards))).flip(0).cumsum(0).flip(0)
        credit = worth - worth.mean()
        return -(
            log_probs * (credit / (worth.std(unbiased=False) + 1e-8) if divided else credit)
        ).mean()

    report = el.audit_loss(from_the_start, discount=0.9, max_paths=60)
    names = {"whitened" if divided else "centred", "mean-over-time"}
    assert report.verdict == "convention", report.text()
    assert {convention.name for convention in report.conventions} == names
    assert "times γ^t" in report.rule


def test_what_a_mean_subtracts_is_no_praise_for_the_past() -> None:
    def weighed_by_time(log_probs: Tensor, rewards: Tensor) -> Tensor:
        worth = rewards.flip(0).cumsum(0).flip(0)
        credit = (worth - worth.mean()) * torch.arange(1, len(rewards) + 1) ** 2
        return -(log_probs * credit).sum()

    report = el.audit_loss(weighed_by_time, discount=1.0, max_paths=60)
    assert (report.verdict, report.faults) == ("unexplained", ()), report.text()


def test_a_square_whose_rows_the_rewards_move_differently_is_no_broadcast(tmp_path: Path) -> None:
    table = "table = returns - 0.3 * torch.arange(len(returns))[:, None] ** 2"
    weights = f"{table}\n    weights = table.exp().mean(0) - 1"
    path = write_program(tmp_path, LOSS, f"{weights}\n    loss = -(log_probs * weights).sum()")
    report = audit_here(path, 60)
    assert (report.verdict, report.faults) == ("unexplained", ()), report.text()


@pytest.mark.parametrize("epsilon", [1e-8, 10**-2, 0.7])
def test_what_is_added_to_a_deviation_is_found_whatever_it_is(epsilon: float) -> None:
    def over_its_deviation(log_probs: Tensor, returns: Tensor) -> Tensor:
        centred = returns - returns.mean()
        return -(log_probs * centred / (centred.std(correction=0) + epsilon)).sum()

    report = el.audit_loss(over_its_deviation, episodes=2, discount=1.0, max_paths=60)
    assert report.verdict == "convention", report.text()
    assert report.conventions[0].name == "whitened"


WHITENED = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
policy, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(policy.parameters())
for _ in range(1000):
    observation, _ = env.reset()
    log_probs, values, rewards, done = [], [], [], False
    while not done:
        observation = torch.tensor(observation, dtype=torch.float32)
        choice = Categorical(logits=policy(observation))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        values.append(critic(observation).detach().squeeze())
        observation, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = -(torch.stack(log_probs) * (returns - WEIGHT * torch.stack(values))).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("weight", [0, 1])
def test_the_deviation_of_one_step_spoils_no_longer_episode(weight: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WHITENED.replace("WEIGHT", str(weight)), encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict == "convention", report.text()
    assert [finding.rule for finding in report.findings] == ["std-of-one-element"]
    named = {convention.name for convention in report.conventions}
    assert named == {"gamma-t-dropped", "whitened"} | ({"baseline"} if weight else set())


def _of_episodes(number: int) -> str:
    """The program with this number of episodes in a batch, each of them whitened by itself."""
    start, rest = WHITENED.split("    observation, _ = env.reset()\n")
    body, end = rest.split("    optimizer.zero_grad()\n")
    body = textwrap.indent("    observation, _ = env.reset()\n" + body, "    ")
    body = body.replace("loss = -", "loss -= ").replace("WEIGHT", "0")
    loop = f"    loss = 0.0\n    for episode in range({number}):\n"
    return start + loop + body + "    optimizer.zero_grad()\n" + end


def test_nor_does_that_of_one_episode_among_several(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_of_episodes(2), encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict in ("convention", "inconclusive"), report.text()
    found = [(finding.rule, finding.severity) for finding in report.findings]
    assert found == [("std-of-one-element", "warning")], report.text()
    assert "those with an episode of one step" in report.findings[0].evidence


def test_of_a_few_paths_that_are_finite_nothing_follows(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_of_episodes(9), encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict == "inconclusive", report.text()
    assert "too few to tell" in report.summary
    assert [finding.rule for finding in report.findings] == ["std-of-one-element"]


@pytest.mark.parametrize(
    ("made", "verdict"),
    [("reward = int(reward)", "biased"), ("reward = 1.0 if reward > 0 else -1.0", "convention")],
)
def test_rewards_as_whole_numbers_are_told_in_a_long_batch(
    made: str, verdict: str, tmp_path: Path
) -> None:
    """A reward's sign is another objective, chosen on purpose."""
    program = tmp_path / "program.py"
    text = _of_episodes(12).replace("rewards.append", f"{made}\n            rewards.append")
    text = text.replace("(returns - returns.mean()) / (returns.std() + 1e-8)", "1.0 * returns")
    program.write_text(text, encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict in (verdict, "inconclusive"), report.text()
    faults = [finding.rule for finding in report.faults]
    assert faults == (["integer-returns"] if verdict == "biased" else []), report.text()


@pytest.mark.parametrize(
    "step",
    ["parameter -= 1e-3 * parameter.grad", "parameter.data.add_(parameter.grad, alpha=-1e-3)"],
)
@pytest.mark.parametrize("critic", [False, True])
def test_a_program_that_moves_its_policy_itself_is_told_so_at_once(
    critic: bool, step: str, tmp_path: Path
) -> None:
    """Also where an optimizer trains its critic, as in most programs of TRPO."""
    made = "opt = torch.optim.Adam(net.parameters(), lr=1e-2)\n"
    by_hand = (
        f"with torch.no_grad():\n        for parameter in net.parameters():\n            {step}"
    )
    text = PROGRAM.replace(made, "").replace("opt.step()", by_hand).replace("opt.", "net.")
    if critic:
        fitted = (
            "critic = torch.nn.Linear(4, 1)\nfits = torch.optim.Adam(critic.parameters())\n"
            "def fit():\n    critic(torch.ones(4)).square().sum().backward()\n    fits.step()\n"
        )
        text = text.replace("for episode", f"{fitted}for episode", 1)
        text = text.replace("    net.zero_grad()", "    fit()\n    net.zero_grad()")
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    report = audit_here(program, 60)
    assert (report.verdict, report.paths) == ("inconclusive", 25 * critic), report.text()
    line = line_of(program, "    loss.backward()")
    assert f"(line {line}): it moves its parameters itself" in report.summary


@pytest.mark.parametrize("family", ["Gamma", "StudentT"])  # made of a normal number and a gamma's
def test_a_distribution_whose_draws_are_not_enumerated_is_named(
    family: str, tmp_path: Path
) -> None:
    old = "Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))"
    new = f"torch.distributions.{family}(*net(torch.as_tensor(obs, dtype=torch.float32)).exp())"
    text = PROGRAM.replace(old, new).replace("action.item()", "int(action.item() > 0.5)")
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict == "inconclusive"
    assert f"(the program draws from torch.distributions.{family})" in report.summary


def test_a_mixture_whose_draws_are_not_enumerated_is_named(tmp_path: Path) -> None:
    """It draws from all its components: those not chosen are no part of the action."""
    old = "Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))"
    new = (
        "torch.distributions.MixtureSameFamily(Categorical(logits=net(torch.as_tensor(obs, "
        "dtype=torch.float32))), torch.distributions.Normal(torch.ones(2), torch.ones(2)))"
    )
    text = PROGRAM.replace(old, new).replace("action.item()", "int(action.item() > 0.5)")
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    report = audit_here(program, 60)
    assert report.verdict == "inconclusive"
    assert "(the program draws from torch.distributions.MixtureSameFamily)" in report.summary


def test_a_critic_that_is_moved_by_hand_is_no_matter(tmp_path: Path) -> None:
    by_hand = (
        "critic = torch.zeros(4, requires_grad=True)\ndef fit():\n"
        "    (critic - 1.0).square().sum().backward()\n    critic.data -= 0.1 * critic.grad\n"
    )
    text = PROGRAM.replace("for episode", f"{by_hand}for episode", 1)
    program = tmp_path / "program.py"
    program.write_text(
        text.replace("    opt.zero_grad()", "    fit()\n    opt.zero_grad()"), "utf-8"
    )
    assert audit_here(program, 60).verdict == "unbiased"
