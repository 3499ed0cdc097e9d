"""Advantages of whole episodes, with a critic, in the forms that people write them in."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from tests.audit.writing import audited, line_of

EPISODES = """
import gymnasium as gym
import numpy as np
import torch

GAMMA, LAMBDA = 0.99, 0.9
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)

def played():
    obs, _ = env.reset()
    states, actions, rewards, ends, nexts, done = [], [], [], [], [], False
    while not done:
        logits = actor(torch.as_tensor(obs, dtype=torch.float32))
        action = torch.distributions.Categorical(logits=logits).sample()
        states.append(obs)
        obs, reward, terminated, truncated, _ = env.step(action.item())
        actions.append(action)
        rewards.append(reward)
        ends.append(float(terminated))
        nexts.append(obs)
        done = terminated or truncated
    columns = states, rewards, ends, nexts
    return torch.stack(actions), *(torch.tensor(np.array(c), dtype=torch.float32) for c in columns)

def advantages_of(delta, rewards, value, following):
    made, running = [], 0.0
    for each in reversed(delta):
        running = each + GAMMA * LAMBDA * running
        made.insert(0, running)
    return torch.stack(made)

for update in range(100):
    loss = 0.0
    for _ in range(COUNT):
        actions, states, rewards, ends, nexts = played()
        value = critic(states)[:, 0]
        following = critic(nexts)[:, 0].detach() * (1 - ends)
        delta = rewards + GAMMA * following - value.detach()
        advantages = advantages_of(delta, rewards, value.detach(), following)
        targets = advantages + value.detach()
        log_probs = torch.log_softmax(actor(states), -1)[range(len(actions)), actions]
        loss = loss - (log_probs * advantages).sum() + (value - targets).pow(2).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
ONE, TWO = ("range(COUNT)", "range(1)"), ("range(COUNT)", "range(2)")
DELTA = "        delta = rewards + GAMMA"
TWO_STEPS = (
    "    made, running = [], 0.0",
    "    later = rewards[:-1] + GAMMA * rewards[1:] + GAMMA**2 * following[1:]\n"
    "    return torch.cat([later - value[:-1], delta[-1:]])",
)
UNMASKED = ("detach() * (1 - ends)", "detach()")
ENDED = ("ends.append(float(terminated))", "ends.append(float(terminated or truncated))")
WHITENED = (
    "        log_probs = torch",
    "        if len(advantages) > 1:\n"
    "            centred = advantages - advantages.mean()\n"
    "            advantages = centred / (advantages.std() + 1e-8)\n"
    "        log_probs = torch",
)
SCALED = (
    DELTA,
    "        if len(rewards) > 1:\n"
    "            rewards = rewards / (rewards.std() + 1e-8)\n" + DELTA,
)  # fmt: skip
NORMALISED = (SCALED[0], SCALED[1].replace("= rewards /", "= (rewards - rewards.mean()) /"))
CENTRED = (DELTA, "        rewards = rewards - rewards.mean()\n" + DELTA)


@pytest.mark.parametrize(
    ("change", "named", "rule"),
    [
        (TWO_STEPS, {"bootstrapped"}, "2 steps"),
        (SCALED, {"gae", "scaled"}, "of rewards scaled over each episode"),
    ],
)
def test_a_choice_with_a_critic_is_told(
    change: tuple[str, str], named: set[str], rule: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, change, TWO, text=EPISODES)
    assert report.verdict == "convention", report.text()
    assert {c.name for c in report.conventions} == named | {"gamma-t-dropped"}, report.text()
    assert rule in report.rule


def test_two_rewards_and_the_value_of_an_end_are_a_fault(tmp_path: Path) -> None:
    report = audited(tmp_path, TWO_STEPS, UNMASKED, ONE, text=EPISODES)
    assert [fault.rule for fault in report.faults] == ["bootstrapped-after-termination"]


@pytest.mark.parametrize("change", [CENTRED, NORMALISED])
def test_the_mean_of_the_rewards_is_missing_from_generalised_advantages_too(
    change: tuple[str, str], tmp_path: Path
) -> None:
    report = audited(tmp_path, change, TWO, text=EPISODES)
    assert [fault.rule for fault in report.faults] == ["rewards-centred"], report.text()
    assert report.faults[0].line == line_of(tmp_path / "program.py", "rewards.mean()")


@pytest.mark.parametrize(
    ("changes", "verdict", "rules"),
    [((), "convention", []), ((ENDED,), "biased", ["truncation-as-termination"])],
)
def test_each_episode_may_have_a_deviation_that_the_critic_enters(
    changes: tuple[tuple[str, str], ...], verdict: str, rules: list[str], tmp_path: Path
) -> None:
    """Batches of few different episodes leave both open, and drawn paths of all kinds do not."""
    report = audited(tmp_path, WHITENED, *changes, TWO, text=EPISODES, samples=120)
    assert report.verdict == verdict, report.text()
    assert [fault.rule for fault in report.faults] == rules
    assert "whitened over each episode" in report.rule


def test_a_broadcast_that_only_a_deviation_shows_is_found_by_another_critic(
    tmp_path: Path,
) -> None:
    text = EPISODES.replace(
        "        advantages = advantages_of(delta, rewards, value.detach(), following)\n",
        "        returns = rewards.flip(0).cumsum(0).flip(0)\n"
        "        advantages = returns - critic(states).detach()\n",
    ).replace("(value - targets)", "(value - returns)")
    spread = "(advantages.std(correction=0) + 1e-8)"
    whitened = f"        advantages = (advantages - advantages.mean()) / {spread}\n{WHITENED[0]}"
    report = audited(tmp_path, (WHITENED[0], whitened), ONE, text=text)
    assert report.verdict == "convention", report.text()  # its baseline is lost, and no more
    assert [(f.rule, f.severity) for f in report.findings] == [("broadcast", "warning")]
    assert report.findings[0].line == line_of(tmp_path / "program.py", "returns - critic")


BATCHES = """
import gymnasium as gym
import torch

env = gym.make(NAME)
policy = torch.nn.Linear(env.observation_space.shape[0], 2)
deviation = torch.nn.Parameter(torch.zeros(()))
critic = torch.nn.Linear(env.observation_space.shape[0], 1)
optimizer = torch.optim.Adam([*policy.parameters(), deviation, *critic.parameters()])


def distribution(states):
    numbers = policy(states)
    if NAME == "CartPole-v1":
        return torch.distributions.Categorical(logits=numbers)
    return torch.distributions.Normal(numbers[..., 0], deviation.exp())


for _ in range(50):
    states, actions, rewards, ends = [], [], [], []
    while len(states) < 4:
        state, _ = env.reset()
        over = False
        while not over:
            states.append(torch.as_tensor(state, dtype=torch.float))
            actions.append(distribution(states[-1]).sample())
            state, reward, terminated, truncated, _ = env.step(actions[-1].numpy().reshape(SHAPE))
            over = terminated or truncated
            rewards.append(float(reward))
            ends.append(float(over))
    states, actions = torch.stack(states), torch.stack(actions)
    values = critic(states).squeeze(-1)
    kept, later = values.detach(), torch.cat([values.detach()[1:], torch.zeros(1)])
    rewards, live = torch.tensor(rewards), 1.0 - torch.tensor(ends)
    rewards = rewards / (rewards.std(correction=0) + 1e-8)
    delta, running, advantages = rewards + 0.9 * later * live - kept, 0.0, []
    for t in reversed(range(len(delta))):
        running = delta[t] + 0.9 * 0.8 * live[t] * running
        advantages.insert(0, running)
    advantages = torch.stack(advantages)
    targets = advantages + kept
    advantages = WHITEN
    loss = -(advantages * distribution(states).log_prob(actions)).mean()
    optimizer.zero_grad()
    (loss + (values - targets).pow(2).mean()).backward()
    optimizer.step()
"""


# Batches of several lengths; what a continuous action earns depends on its number.
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_rewards_over_their_deviation_are_told_before_generalised_advantages(
    name: str, tmp_path: Path
) -> None:
    discrete = name == "CartPole-v1"
    whitened = "(advantages - advantages.mean()) / (advantages.std() + 1e-8)"
    text = BATCHES.replace("NAME", repr(name)).replace("SHAPE", "()" if discrete else "-1")
    text = text.replace("WHITEN", whitened if discrete else "advantages")
    (tmp_path / "program.py").write_text(text)
    report = el.audit_script(tmp_path / "program.py")
    assert [fault.rule for fault in report.faults] == ["truncation-as-termination"], report.text()
    assert "of rewards scaled" in report.rule, report.rule
    assert ("whitened" in report.rule) == discrete, report.rule


def test_a_return_that_goes_on_is_found_where_a_value_and_a_deviation_follow(
    tmp_path: Path,
) -> None:
    text = EPISODES.replace(
        "    loss = 0.0\n", "    loss, running, credits, scores = 0.0, 0.0, [], []\n"
    )
    start = text.index("        delta = rewards")
    end = text.index("    adam.zero_grad()")
    text = (
        text[:start] + "        returns = []\n"
        "        for reward in reversed(rewards):\n"
        "            running = reward + GAMMA * running\n"
        "            returns.insert(0, running)\n"
        "        credits.append(torch.stack(returns) - value.detach())\n"
        "        chosen = range(len(actions)), actions\n"
        "        scores.append(torch.log_softmax(actor(states), -1)[chosen])\n"
        "        loss = loss + (value - torch.stack(returns)).pow(2).sum()\n"
        "    credits = torch.cat(credits)\n"
        "    credits = (credits - credits.mean()) / (credits.std() + 1e-8)\n"
        "    loss = loss - (torch.cat(scores) * credits).mean()\n" + text[end:]
    )
    trunk = "torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))"
    shared = (trunk, "*actor[:2], torch.nn.Linear(8, 1))")
    once = (
        "[*actor.parameters(), *critic.parameters()]",
        "[*actor.parameters(), *critic[2].parameters()]",
    )
    report = audited(tmp_path, shared, once, TWO, text=text)
    assert [fault.rule for fault in report.faults] == ["return-carried-over-episodes"]
    assert report.faults[0].line == line_of(tmp_path / "program.py", "= reward + GAMMA * running")


TWO_COMPONENTS = """
import gymnasium as gym
import torch
from torch.distributions import Independent, Normal

env = gym.make("LunarLanderContinuous-v3")
mean = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
critic = torch.nn.Linear(8, 1)
adam = torch.optim.Adam([*mean.parameters(), *critic.parameters()], lr=1e-2)
for episode in range(100):
    obs, _ = env.reset()
    log_probs, values, rewards, done = [], [], [], False
    while not done:
        state = torch.as_tensor(obs, dtype=torch.float32)
        dist = Independent(Normal(mean(state), 0.5), 1)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        values.append(critic(state))
        obs, reward, terminated, truncated, _ = env.step(action.numpy())
        rewards.append(float(reward))
        done = terminated or truncated
    rewards, log_probs = torch.tensor(rewards), torch.stack(log_probs)
    LOSS
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_the_return_of_the_episode_is_no_broadcast_at_half_the_discount(tmp_path: Path) -> None:
    report = audited(
        tmp_path,
        ("LOSS", "loss = -log_probs.sum() * rewards.sum()"),
        text=TWO_COMPONENTS,
        max_paths=600,
    )
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()


def test_values_of_states_that_all_paths_meet_are_told_by_the_whole_problem(tmp_path: Path) -> None:
    crossed = (
        "returns = rewards.flip(0).cumsum(0).flip(0)\n"
        "    advantages = returns - torch.stack(values)\n"
        "    loss = -(log_probs * advantages.detach()).mean() + advantages.pow(2).mean()"
    )
    report = audited(tmp_path, ("LOSS", crossed), text=TWO_COMPONENTS, max_paths=600, samples=40)
    assert [fault.rule for fault in report.faults] == ["broadcast"], report.text()
    assert report.faults[0].line == line_of(tmp_path / "program.py", "- torch.stack(values)")


def test_an_episode_of_one_step_may_stay_as_it_is_in_a_batch_of_several(tmp_path: Path) -> None:
    text = EPISODES.replace(" + (value - targets).pow(2).sum()", "").replace(
        "advantages_of(delta, rewards, value.detach(), following)",
        "rewards.flip(0).cumsum(0).flip(0)",
    )
    report = audited(tmp_path, WHITENED, TWO, text=text)
    assert {c.name for c in report.conventions} == {"whitened"}, report.text()


ONE_LAYER = (
    ("torch.nn.Linear(8, 2))\ncritic", "torch.nn.Linear(8, 3))\ncritic"),
    (
        "critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), "
        "torch.nn.Linear(8, 1))",
        "critic = lambda states: actor(states)[:, 2:]",
    ),
    ("[*actor.parameters(), *critic.parameters()]", "actor.parameters()"),
    ("logits = actor(torch.as_tensor(obs, dtype=torch.float32))",
     "logits = actor(torch.as_tensor(obs, dtype=torch.float32))[:2]"),
    ("torch.log_softmax(actor(states), -1)", "torch.log_softmax(actor(states)[:, :2], -1)"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ((), []),
        ((("running = each + GAMMA * LAMBDA * running", "running = each"),), []),
        ((UNMASKED,), ["bootstrapped-after-termination"]),
        ((("log_probs * advantages).sum()", "log_probs * advantages.flip(0)).sum()"),),
         ["reversed-returns"]),
    ],
)  # fmt: skip
def test_one_layer_may_give_logits_and_values(
    change: tuple[tuple[str, str], ...], rules: list[str], tmp_path: Path
) -> None:
    report = audited(tmp_path, *ONE_LAYER, *change, ONE, text=EPISODES)
    assert [fault.rule for fault in report.faults] == rules, report.text()
    assert rules or report.verdict == "convention", report.text()


def _of_whitened(again: str) -> tuple[str, str]:
    return (
        "        log_probs = torch",
        "        whitened = lambda numbers: (numbers - numbers.mean()) / (numbers.std() + EPS)\n"
        "        returns = torch.tensor([\n"
        "            sum(GAMMA**k * r for k, r in enumerate(rewards[t:]))\n"
        "            for t in range(len(rewards))\n"
        "        ])\n"
        f"        advantages = {again}(whitened(returns) - value.detach())\n"
        "        log_probs = torch",
    )


@pytest.mark.parametrize("again", ["whitened", ""])
@pytest.mark.parametrize("epsilon", ["0.0", "1e-3"])
def test_whitened_returns_minus_values_may_be_whitened_again(
    again: str, epsilon: str, tmp_path: Path
) -> None:
    small = ("GAMMA, LAMBDA = 0.99, 0.9", f"GAMMA, LAMBDA, EPS = 0.99, 0.9, {epsilon}")
    report = audited(tmp_path, _of_whitened(again), small, ONE, text=EPISODES)
    assert report.verdict == "convention", report.text()
    first = ", of returns whitened" if again else ""
    assert f"reward-to-go minus V(s) (γ = 0.99){first}, whitened" in report.rule
    assert not report.faults
