"""``eligibility compare``, and ``evaluate`` of several runs: one answer from many seeds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from eligibility.train.learner import Reinforce
from tests.cli.conftest import Command

HERE = "tests.train.environments:"
TRUST = ("--allow-module", "tests.train")


def save(folder: Path, seed: int, arm: int | None, env: str = "Bandit-v0") -> None:
    """A run whose policy pulls one arm; None: any arm."""
    model = Reinforce(HERE + env, seed=seed)
    if arm is not None:
        head = model.network.layers[-1]
        with torch.no_grad():
            head.weight.zero_()
            head.bias.copy_(100.0 * torch.nn.functional.one_hot(torch.tensor(arm), 4))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(asdict(model.config)))
    model.save(folder / "checkpoint.safetensors")


def test_the_better_of_two_runs_is_named(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    save(Path("low"), 0, 1)
    save(Path("high"), 1, 3)
    options = ("--episodes", "5", "--json", "--plot", "both.png", *TRUST)
    status, output, errors = eligibility("compare", "low", "high", *options)
    assert status == 0
    result = json.loads(output)["result"]
    assert result["a"]["mean_return"] == 1
    assert result["interquartile_difference"] == {"value": 2, "low": 2, "high": 2}
    assert result["probability_of_improvement"]["value"] == 1
    assert (
        "B is better: IQM of B minus A +2.0 (+2.0 to +2.0), B beats A with probability 1.00 "
        "(1.00 to 1.00)" in errors
    )
    assert Path("both.png").read_bytes().startswith(b"\x89PNG")


def test_folders_of_seeds_are_compared_and_evaluated_as_one(eligibility: Command) -> None:
    for seed, (low, high) in enumerate([(0, 2), (1, 3)]):
        save(Path("a") / f"seed-{seed}", seed, low)
        save(Path("b") / f"seed-{seed}", seed, high)
    status, output, _ = eligibility("compare", "a", "b", "--episodes", "3", "--json", *TRUST)
    assert status == 0
    result = json.loads(output)["result"]
    assert (result["a"]["runs"], result["b"]["mean_return"]) == (2, 2.5)
    status, output, _ = eligibility("evaluate", "a", "--episodes", "3", "--json", *TRUST)
    assert status == 0
    (group,) = json.loads(output)["groups"]
    assert group["run_means"] == [0, 1]
    assert group["confidence_95"] == [0, 1]
    assert group["folders"] == ["a/seed-0", "a/seed-1"]


def test_what_cannot_be_compared_is_refused(eligibility: Command) -> None:
    save(Path("bandit"), 0, 1)
    save(Path("states"), 0, None, "Contextual-v0")
    assert eligibility("compare", "bandit", "states") == (
        2,
        "",
        "error: the runs: got tests.train.environments:Bandit-v0 and "
        "tests.train.environments:Contextual-v0, expected one environment; "
        "compare runs of the same environment\n",
    )
    status, _, errors = eligibility("compare", "bandit", "nowhere")
    assert status == 2
    assert errors.startswith("error: `nowhere`: got no such folder, expected a r")
    status, _, errors = eligibility("evaluate", "bandit", "states", "--video", "a.gif")
    assert status == 2
    assert "error: `--video`: got 2 runs, expected one" in errors
