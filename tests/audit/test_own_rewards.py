"""Programs without an environment: a bandit, a reward function, a sequence paid at its end."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.costs import is_a_cost
from eligibility.audit.examine import examine
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.source import read_source
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.reward_search import own_problem, with_own_reward
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.smaller import FIRST
from tests.audit.writing import line_of

BEGIN = """
import random
import numpy as np
import torch
from torch.distributions import Bernoulli, Categorical, Normal

means = [0.1, 0.5, 0.9]
def get_reward(arm):
    luck = random.random()
    return 1.0 if luck < means[arm] else 0.0
class Bandit:
    def __init__(self):
        self.means = np.random.randn(3)
    def pull(self, arm):
        return self.means[arm] + np.random.randn()

bandit = Bandit()
theta = torch.nn.Parameter(torch.zeros(3))
opt = torch.optim.Adam([theta], lr=0.1)
baseline, history = 0.0, []
for step in range(500):
"""
END = """
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ONE = """
    dist = Categorical(logits=theta)
    action = dist.sample()
    reward = bandit.pull(action.item())
    loss = -dist.log_prob(action) * (reward - baseline)
    baseline = 0.9 * baseline + 0.1 * reward
"""
PARTS = """
    dist = Categorical(logits=theta)
    action = dist.sample()
    gain = means[action.item()]
    cost = 0.1 * action.item()
    reward = gain - cost
    loss = -dist.log_prob(action) * reward
"""
APPENDED = """
    log_probs, rewards = [], []
    for _ in range(3):
        dist = Categorical(logits=theta)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        rewards.append(get_reward(action.item()))
    advantages = torch.tensor(rewards) - np.mean(rewards)
    loss = -(torch.stack(log_probs) * advantages).sum()
"""
BATCH = """
    dist = Categorical(logits=theta)
    actions = dist.sample((4,))
    rewards = torch.tensor(means)[actions]
    loss = -(dist.log_prob(actions) * (rewards - rewards.mean())).mean()
"""
HAND = """
    probability = torch.sigmoid(theta[0])
    action = 1 if random.random() < probability.item() else 0
    won = get_reward(action)
    log_prob = torch.log(probability if action else 1 - probability)
    loss = -log_prob * won
"""
NUMBER = """
    dist = Normal(theta[0], torch.exp(theta[1]))
    action = dist.sample()
    reward = -((action - 3.0) ** 2)
    loss = -dist.log_prob(action) * reward
"""
CONTEXT = """
    context = np.random.randn(3)
    seen = torch.tensor(context, dtype=theta.dtype)
    probs = torch.softmax(torch.stack([theta @ seen, theta[0]]), 0)
    action = np.random.choice(2, p=probs.detach().numpy())
    reward = 1 if (context.sum() > 0) == (action == 1) else -1
    loss = -torch.log(probs[action]) * reward
"""
SEQUENCE = """
    log_probs, tokens = [], [0]
    for t in range(3):
        dist = Categorical(logits=theta * (1.0 + tokens[-1]))
        token = dist.sample()
        log_probs.append(dist.log_prob(token))
        tokens.append(token.item())
    score = float(sum(tokens) == 3)
    loss = -torch.stack(log_probs).sum() * score
"""
# The first return is its own baseline: the first update is 0, whatever the reward.
AVERAGE = """
    dist = Categorical(logits=theta)
    action = dist.sample()
    reward = get_reward(action.item())
    history.append(reward)
    average = sum(history) / len(history)
    loss = -dist.log_prob(action) * (reward - average)
"""
WHITENED = BATCH.replace(
    "(rewards - rewards.mean())", "((rewards - rewards.mean()) / (rewards.std() + 1e-4))"
)
COST = ONE.replace("loss = -", "loss = ").replace("reward", "cost")
BRANCHES = """
    dist = Categorical(logits=theta)
    action = dist.sample()
    if random.random() < means[action.item()]:
        reward = 1
    else:
        reward = -1
    loss = -dist.log_prob(action) * reward
"""
DEFAULT = BRANCHES.replace("    if random", "    reward = 0; luck = None\n    if random").replace(
    "-1", "0"
)
# Variational inference by scores: what a draw's density adds to the reward belongs to it.
ELBO = """
    q = Normal(theta[0], torch.exp(theta[1]))
    z = q.sample()
    log_joint = Normal(z, 1.0).log_prob(torch.tensor([1.0, 2.0])).sum()
    elbo = (log_joint - q.log_prob(z)).detach()
    loss = -q.log_prob(z) * elbo
"""
# Answers of their own length to a question that is drawn, two of them a step; what a function calls
# `reward` on the way to the reward is another name.
ANSWERS = """
    def check(digits, wanted):
        reward = 0.1
        if sum(digits) == wanted:
            reward = 1.0
        return reward
    loss = 0.0
    for _ in range(2):
        asked, answer, done = random.randint(0, 2), [], False
        while not done and len(answer) < 3:
            dist = Categorical(logits=theta * (1.0 + asked + len(answer)))
            token = dist.sample()
            loss = loss - 0.01 * dist.entropy()
            answer.append((dist.log_prob(token), token.item()))
            done = token.item() == 2
        reward = check([digit for _, digit in answer], asked)
        baseline = 0.9 * baseline + 0.1 * reward
        loss = loss - sum(log_prob for log_prob, _ in answer) * (reward - baseline)
"""
RIGHT = {
    "one": (ONE, "reward"),
    "parts": (PARTS, "reward"),
    "appended": (APPENDED, "rewards"),
    "batch": (BATCH, "rewards"),
    "hand": (HAND, "won"),
    "number": (NUMBER, "reward"),
    "context": (CONTEXT, "reward"),
    "sequence": (SEQUENCE, "score"),
    "average": (AVERAGE, "reward"),
    "whitened": (WHITENED, "rewards"),
    "cost": (COST, "cost"),
    "elbo": (ELBO, "elbo"),
    "branches": (BRANCHES, "reward"),
    "default": (DEFAULT, "reward"),
    "answers": (ANSWERS, "reward"),
}


def audited(folder: Path, body: str) -> AuditReport:
    """The audit of a program in this process."""
    path = folder / "program.py"
    path.write_text(BEGIN + body.strip("\n") + END, encoding="utf-8")
    source = read_source(path)
    runner = CallableRunner(partial(runpy.run_path, str(path), run_name="__main__"))
    acting = own_problem(runner, runner.run(FIRST))
    assert acting is not None
    problem, path_of_it = acting
    found = with_own_reward(runner, problem, len(path_of_it.updates))
    return examine(
        found or runner,
        200,
        12,
        lambda what, done, expected: None,
        lambda observed: AuditedProgram(observed, source, str(path), source.constants(())),
    )


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_acquitted_and_its_reward_named(name: str, tmp_path: Path) -> None:
    body, reward = RIGHT[name]
    report = audited(tmp_path, body)
    assert report.verdict in ("unbiased", "convention"), report.text()
    assert not report.findings
    assert report.residual < 1e-7 or name in ("whitened", "answers")
    kind = "cost" if name == "cost" else "reward"
    assert any(f"its {kind} is `{reward}` in line" in note for note in report.notes), report.notes


def test_names_tell_costs_from_rewards() -> None:
    assert all(map(is_a_cost, ("dists", "dist", "tour_length", "makespan", "cost")))
    assert not any(map(is_a_cost, ("distribution", "reward", "minus_cost_as_reward", "x")))


@pytest.mark.parametrize("reward", ["-b", "1.0 - b"])
def test_what_a_reward_is_made_of_with_a_minus_is_a_cost(reward: str, tmp_path: Path) -> None:
    """Of either name the numbers follow the draws; the first one is replaced."""
    body = ONE.replace(
        "    reward = bandit.pull(action.item())\n",
        f"    b = (means[action.item()] - 0.7) ** 2\n    reward = {reward}\n",
    )
    report = audited(tmp_path, body)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()
    assert any("its cost is `b` in line" in note for note in report.notes), report.notes


def test_a_sign_is_wrong_only_for_a_reward(tmp_path: Path) -> None:
    report = audited(tmp_path, COST.replace("cost", "x"))
    assert report.verdict == "unexplained"
    assert report.summary.startswith("what raises `x` in line ")
    assert [(found.rule, found.severity) for found in report.findings] == [
        ("wrong-sign", "warning")
    ]


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("one", "loss = -dist", "loss = dist", "wrong-sign"),
        (
            "batch",
            "dist.log_prob(actions)",
            "dist.probs[actions]",
            "probability-not-log-probability",
        ),
        (
            "context",
            "-torch.log(probs[action])",
            "-probs[action]",
            "probability-not-log-probability",
        ),
        ("sequence", "loss = -torch", "loss = torch", "wrong-sign"),
        (
            "number",
            "dist.log_prob(action)",
            "dist.log_prob(action).exp()",
            "probability-not-log-probability",
        ),
    ],
)
def test_a_fault_is_found(name: str, old: str, new: str, rule: str, tmp_path: Path) -> None:
    body = RIGHT[name][0]
    assert old in body
    report = audited(tmp_path, body.replace(old, new))
    assert rule in {finding.rule for finding in report.findings}, report.text()
    assert report.verdict not in ("unbiased", "convention")
    place = next(finding.line for finding in report.findings if finding.rule == rule)
    assert place == line_of(tmp_path / "program.py", "loss = ")


@pytest.mark.parametrize(
    "body",
    [
        # the second reward depends on the first action: an environment without a name
        """
    log_probs, rewards, place = [], [], 0
    for t in range(2):
        dist = Categorical(logits=theta * (1.0 + place))
        place = dist.sample().item()
        log_probs.append(dist.log_prob(torch.tensor(place)))
        rewards.append(get_reward(place))
    loss = -(torch.stack(log_probs) * torch.tensor(rewards).flip(0).cumsum(0).flip(0)).sum()
""",
        # its returns are no rewards: the second draw depends on the first
        """
    log_probs, rewards, place = [], [], 0
    for t in range(2):
        dist = Categorical(logits=theta * (1.0 + place))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        place, reward = action.item(), get_reward(action.item())
        rewards.append(reward)
    returns = [sum(rewards[t:]) for t in range(2)]
    loss = -sum(l * g for l, g in zip(log_probs, returns))
""",
        # nothing that it computes moves its gradient
        """
    dist = Categorical(logits=theta)
    action = dist.sample()
    reward = get_reward(action.item())
    loss = -dist.log_prob(action)
""",
    ],
)
def test_other_programs_are_refused(body: str, tmp_path: Path) -> None:
    report = audited(tmp_path, body)
    assert report.verdict == "inconclusive"
    assert "nor does it give a name a number that moves its gradient" in report.summary


def test_many_answers_before_an_update_become_few(tmp_path: Path) -> None:
    many = ANSWERS.replace("range(2)", "range(64)")
    (tmp_path / "program.py").write_text(BEGIN + many.strip("\n") + END, encoding="utf-8")
    report = el.audit_script(tmp_path / "program.py", samples=40)
    assert report.verdict == "convention", report.text()
    assert "minus a baseline of earlier episodes' returns" in report.rule
    assert any(note.startswith("reduced, so that") and "64 is 6" in note for note in report.notes)
