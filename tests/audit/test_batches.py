"""What programs do to the credits of several episodes in a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import audit_here, line_of

_BATCH = """
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-2)
for batch in range(1000):
    log_probs, entropy, observations, returns = [], [], [], []
    totals, sums, lengths = [], [], []
    for episode in range(EPISODES):
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            obs = torch.as_tensor(obs, dtype=torch.float32)
            dist = Categorical(logits=net(obs))
            action = dist.sample()
            observations.append(obs)
            log_probs.append(dist.log_prob(action))
            entropy.append(dist.entropy())
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        back, running = [], 0.0
        for reward in reversed(rewards):
            running = reward + 0.95 * running
            back.insert(0, running)
        returns += back
        totals.append(back[0])
        sums.append(sum(rewards))
        lengths.append(len(back))
    returns, totals = torch.tensor(returns), torch.tensor(totals)
    log_probs, entropy = torch.stack(log_probs), torch.stack(entropy)
    observations = torch.stack(observations)
    values = critic(observations).squeeze(-1)
    advantages = returns - values.detach()
    CREDIT
    loss = -(log_probs * advantages).mean() - BONUS * entropy.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    critic_loss = (values - returns).pow(2).mean()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
"""
_WHITENED = "advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)"
_SEVERAL = f"if len(advantages) > 1:\n        {_WHITENED}"
_SCALED = """advantages = 0.01 * returns
    if len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
    advantages = advantages - values.detach()"""
_CRITIC_FIRST = """critic_opt.zero_grad()
    (values - returns).pow(2).mean().backward()
    critic_opt.step()
    values = critic(observations).squeeze(-1)
    advantages = returns - values.detach()"""
_OTHERS = """own = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    advantages = returns - (totals.sum() - totals[own]) / (len(totals) - 1)"""
_GENERALISED = """advantages, following = [], 0.0
    ends = torch.tensor(lengths).cumsum(0) - 1
    for t in reversed(range(len(returns))):
        last = bool((ends == t).any())
        after = 0.0 if last else values[t + 1].item()
        rewarded = returns[t] - (0.0 if last else 0.95 * returns[t + 1])
        delta = rewarded + 0.95 * after - values[t].item()
        following = delta + (0.0 if last else 0.95 * 0.9 * following)
        advantages.insert(0, following)
    advantages = torch.stack(advantages)"""
_SCALED_DELTAS = _GENERALISED.replace("= rewarded", "= 0.01 * rewarded")
_SCALED_DELTAS += f"\n    {_SEVERAL}".replace("1e-8", "1e-5")
_LINEAR = """features = torch.cat([observations, observations**2], 1)
    ridge = features.T @ features + 1e-3 * torch.eye(8)
    advantages = returns - features @ torch.linalg.solve(ridge, features.T @ returns)"""


@pytest.mark.parametrize(
    ("credit", "episodes", "bonus", "named"),
    [
        (_WHITENED, 2, 0.0, {"baseline", "whitened"}),
        (_WHITENED, 3, 0.01, {"baseline", "whitened", "entropy-bonus"}),
        (_SEVERAL, 1, 0.0, {"baseline", "whitened"}),
        (f"advantages = returns\n    {_SEVERAL}", 1, 0.05, {"whitened", "entropy-bonus"}),
        (_SCALED, 1, 0.01, {"baseline", "whitened", "entropy-bonus"}),
        ("advantages = returns - totals.mean()", 3, 0.0, {"centred"}),
        (_OTHERS, 3, 0.0, {"leave-one-out"}),
        (_GENERALISED, 3, 0.01, {"gae", "entropy-bonus"}),
        (_SCALED_DELTAS, 1, 0.01, {"gae", "whitened", "entropy-bonus"}),
        ("advantages = returns - sum(sums) / len(sums)", 3, 0.0, {"centred"}),
    ],
)
def test_a_choice_is_told_for_batches_of_episodes(
    credit: str, episodes: int, bonus: float, named: set[str], tmp_path: Path
) -> None:
    report = audit_here(_written(tmp_path, credit, episodes, bonus), 60)
    # the loop over generalised advantages takes the value at a time limit for 0
    wrong = ["truncation-as-termination"] if "delta" in credit else []
    assert [finding.rule for finding in report.findings] == wrong, report.text()
    found = {convention.name for convention in report.conventions}
    assert found == named | {"gamma-t-dropped", "mean-over-time"}, report.text()


def test_a_critic_that_learns_first_is_found_in_a_batch_too_long_to_be_replayed(
    tmp_path: Path,
) -> None:
    path = _written(tmp_path, _CRITIC_FIRST, 16, 0.0)
    report = audit_here(path, 20)
    assert [finding.rule for finding in report.faults] == ["baseline-sees-own-return"]
    assert report.faults[0].line == line_of(path, "critic_opt.step()")


@pytest.mark.parametrize(
    ("credit", "verdict", "rules"),
    [
        ("advantages = advantages.relu()", "unexplained", []),
        (_LINEAR, "biased", ["baseline-sees-own-return"]),
    ],
)
def test_what_few_different_episodes_bear_out_is_no_rule(
    credit: str, verdict: str, rules: list[str], tmp_path: Path
) -> None:
    """27 batches of three kinds of episodes: a rule with six unknowns explains them all."""
    report = audit_here(_written(tmp_path, credit, 3, 0.0), 60)
    assert report.verdict == verdict, report.text()
    assert [fault.rule for fault in report.faults] == rules


def _written(folder: Path, credit: str, episodes: int, bonus: float) -> Path:
    path = folder / "program.py"
    text = _BATCH.replace("CREDIT", credit).replace("EPISODES", str(episodes))
    path.write_text(text.replace("BONUS", str(bonus)), encoding="utf-8")
    return path


def test_batches_of_one_step_have_no_deviation(tmp_path: Path) -> None:
    """What would be whitened only among several never is."""
    path = tmp_path / "program.py"
    text = _BATCH.replace("CREDIT", "advantages = returns.exp()").replace("EPISODES", "1")
    text = text.replace("BONUS", "0.0").replace("done = terminated or truncated", "done = True")
    path.write_text(text, encoding="utf-8")
    report = audit_here(path, 60)
    assert not report.faults, report.text()
    assert "whitened" not in report.rule


_STEP_EACH = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    episodes = []
    for _ in range(2):
        obs, done, episode = torch.as_tensor(env.reset()[0]), False, []
        while not done:
            with torch.no_grad():
                action = Categorical(logits=net(obs)).sample()
            after, reward, terminated, truncated, _ = env.step(action.item())
            episode.append((obs, action, reward))
            obs, done = torch.as_tensor(after), terminated or truncated
        episodes.append(episode)
    for episode in EPISODES:
        states, actions, rewards = zip(*episode)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        log_probs = Categorical(logits=net(torch.stack(states))).log_prob(torch.stack(actions))
        loss = -(log_probs * returns).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""


@pytest.mark.parametrize(
    ("episodes", "verdict"), [("episodes", "convention"), ("episodes * 2", "biased")]
)
def test_a_step_for_each_episode_is_no_second_step_on_the_same_data(
    episodes: str, verdict: str, tmp_path: Path
) -> None:
    """On some paths the two episodes are alike, and so are their gradients."""
    path = tmp_path / "program.py"
    path.write_text(_STEP_EACH.replace("EPISODES", episodes), encoding="utf-8")
    report = audit_here(path, 60)
    assert report.verdict == verdict, report.text()
    assert "step-per-action" in [choice.name for choice in report.conventions]
    assert [finding.rule for finding in report.faults] == (
        ["several-updates-without-ratio"] if verdict == "biased" else []
    )
