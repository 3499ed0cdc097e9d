"""Correct programs in odd styles: no fault may be found in any of them."""

from __future__ import annotations

from pathlib import Path

import eligibility as el
from eligibility.audit.reporting.report import AuditReport

_HEAD = """
import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical
"""

# what is allowed is written into the observation, as shares of 1
SHOP = f"""{_HEAD}
class Shop(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.day = 0
        return self.np_random.random(3).astype(np.float32), {{}}

    def step(self, action):
        self.day += 1
        over = self.day == 5
        shown = self.np_random.random(3).astype(np.float32)
        return shown, float(action), over, False, {{"sold": over}}

env = Shop()
net = torch.nn.Linear(3, 4)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for episode in range(100):
    obs, _ = env.reset()
    scores, rewards, done = [], [], False
    while not done:
        shown = torch.as_tensor(obs)
        illegal = torch.arange(4) > torch.round(3 * shown[0])
        dist = Categorical(logits=net(shown).masked_fill(illegal, -torch.inf))
        action = dist.sample()
        scores.append(dist.log_prob(action))
        obs, reward, terminated, truncated, info = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    print("sold" if info["sold"] else "nothing sold")
    loss = -torch.stack(scores).sum() * sum(rewards)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

# a mixture acts and is scored; a hand pays once, and the other hand's pay is the baseline
TREMBLE = f"""{_HEAD}
env = gym.wrappers.FlattenObservation(gym.make("Blackjack-v1"))
net = torch.nn.Linear(env.observation_space.shape[0], 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
coin = np.random.default_rng(0)
for update in range(100):
    scores, pays = [], []
    for hand in range(2):
        obs, _ = env.reset()
        score, done = 0.0, False
        while not done:
            hit = torch.sigmoid(net(torch.as_tensor(obs, dtype=torch.float32))).squeeze()
            if coin.random() < 0.1:
                action = int(coin.random() < 0.5)
            else:
                action = int(torch.bernoulli(hit.detach()).item())
            share = 0.05 + 0.9 * hit
            score = score + (share.log() if action else (1 - share).log())
            obs, pay, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        scores.append(score)
        pays.append(pay)
    pays = torch.tensor(pays)
    loss = -(torch.stack(scores) * (pays - pays.flip(0))).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

# steps that a vector environment ignores are left out; parts of a batch are whitened, twice each
PARTS = f"""{_HEAD}
N, T = 2, 64
envs = gym.make_vec("CartPole-v1", num_envs=N)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
obs, was_done = envs.reset()[0], torch.zeros(N, dtype=torch.bool)
for update in range(100):
    seen, acted, old, earned, ended, real = [], [], [], [], [], []
    for t in range(T):
        with torch.no_grad():
            dist = Categorical(logits=net(torch.as_tensor(obs)))
            action = dist.sample()
        seen.append(torch.as_tensor(obs))
        acted.append(action)
        old.append(dist.log_prob(action))
        real.append(~was_done)
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        was_done = torch.as_tensor(terminated | truncated)
        earned.append(torch.as_tensor(reward, dtype=torch.float32))
        ended.append(was_done.float())
    returns, running = [], torch.zeros(N)
    for reward, end in zip(reversed(earned), reversed(ended)):
        running = reward + running * (1 - end)
        returns.insert(0, running)
    kept = torch.stack(real).flatten()
    seen, acted, old, credit = (
        torch.stack(rows).flatten(0, 1)[kept] for rows in (seen, acted, old, returns)
    )
    for epoch in range(2):
        for rows in torch.randperm(len(seen)).split(len(seen) // 4 + 1):
            weight = credit[rows]
            weight = (weight - weight.mean()) / (weight.std() + 1e-8)
            dist = Categorical(logits=net(seen[rows]))
            ratio = (dist.log_prob(acted[rows]) - old[rows]).exp()
            loss = -torch.min(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
"""

# it ends once it has learned enough
ENOUGH = f"""{_HEAD}
env = gym.make("CartPole-v1")
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
while True:
    scores, rewards, obs, done = [], [], env.reset()[0], False
    while not done:
        dist = Categorical(logits=net(torch.as_tensor(obs)))
        action = dist.sample()
        scores.append(dist.log_prob(action))
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    loss = -torch.stack(scores).sum() * sum(rewards)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if sum(rewards) / len(rewards) > 1.0:
        break
"""


def audit(folder: Path, text: str) -> AuditReport:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return el.audit_script(path, samples=40)


def test_observations_are_within_the_bounds_of_their_space(tmp_path: Path) -> None:
    report = audit(tmp_path, SHOP)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary
    assert "`info['sold']` is 0 in the probe" in report.notes


def test_a_mixture_that_acts_and_is_scored_for_what_a_hand_pays_once(tmp_path: Path) -> None:
    report = audit(tmp_path, TREMBLE)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary
    assert any("except at the end of an episode" in note for note in report.notes)


def test_a_number_below_a_probability_may_be_the_action_1(tmp_path: Path) -> None:
    """Of an action that follows from a number drawn by hand, after one that says how to draw."""
    text = TREMBLE.replace("torch.bernoulli(hit.detach()).item()", "coin.random() < hit.item()")
    assert text != TREMBLE
    assert audit(tmp_path, text).verdict == "unbiased"


def test_steps_that_were_ignored_are_left_out_of_shuffled_parts(tmp_path: Path) -> None:
    assert audit(tmp_path, PARTS).faults == ()


def test_a_program_ends_when_it_has_learned_enough(tmp_path: Path) -> None:
    report = audit(tmp_path, ENOUGH)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.summary
