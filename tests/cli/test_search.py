"""``eligibility sweep --search``: trials go on where they stopped, and the best is a config."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from eligibility.cli.search import mean_return, read_space
from eligibility.errors import InvalidValueError
from tests.cli.conftest import Command
from tests.cli.test_train import HERE, start

pytest.importorskip("optuna")  # the extra `search`

BANDIT = ("sweep", HERE + "Bandit-v0", "--environments", "8", "--stop-at", "inf", "--seeds", "1")
OVER = ("--over", "learning-rate=0.005..0.5", "--over", "hidden_sizes=4", "--over",
        "hidden_sizes=4,4")  # fmt: skip


def search(trials: int, out: str, *more: str) -> tuple[str, ...]:
    return (
        *BANDIT,
        "--steps",
        "400",
        *OVER,
        "--search",
        str(trials),
        "--out",
        out,
        "--json",
        *more,
    )


def test_a_search_goes_on_as_if_it_had_not_stopped_and_leaves_the_best_as_a_config(
    tmp_path: Path, eligibility: Command
) -> None:
    _, first, _ = eligibility(*search(1, "parts"))
    status, output, errors = eligibility(*search(3, "parts"))
    assert status == 0, errors
    found = json.loads(output)
    assert found["trials"][:1] == json.loads(first)["trials"]
    assert "trial 0:" not in errors  # it was not made twice
    _, whole, _ = eligibility(*search(3, "whole"))
    assert found == json.loads(whole)

    values = [trial["value"] for trial in found["trials"]]
    assert len({*values}) == 3  # the choice matters, and no trial is made twice
    assert found["best"] == found["trials"][values.index(max(values))]
    number = found["best"]["number"]
    assert found["best"]["value"] == mean_return(tmp_path / "whole" / f"trial-{number}", [0], 400)
    status, _, errors = eligibility(
        "train", "--config", "whole/best.json", "--allow-module", "tests", "--out", "again"
    )
    assert status == 0, errors
    curves = [tmp_path / path / "curve.csv" for path in (f"whole/trial-{number}/seed-0", "again")]
    assert curves[0].read_bytes() == curves[1].read_bytes()

    status, _, errors = eligibility(*search(3, "whole", "--discount", "0.5"))
    assert (status, errors) == (
        2,
        "error: the folder `whole`: got a search with different options, "
        "expected no search, or one started by the same command (--search may be larger); choose "
        "another folder "
        "with --out\n",
    )


def test_a_trial_that_was_stopped_is_resumed(tmp_path: Path, eligibility: Command) -> None:
    command = (
        "sweep", HERE + "Slow-v0", "--out", "all", "--seeds", "3-3", "--steps", "20",
        "--environments", "2", "--json", "--search", "1", "--over", "discount=0.5..0.9",
    )  # fmt: skip
    process = start(*command, folder=tmp_path)
    deadline = time.monotonic() + 60
    config = tmp_path / "all" / "trial-0" / "seed-3" / "config.json"
    while not config.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert json.loads(output) == {"best": None, "trials": []}
    discount = json.loads(config.read_text())["discount"]
    status, output, errors = eligibility(*command)
    assert status == 0, errors
    (trial,) = json.loads(output)["trials"]
    assert (trial["number"], trial["options"]) == (0, {"discount": discount})


def test_choices_that_exclude_one_another_and_runs_that_fail_are_trials_without_a_value(
    eligibility: Command,
) -> None:
    one = ("--search", "1", "--steps", "40", "--json")
    clash = ("--baseline", "state-value", "--gae-lambda", "0.9", "--over", "baseline=none")
    status, output, errors = eligibility(*BANDIT, *one, *clash, "--out", "a")
    assert status == 1
    assert "trial 0 (baseline none): `gae_lambda`: got 0.9, expected the baseline sta" in errors
    failed = {"number": 0, "options": {"baseline": "none"}, "value": None}
    assert json.loads(output) == {"best": None, "trials": [failed]}
    crash = ("sweep", HERE + "SecondSeedCrashes-v0", "--seeds", "1-1", "--environments", "4")
    status, output, errors = eligibility(*crash, *one, "--over", "discount=0.5", "--out", "b")
    assert status == 1, errors
    assert json.loads(output) == {
        "best": None,
        "trials": [{"number": 0, "options": {"discount": 0.5}, "value": None}],
    }


def test_bounds_and_choices_are_read_as_they_are_written() -> None:
    over = ("learning-rate=1e-3..0.1", "environments=8..64", "normalize=true", "hidden_sizes=32,32")
    assert read_space((*over, "hidden_sizes=64")) == {
        "learning_rate": (1e-3, 0.1),
        "environments": (8, 64),
        "normalize": [True],
        "hidden_sizes": ["32,32", "64"],
    }


@pytest.mark.parametrize(
    "over", [("discount",), ("discount=",), ("discount=1..0",), ("discount=a..b",),
             ("discount=0.5..1",), ("discount=0.5", "discount=0.5"),
             ("discount=0.5", "discount=0.1..0.2"), ("discount=0.1..0.2", "discount=0.5")]
)  # fmt: skip
def test_other_ways_to_write_them_are_refused(over: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValueError) as raised:
        read_space(over)
    assert str(raised.value) == (
        f"`--over`: got {over[-1]}, expected NAME=LOW..HIGH, or NAME=VALUE once for each choice; "
        "such as --over learning-rate=0.001..0.1 --over hidden-sizes=32"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--search", "0", "--over", "discount=0.5"),
            "`--search`: got 0, expected a whole number >= 1; omit it to use the default",
        ),
        (
            ("--search", "1"),
            "`--search`: got nothing to search over, expected at least one --over; such as "
            "--over learning-rate=0.001..0.1",
        ),
        (("--over", "discount=0.5"), "`--over`: got no --search, expected one; add --search 20"),
        (("--search", "1", "--over", "discont=0.5"), "`discont`: got an unknown option, expected "),
        (("--search", "1", "--over", "discount=0.5..2.0"), "`discount`: got 2.0, expected a "),
    ],
)
def test_bad_usage_is_one_line(
    arguments: tuple[str, ...], message: str, eligibility: Command
) -> None:
    status, output, errors = eligibility("sweep", "CartPole-v1", *arguments)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"error: {message}")


def test_without_optuna_the_message_says_how_to_install_it(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    status, _, errors = eligibility(*search(1, "none"))
    assert (status, errors) == (
        2,
        "error: the package `optuna`: got no such package, expected eligibility with its search "
        "extra; "
        'pip install "eligibility[search]"\n',
    )
