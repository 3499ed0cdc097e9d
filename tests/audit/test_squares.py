"""A [B] × [B, 1] product where all batches have one length, so that its gradient has two names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eligibility.audit.interception.graph import inspect_graph
from eligibility.audit.trace import SQUARE
from tests.audit.writing import audited, line_of

TEXT = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode="SameStep")
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
obs, _ = envs.reset(seed=1)
while True:
    log_probs, rewards, masks = [], [], []
    for step in range(3):
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward, ended, cut, _ = envs.step(action.numpy())
        rewards.append(torch.as_tensor(reward).unsqueeze(1))
        masks.append(torch.as_tensor(1.0 * ~(ended | cut)).unsqueeze(1))
    returns, later = [], torch.zeros(2, 1)
    for reward, mask in zip(rewards[::-1], masks[::-1]):
        later = reward + later * mask
        returns.insert(0, later)
    loss = -LOSS
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SQUARE_OF_A_COLUMN = "(torch.cat(log_probs) * torch.cat(returns)).mean()"
MEANS = "torch.cat(log_probs).mean() * torch.cat(returns).sum()"


@pytest.mark.parametrize(
    ("loss", "name"),
    [(SQUARE_OF_A_COLUMN, "broadcast"), (MEANS, "mean-log-prob-times-sum-of-returns")],
)
def test_the_product_in_the_loss_tells_which_it_is(loss: str, name: str, tmp_path: Path) -> None:
    report = audited(tmp_path, text=TEXT.replace("LOSS", loss))
    [fault] = report.faults
    assert fault.rule == name, report.text()
    assert fault.line == line_of(Path(fault.file), "loss = -")
    assert report.summary == fault.means


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [((4,), (4, 1), [4]), ((4, 1), (4,), [4]), ((4, 4), (4, 4), []), ((4, 1), (4, 1), [])],
)
def test_a_square_is_a_product_of_a_row_and_a_column(
    first: tuple[int, ...], second: tuple[int, ...], found: list[int]
) -> None:
    scores = torch.zeros(first, requires_grad=True)
    loss = (scores.exp() * torch.ones(second)).mean()
    facts = inspect_graph(loss.grad_fn, 0, [scores])
    assert [fact.size for fact in facts if fact.kind == SQUARE] == found


def test_a_layer_s_own_scale_of_as_many_numbers_is_none() -> None:
    scores, scale = torch.zeros(4, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    facts = inspect_graph((scores.exp() * scale).mean().grad_fn, 0, [scores])
    assert all(fact.kind != SQUARE for fact in facts)
