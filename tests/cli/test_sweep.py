"""``eligibility sweep``: several seeds in processes of their own, whatever happens to one."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from eligibility.cli.seeds import read_seeds
from eligibility.errors import InvalidValueError
from tests.cli.conftest import Command
from tests.cli.test_train import HERE, start

OPTIONS = ("--environments", "4", "--stop-at", "inf")


def test_a_seed_that_fails_does_not_stop_the_others_and_finished_ones_are_kept(
    tmp_path: Path, eligibility: Command
) -> None:
    command = ("sweep", HERE + "SecondSeedCrashes-v0", "--out", "all", "--steps", "40", *OPTIONS)
    status, output, errors = eligibility(*command, "--seeds", "1-2", "--jobs", "1", "--json")
    assert status == 1, errors
    summary = json.loads(output)
    assert summary == json.loads((tmp_path / "all" / "summary.json").read_text())
    assert [(one["seed"], one["steps"]) for one in summary["finished"]] == [(2, 40)]
    (failed,) = summary["failed"]
    assert failed["seed"] == 1
    assert failed["error"].startswith(
        "exit status 2: the environment's step: got RuntimeError: not with this seed"
    )
    assert summary["mean_return"] == pytest.approx(summary["finished"][0]["mean_return"])
    assert (tmp_path / "all" / "curves.png").read_bytes().startswith(b"\x89PNG")
    before = (tmp_path / "all" / "seed-2" / "result.json").stat().st_mtime_ns

    status, _, errors = eligibility(*command, "--seeds", "2-2")
    assert status == 0, errors
    assert "1 of 1 seeds finished before" in errors
    assert (tmp_path / "all" / "seed-2" / "result.json").stat().st_mtime_ns == before

    status, _, errors = eligibility(*command, "--seeds", "2-2", "--discount", "0.5")
    assert status == 2
    assert errors == (
        "error: the folder `all`: got runs with discount 0.99, expected none, or runs with "
        "discount 0.5; choose another folder with --out\n"
    )


def test_a_stopped_sweep_goes_on_with_the_same_command(
    tmp_path: Path, eligibility: Command
) -> None:
    command = (
        "sweep", HERE + "Slow-v0", "--out", "all", "--seeds", "3-3", "--steps", "20",
        "--environments", "2", "--json",
    )  # fmt: skip
    process = start(*command, folder=tmp_path)
    deadline = time.monotonic() + 60
    config = tmp_path / "all" / "seed-3" / "config.json"
    while not config.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "seed 3: stopped, to be resumed by the same command" in errors
    status, output, errors = eligibility(*command)
    assert status == 0, errors
    assert json.loads(output)["finished"][0]["steps"] == 20


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-3", [0, 1, 2, 3]), ("3", [0, 1, 2]), ("7-7", [7]), ("0, 5-6", [0, 5, 6])],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "3-1", "1,1", "0", "0-99999999999", "9" * 30, "²", "1e3"]
)
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^`--seeds`: got "):
        read_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "the command: got no ENV, expected the id of an environment; eligibility sweep "
            "CartPole-v1",
        ),
        (
            ("CartPole-v1", "--jobs", "0"),
            "`--jobs`: got 0, expected at least 1; choose a larger one",
        ),
    ],
)
def test_bad_usage_is_one_line(
    arguments: tuple[str, ...], message: str, eligibility: Command
) -> None:
    assert eligibility("sweep", *arguments) == (2, "", f"error: {message}\n")


def test_options_of_a_sweep_come_from_a_file(tmp_path: Path, eligibility: Command) -> None:
    (tmp_path / "bandit.json").write_text(json.dumps({"env": HERE + "Bandit-v0", "discount": 2}))
    status, _, errors = eligibility("sweep", "--config", "bandit.json")
    assert (status, errors.startswith("error: the environment in the config `bandit.json`: g")) == (
        2, True,
    )  # fmt: skip
    status, _, errors = eligibility("sweep", "--config", "bandit.json", "--allow-module", "tests")
    assert (status, errors.startswith("error: `discount`: got 2")) == (2, True)
