"""What a program scored, compared with what it did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.distributions import Normal

from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.scoring import compare_scoring
from eligibility.audit.running.runner import CallableRunner

_FAULT = "behaviour-not-scored"
_PICKED = (0, 1, 1, 2, 0, 0, 1, 2)  # two starts, two actions, where they led, and two actions


def act_and_score(shift: float, one_by_one: bool) -> None:
    """Two actors and two steps; what is scored lies actor by actor, as PPO flattens a rollout."""
    envs = [gym.make("Pendulum-v1") for _ in range(2)]
    mean = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(mean.parameters(), lr=0.1)
    seen = [env.reset()[0] for env in envs]
    states, actions, rewards = [], [], []
    for _ in range(2):
        shown = torch.as_tensor(np.array(seen), dtype=torch.float32)
        with torch.no_grad():
            parts = shown.split(1) if one_by_one else [shown]
            action = torch.cat([Normal(mean(part), 1.0).sample() for part in parts])
        stepped = [env.step(each.numpy()) for env, each in zip(envs, action, strict=True)]
        seen = [step[0] for step in stepped]
        states.append(shown)
        actions.append(action)
        rewards.append(sum(float(step[1]) for step in stepped))
    by_actor = torch.stack(states).transpose(0, 1).reshape(-1, 3)
    taken = torch.stack(actions).transpose(0, 1).reshape(-1, 1)
    scores = Normal(mean(by_actor) + shift, 1.0).log_prob(taken)
    loss: Any = -scores.sum() * sum(rewards)
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("shift", "rule"), [(0.0, ""), (0.3, _FAULT)])
def test_the_order_of_the_rows_is_no_fault(shift: float, rule: str, one_by_one: bool) -> None:
    runner = CallableRunner(lambda: act_and_score(shift, one_by_one))
    trace = runner.run(Job(_PICKED, SIZES[0]))
    assert (len(trace.scores), len(trace.steps)) == (1, 4)
    assert len({draw.value for draw in trace.draws} - {None}) == 4
    found = compare_scoring(cast("Any", SimpleNamespace(traces=[trace])))
    assert (found.rule if found else "") == rule
