"""The FIX of a fault, applied: its line of code in place of the faulty one acquits the program."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from eligibility.audit.faults import FAULTS
from eligibility.audit.reporting.report import AuditReport
from tests.audit.writing import audit_here

DISCRETE = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

gamma = 0.9
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam([*net.parameters(), *critic.parameters()])
for episode in range(1000):
    obs, _ = env.reset()
    observations, actions, log_probs, entropies, rewards, done = [], [], [], [], [], False
    while not done:
        observations.append(torch.as_tensor(obs, dtype=torch.float32))
        logits = net(observations[-1])
        probs = logits.softmax(-1)
        dist = Categorical(logits=logits)
        action = dist.sample()
        log_prob = dist.log_prob(action)
        actions.append(action)
        log_probs.append(log_prob)
        entropies.append(dist.entropy())
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    log_probs = torch.stack(log_probs)
    loss = -(log_probs * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOSS = "loss = -(log_probs * returns).sum()"
SCORED_LATE = f"""action = torch.stack(actions)
    dist = Categorical(logits=net(torch.stack(observations)))
    log_probs = dist.log_prob(action)
    {LOSS}"""
WITH_ENTROPY = """policy_loss, entropy = -(log_probs * returns).sum(), torch.stack(entropies).sum()
    entropy_coef = 0.05
    loss = policy_loss - entropy_coef * entropy"""
WITH_CRITIC = """values = critic(torch.stack(observations)).squeeze(-1)
    advantage = (returns - values).detach()
    loss = -(log_probs * advantage).sum() + (returns - values).pow(2).sum()"""
CONTINUOUS = (
    DISCRETE.replace("CartPole-v1", "LunarLanderContinuous-v3")
    .replace("Linear(4, 8)", "Linear(8, 8)")
    .replace("Categorical(logits=logits)", "Normal(logits, 0.5)")
    .replace("import Categorical", "import Normal")
    .replace("log_prob = dist.log_prob(action)", "log_prob = dist.log_prob(action).sum(-1)")
    .replace("action.item()", "action.numpy()")
)


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the program"
    return text.replace(old, new)


# fault -> (a right program, its line in the place of the fault, the faulty line)
APPLIED = {
    "mean-log-prob-times-sum-of-returns": (
        DISCRETE, LOSS, "loss = -log_probs.mean() * returns.sum()",
    ),
    "broadcast": (DISCRETE, LOSS, "loss = -(log_probs * returns[:, None]).sum()"),
    "immediate-reward": (DISCRETE, "running = reward + gamma * running", "running = reward"),
    "probability-not-log-probability": (
        changed(DISCRETE, LOSS, SCORED_LATE), LOSS, "loss = -(log_probs.exp() * returns).sum()",
    ),
    "most-likely-action-scored": (
        DISCRETE, "log_prob = dist.log_prob(action)", "log_prob = dist.log_prob(probs.argmax())",
    ),
    "component-not-scored": (
        CONTINUOUS,
        "log_prob = dist.log_prob(action).sum(-1)",
        "log_prob = dist.log_prob(action)[..., 0]",
    ),
    "argmax-action": (DISCRETE, "action = dist.sample()", "action = logits.argmax(-1)"),
    "entropy-sign": (
        changed(DISCRETE, LOSS, WITH_ENTROPY),
        "loss = policy_loss - entropy_coef * entropy",
        "loss = policy_loss + entropy_coef * entropy",
    ),
    "no-gradient": (
        DISCRETE,
        "log_probs = torch.stack(log_probs)",
        "log_probs = torch.tensor(log_probs, requires_grad=True)",
    ),
    "advantage-not-detached": (
        changed(DISCRETE, LOSS, WITH_CRITIC),
        "advantage = (returns - values).detach()",
        "advantage = returns - values",
    ),
    "gradients-not-zeroed": (DISCRETE, "optimizer.zero_grad()", "pass"),
}  # fmt: skip
# Their FIX is an instruction, or a line of another kind of program than these: nobody has applied
# it here. A fault that is new belongs above.
NOT_APPLIED = {
    "acting-policy-stale", "autoreset-step-trained-on", "baseline-sees-own-return",
    "behaviour-not-scored", "bootstrapped-after-termination", "critic-target-not-detached",
    "discount-from-the-end", "fails-on-some-episodes", "integer-returns", "last-reward-dropped",
    "last-step-dropped", "mask-in-acting-only", "non-finite-gradient", "old-log-prob-stale",
    "ratio-always-one", "return-carried-over-actors", "return-carried-over-episodes",
    "rewards-so-far", "second-update-differs", "second-update-fails",
    "several-updates-without-ratio", "shifted-rewards", "stale-batch", "std-of-one-element",
    "truncation-as-termination", "unexplained", "probs-as-logits", "returns-unused",
    "reversed-returns", "scored-other-action", "stale-graph", "transformed-action-scored",
    "wrong-sign",
    # of language models: tests/audit/language
    "first-token-dropped", "prompt-scored", "kl-forward", "kl-sign", "kl-without-gradient",
    "off-policy-uncorrected", "padding-counted",
}  # fmt: skip


@cache
def judged(folder: Path, text: str) -> AuditReport:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return audit_here(path, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixes")


def test_every_fix_is_applied_or_listed() -> None:
    assert set(APPLIED) | NOT_APPLIED == set(FAULTS)
    assert not set(APPLIED) & NOT_APPLIED


@pytest.mark.parametrize("rule", sorted(APPLIED))
def test_the_fix_of_a_fault_acquits(rule: str, folder: Path) -> None:
    text, right, wrong = APPLIED[rule]
    faulty = judged(folder, changed(text, right, wrong))
    named = [finding for finding in faulty.findings if finding.rule == rule]
    assert named, faulty.text()
    fix = named[0].fix.partition("  #")[0]
    fixed = judged(folder, changed(text, right, fix))
    assert fixed.verdict in ("unbiased", "convention"), fixed.text()
    assert not fixed.findings, fixed.text()
