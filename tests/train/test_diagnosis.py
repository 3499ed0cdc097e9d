"""Warnings in plain words: each where it belongs, and nowhere else."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces
from rich.console import Console

from eligibility.train.display import ProgressDisplay
from eligibility.train.gradient import diagnose
from eligibility.train.learner import Reinforce
from eligibility.train.policies import policy_for
from eligibility.train.progress import Progress


@pytest.mark.parametrize(
    ("change", "largest", "solved", "start"),
    [
        ({}, math.log(2), False, None),
        ({"gradient_norm": 0.0}, math.log(2), False, "all returns of a rollout were equal"),
        ({"entropy": 0.005}, math.log(2), False, "the policy hardly explores"),
        ({"entropy": 0.005}, math.log(2), True, None),
        ({"entropy": -7.0}, None, False, None),
        (
            {"saturated": 0.96},
            math.log(2),
            False,
            "the policy is nearly deterministic at more than",
        ),
        ({"explained_variance": -5.0}, math.log(2), False, "the baseline makes the returns nois"),
        ({"explained_variance": math.nan}, math.log(2), False, None),
    ],
    ids=str,
)
def test_says_what_goes_wrong(
    change: dict[str, float], largest: float | None, solved: bool, start: str | None
) -> None:
    well = Progress(
        gradient_norm=0.1,
        gradient_noise=0.2,
        signal_to_noise=0.3,
        entropy=0.5,
        saturated=0.2,
        effective_batch=30.0,
        explained_variance=0.5,
    )
    got = diagnose(replace(well, solved=solved, **change), largest)
    assert got is None if start is None else got is not None and got.startswith(start)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.MultiDiscrete([2, 5]), spaces.MultiBinary(4)],
    ids=str,
)
def test_the_largest_entropy_is_that_of_equal_outputs(space: spaces.Space) -> None:
    policy = policy_for(space)
    entropy = policy.entropy(torch.zeros(1, policy.size))[0]
    assert policy.largest_entropy == pytest.approx(float(entropy), rel=1e-6)


def test_equal_returns_are_noticed_in_training() -> None:
    env = "tests.train.environments:Endless-v0"
    model = Reinforce(env, environments=4, max_episode_steps=5).learn(total_steps=20)
    assert model.progress.warning is not None
    assert model.progress.warning.startswith("all returns of a rollout were equal")


def test_the_display_shows_each_warning_once() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with ProgressDisplay(console, steps=1000, stop_at=1) as display:
        for steps in (100, 200):
            display(Progress(steps=steps, training_seconds=1.0, warning="it rains"))
    shown = console.file.getvalue()
    assert shown.count("it rains") == 1
    assert "warning at step 100: it rains\n" in shown
