"""``eligibility evaluate`` plays the most probable actions, then drawn ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eligibility as el
from eligibility.cli.evaluate import _difference
from eligibility.train.evaluation import summarize
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "model.safetensors"
    return el.Reinforce("CartPole-v1", seed=2, environments=4).save(path)


def test_both_ways_of_playing_are_reported(checkpoint: Path, eligibility: Command) -> None:
    _, out, err = eligibility("evaluate", str(checkpoint), "--episodes", "8", "--json")
    found = json.loads(out)
    model = el.Reinforce.load(checkpoint)
    assert found["mean_return"] == model.evaluate(8).mean_return
    assert found["sampled"]["mean_return"] == model.evaluate(8, deterministic=False).mean_return
    greedy, sampled, *_ = err.splitlines()
    assert greedy.startswith("CartPole-v1, greedy, 8 episodes: mean return ")
    assert sampled.startswith("CartPole-v1, sampled, 8 episodes: mean return ")


def test_drawn_actions_alone_are_one_result(checkpoint: Path, eligibility: Command) -> None:
    options = ("--episodes", "8", "--stochastic", "--json")
    _, out, err = eligibility("evaluate", str(checkpoint), *options)
    assert "sampled" not in json.loads(out)
    assert err.count("mean return") == 1


def test_only_a_certain_difference_is_explained() -> None:
    low = summarize(np.array([[9.0, 10.0, 11.0] * 10]), 0)
    high = summarize(np.array([[90.0, 100.0, 110.0] * 10]), 0)
    assert "Drawing the actions costs return" in _difference(high, low)
    assert "Play it with --stochastic" in _difference(low, high)
    assert _difference(low, replace(low)) == ""


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        (("--lr", "0.1"), "error: No such option: --lr; here it is --learning-rate.\n"),
        (("--gamma", "9"), "error: No such option: --gamma; here it is --discount.\n"),
        (("--max-seconds", "0"), "error: `--max-seconds`: got 0, expected a number > 0; omit it "
        "to set no limit\n"),
    ],
)  # fmt: skip
def test_habits_from_elsewhere_are_answered(
    option: tuple[str, str], answer: str, eligibility: Command
) -> None:
    assert eligibility("train", "CartPole-v1", *option) == (2, "", answer)


def test_an_environment_with_other_spaces_is_named(checkpoint: Path, eligibility: Command) -> None:
    status, _, err = eligibility("evaluate", str(checkpoint), "--env", "Acrobot-v1")
    assert status == 2
    assert err == (
        "error: `env`: got `Acrobot-v1`, which needs other weights (`layers.0.weight` is "
        "torch.float32 [64, 4], not torch.float32 [64, 6]), expected an environment with the "
        "spaces of `CartPole-v1`; pass one, or train a policy for this one\n"
    )
