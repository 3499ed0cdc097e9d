"""``eligibility train`` and ``evaluate`` as a user runs them: in a process of their own."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eligibility.cli.train import _stopping_on_signals
from eligibility.errors import MissingDependencyError
from tests.cli.conftest import ROOT, Command

HERE = "tests.train.environments:"


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """The command line in ``folder``, with this checkout's sources and test environments."""
    return subprocess.Popen(
        [sys.executable, "-m", "eligibility", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    process = start(*arguments, folder=folder)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def test_what_an_update_may_take_is_said_beforehand(tmp_path: Path) -> None:
    _, _, errors = run("train", "CartPole-v1", "--steps", "2000", folder=tmp_path)
    assert errors.startswith(
        "note: an update takes one episode from each of the 100 environments, up to 50,000 steps, "
        "more than the 2,000 of this training; fewer environments make smaller updates\n"
    )
    few = ("--environments", "4", "--max-episode-steps", "20")
    _, _, errors = run("train", "CartPole-v1", "--steps", "2000", *few, folder=tmp_path)
    assert "note:" not in errors


def test_keywords_of_the_environment_are_kept_and_those_of_a_file_are_trusted(
    tmp_path: Path, eligibility: Command
) -> None:
    few = ("FrozenLake-v1", "--environments", "8", "--steps", "40", "--json")
    made = eligibility("train", *few, "--env-kwargs", "is_slippery=false", "--out", "run")
    assert made[0] == 0, made[2]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["env_kwargs"] == {"is_slippery": False}
    status, output, errors = eligibility("evaluate", "run", "--episodes", "5", "--json")
    assert status == 0, errors
    assert json.loads(output)["standard_deviation"] == 0  # nothing is left to chance
    options = {"env_kwargs": {"map_name": "stranger:Map"}}
    (tmp_path / "options.json").write_text(json.dumps(options))
    for command in ("train", "sweep"):
        status, _, errors = eligibility(command, "FrozenLake-v1", "--config", "options.json")
        assert status == 2
        assert "got `stranger:Map`, which imports the module `stranger`" in errors
        assert errors.count("\n") == 1


def test_the_best_policy_is_kept_in_the_run_folder(tmp_path: Path) -> None:
    few = ("--environments", "4", "--steps", "600", "--keep-best", "2", "--out", "run")
    status, _, errors = run("train", "CartPole-v1", *few, folder=tmp_path)
    assert status == 0, errors
    status, output, errors = run("evaluate", "run/best.safetensors", folder=tmp_path)
    assert status == 0, errors
    assert "greedy" in output
    status, _, errors = run(
        "train", "CartPole-v1", *few[:-1], "other", "--keep-best", "0", folder=tmp_path
    )
    assert status == 2
    assert "`--keep-best`: got 0, expected a whole number >= 1" in errors
    assert not (tmp_path / "other").exists()


def test_train_and_evaluate_from_the_first_command_to_the_last(
    tmp_path: Path, eligibility: Command
) -> None:
    status, output, errors = run(
        "train", "CartPole-v1", "--seed", "1", "--stop-at", "475", "--json", folder=tmp_path
    )
    assert status == 0, errors
    result = json.loads(output)
    assert list(result) == [
        "solved", "training_seconds", "steps", "updates", "mean_return", "run",
    ]  # fmt: skip
    assert result["solved"] is True
    assert result["mean_return"] >= 475
    assert 0 < result["training_seconds"] < 60
    assert "CartPole-v1 solved: mean return" in errors
    (folder,) = (tmp_path / "runs").iterdir()
    assert result["run"] == f"runs/{folder.name}"
    assert folder.name.startswith("CartPole-v1-1-")

    status, output, errors = eligibility("evaluate", result["run"], "--json")
    assert status == 0, errors
    evaluation = json.loads(output)
    assert list(evaluation) == [
        "episodes", "mean_return", "standard_deviation", "minimum", "maximum", "confidence_95",
        "interquartile_mean", "interquartile_confidence_95", "runs", "run", "sampled",
    ]  # fmt: skip
    assert evaluation["episodes"] == 100
    assert evaluation["mean_return"] >= 400
    assert errors.startswith("CartPole-v1, greedy, 100 episodes: mean return ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("CartPole-v1", "--discount", "2"),
            "`discount`: got 2.0, expected a number in [0, 1]; choose another value",
        ),
        (
            (),
            "the command: got neither ENV nor --resume, expected the id of an environment, or the "
            "folder of a run to continue; for instance eligibility train CartPole-v1",
        ),
        (
            ("CartPole-v1", "--resume", "run"),
            "the command: got both ENV and --resume, expected the id of an environment, or the "
            "folder of a run to continue; for instance eligibility train CartPole-v1",
        ),
        (
            ("--resume", "elsewhere"),
            "`--out`: got run, expected no --out with --resume; a resumed run keeps its folder",
        ),
        (("CartPole-v1", "--steps", "many"), "Invalid value for '--steps'"),
        (("CartPole-v1", "--frobnicate"), "No such option: --frobnicate"),
        (
            (HERE + "Crashing-v0",),
            "the environment's step: got RuntimeError: the arm came off, expected no exception; "
            "correct the environment; the policy trained so far is kept",
        ),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path, eligibility: Command
) -> None:
    status, output, errors = eligibility("train", *arguments, "--out", "run")
    assert status == 2
    assert output == ""
    assert errors.startswith(f"error: {message}")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_crashes_later_keeps_what_was_trained(
    tmp_path: Path, eligibility: Command
) -> None:
    status, _, errors = eligibility("train", HERE + "CrashesLater-v0", "--out", "run")
    assert status == 2
    assert errors.splitlines()[-1] == (
        "error: the environment's step: got RuntimeError: worn out, expected no exception; "
        "correct the environment; the policy trained so far is kept"
    )
    assert json.loads((tmp_path / "run" / "result.json").read_text())["updates"] == 3
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_and_keeps_the_checkpoint(
    number: signal.Signals, tmp_path: Path, eligibility: Command
) -> None:
    process = start(
        "train", HERE + "Slow-v0", "--environments", "2", "--out", "run", "--json", folder=tmp_path
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    result = json.loads(output)
    assert result["solved"] is False
    assert result["updates"] >= 1
    assert "stopping after this rollout; press Ctrl-C again to stop at once" in errors
    status, output, _ = eligibility(
        "evaluate", "run", "--episodes", "2", "--json", "--allow-module", "tests"
    )
    assert status == 0
    assert json.loads(output)["episodes"] == 2
    more = str(result["steps"] + 1)
    status, output, errors = eligibility(
        "train", "--resume", "run", "--steps", more, "--json", "--allow-module", "tests"
    )
    assert status == 0, errors
    assert json.loads(output)["updates"] == result["updates"] + 1


def test_a_restart_before_the_first_checkpoint_goes_on_from_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eligibility: Command
) -> None:
    command = ("train", "tests.train.environments:Bandit-v0", "--steps", "64", "--out", "run")
    assert eligibility(*command)[0] == 0
    whole = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    for name in ("checkpoint.safetensors", "result.json", "curve.csv"):
        (tmp_path / "run" / name).unlink()
    status, _, errors = eligibility(*command)
    assert (status, "a folder that already holds a run" in errors) == (2, True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    status, _, errors = eligibility(*command)
    assert status == 0, errors
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == whole


def test_a_missing_extra_names_the_remedy_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("eligibility.spaces")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingDependencyError, match=r'^the package `gymnasium`.*\[train\]"$'):
        importlib.import_module("eligibility.spaces")


def test_a_missing_extra_names_the_remedy(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from eligibility.cli.app import main; main(['train', 'CartPole-v1'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr == (
        "error: the package `gymnasium`: got no such package, expected eligibility with its "
        'train extra; pip install "eligibility[train]"\n'
    )


def test_a_second_signal_stops_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    received: list[int] = []
    with _stopping_on_signals(received):
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "again to stop at once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "module"), [(HERE + "Lamp-v0", "tests"), ("own.py:Lamp", "own.py")]
)
def test_a_run_is_filmed_when_trained_and_when_evaluated(
    env: str, module: str, tmp_path: Path, eligibility: Command
) -> None:
    (tmp_path / "own.py").write_text("from tests.train.environments import Lamp\n")
    options = ("--steps", "20", "--environments", "2", "--out", "run")
    status, _, errors = eligibility("train", env, *options, "--video", "a.gif")
    assert status == 0, errors
    status, _, errors = eligibility(
        "evaluate", "run", "--episodes", "2", "--video", "b.gif", "--allow-module", module
    )
    assert status == 0, errors
    assert "filmed an episode of return " in errors
    for name in ("a.gif", "b.gif"):
        assert (tmp_path / name).read_bytes().startswith(b"GIF89a")


@pytest.mark.parametrize(
    ("env", "video", "message"),
    [
        ("Spoken-v0", "a.gif", "the environment's picture: got str for a picture"),
        ("Bandit-v0", "a.gif", "the environment's picture: got "),
        ("Lamp-v0", ".", "cannot write `.`: got Is a directory"),
    ],
)
def test_a_film_that_cannot_be_made_is_found_before_the_first_step(
    env: str, video: str, message: str, tmp_path: Path, eligibility: Command
) -> None:
    status, _, errors = eligibility("train", HERE + env, "--out", "run", "--video", video)
    assert (status, errors.startswith(f"error: {message}")) == (2, True), errors
    assert list(tmp_path.iterdir()) == []


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path, eligibility: Command) -> None:
    options = ("--steps", "20", "--environments", "2", "--out", "[/red]")
    status, output, errors = eligibility("train", HERE + "Bandit-v0", *options)
    assert (status, "everything is in [/red]" in output) == (0, True), errors


def test_a_run_is_logged_to_weights_and_biases_if_that_is_installed(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    status, _, errors = eligibility("train", HERE + "Bandit-v0", "--wandb", "project")
    assert (status, errors.startswith("error: the package `wandb`: got no such package")) == (2, 1)


def test_a_recurrent_policy_is_trained_resumed_and_evaluated(eligibility: Command) -> None:
    few = ("--recurrent", "gru", "--environments", "4", "--max-episode-steps", "20")
    status, _, errors = eligibility("train", "CartPole-v1", *few, "--steps", "90", "--out", "run")
    assert status == 0, errors
    status, output, errors = eligibility("train", "--resume", "run", "--steps", "200", "--json")
    assert status == 0, errors
    assert json.loads(output)["steps"] >= 200
    status, output, errors = eligibility("evaluate", "run", "--episodes", "3", "--json")
    assert status == 0, errors
    assert 1 <= json.loads(output)["mean_return"] <= 20
    status, _, errors = eligibility("train", "Taxi-v4", "--recurrent", "gru")
    assert (status, errors) == (
        2,
        "error: `recurrent`: got gru, expected none, because a network without hidden layers has "
        "no layer to make recurrent; add --hidden-sizes 64\n",
    )


def test_a_short_training_is_told_once_and_counted_as_it_was(eligibility: Command) -> None:
    few = ("--environments", "2", "--steps", "1", "--out", "run")
    status, output, errors = eligibility("train", "CartPole-v1", *few)
    assert status == 0, errors
    assert (output + errors).count("training  return") == 1
    assert " over the last 2 episodes, 1 update, " in output
