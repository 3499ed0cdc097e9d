"""Killed, or out of space, at any moment: what was saved is whole, and going on changes nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eligibility.errors import (
    EligibilityError,
    InvalidValueError,
    MissingDependencyError,
    OutputError,
)
from eligibility.train import run_folder
from eligibility.train.events import Events
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.run_folder import RunFolder, load_run
from tests.cli.conftest import ROOT
from tests.cli.test_train import HERE

OPTIONS = {
    "environments": 8,
    "steps": 12_000,
    "stop_at": 1e9,
    "baseline": "moving-average",
    "hidden_sizes": (64, 64),
}
SAVED = ("curve.csv", "checkpoint.safetensors", "config.json", "curve.png")


def go_on(path: Path) -> None:
    """Resume a run and finish it, as ``train --resume`` does."""
    model = load_run(path, {})
    folder = RunFolder(path, model, resume=True)
    model.learn(callback=folder)
    folder.finish()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that never stopped; the tests only read it."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    model = Reinforce("CartPole-v1", **OPTIONS)
    folder = RunFolder(path, model)
    model.learn(callback=folder)
    folder.finish()
    return path


def assert_same(one: Path, other: Path) -> None:
    """Byte for byte."""
    for name in SAVED:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_a_run_that_was_killed_goes_on_as_if_it_never_was(whole: Path, tmp_path: Path) -> None:
    program = (
        "import sys, eligibility.train.run_folder as folder\n"
        "folder._SECONDS_BETWEEN_CHECKPOINTS = -1.0\n"  # a checkpoint after every rollout
        "from eligibility.cli.app import main; main(sys.argv[1:])"
    )
    options = [
        "train", "CartPole-v1", "--environments", "8", "--steps", "12000", "--stop-at", "1e9",
        "--baseline", "moving-average", "--hidden-sizes", "64,64", "--out", "killed",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", program, *options],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / run_folder.FILE_NAME).exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert Reinforce.load(tmp_path / "killed").progress.steps < 12_000
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", whole)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(
    whole: Path, tmp_path: Path
) -> None:
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "config.json").write_bytes((whole / "config.json").read_bytes())
    go_on(tmp_path / "young")
    assert_same(tmp_path / "young", whole)


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run", Reinforce("CartPole-v1"))
    text = (
        f"the folder `{tmp_path}/run`: got a folder that another process is writing to, expected "
        "a separate folder for each training; wait for the other process to end, or choose "
        "another folder with --out"
    )
    for resume in (False, True):
        with pytest.raises(OutputError, match=f"^{re.escape(text)}$"):
            RunFolder(tmp_path / "run", Reinforce("CartPole-v1"), resume=resume)
    first.finish()
    RunFolder(tmp_path / "run", Reinforce("CartPole-v1")).finish()
    assert not (tmp_path / "run").exists()


def test_of_two_processes_with_one_folder_the_second_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eligibility", "train", HERE + "Slow-v0", "--out", "run"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    first, second = (
        subprocess.Popen(
            [*command, "--environments", "2", "--steps", "40"],
            cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    )  # fmt: skip
    errors = [process.communicate(timeout=120)[1] for process in (first, second)]
    assert sorted(process.returncode for process in (first, second)) == [0, 2]
    refused = errors[0] if first.returncode == 2 else errors[1]
    assert refused.startswith("error: the ")
    assert refused.count("\n") == 1
    assert Reinforce.load(tmp_path / "run", allow_modules=["tests"]).progress.steps == 40


def test_files_that_a_killed_process_had_begun_are_removed(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / ".curve.csv.k3x_9a.partial").write_text("half a cur")
    go_on(tmp_path / "run")
    assert not [*(tmp_path / "run").glob("*.partial")]
    assert_same(tmp_path / "run", whole)


def test_a_curve_that_was_lost_is_noted_and_the_training_goes_on(
    whole: Path, tmp_path: Path
) -> None:
    lines = (whole / "curve.csv").read_text().splitlines(keepends=True)
    end = int(lines[-1].split(",")[1])
    for name, kept, note in (
        (
            "older",
            lines[:3],
            "older than the checkpoint: nothing between steps {start:,} and {end:,}",
        ),
        ("none", [], "missing: the curve starts here"),
    ):
        path = tmp_path / name
        shutil.copytree(whole, path)
        (path / "curve.csv").write_text("".join(kept)) if kept else (path / "curve.csv").unlink()
        model = load_run(path, {"steps": end + 1})
        folder = RunFolder(path, model, resume=True)
        start = int(lines[2].split(",")[1])
        assert folder.notes == [f"curve.csv is {note.format(start=start, end=end)}"]
        model.learn(callback=folder)
        folder.finish()
        found = (path / "curve.csv").read_text().splitlines(keepends=True)
        assert found[: max(len(kept), 1)] == (kept or lines[:1])
        assert len(found) == max(len(kept), 1) + 1


def test_the_curve_of_another_run_is_refused(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    *lines, last = (whole / "curve.csv").read_text().splitlines()
    parts = last.split(",")
    parts[3] = "7.25"
    (tmp_path / "run" / "curve.csv").write_text("\n".join([*lines, ",".join(parts)]) + "\n")
    text = (
        f"the record `{tmp_path}/run/curve.csv`: got the curve of a run other than the "
        "checkpoint's, expected the file that the run wrote; restore it from a copy, or remove it: "
        "the curve then starts at the checkpoint"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        RunFolder(tmp_path / "run", load_run(tmp_path / "run", {}), resume=True)


def test_missing_seconds_are_noted(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    folder = RunFolder(tmp_path / "run", load_run(tmp_path / "run", {}), resume=True)
    assert folder.notes == ["result.json is missing: training seconds are counted from here"]
    folder.finish()


@contextmanager
def file_size_limit(number: int) -> Iterator[None]:
    """No file of this process may grow beyond `number` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_previous_checkpoint_from_which_the_run_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    path = tmp_path / "full"
    model = Reinforce("CartPole-v1", **OPTIONS)
    folder = RunFolder(path, model)
    model.learn(callback=[folder, lambda progress: progress.updates < 3])
    before = (path / run_folder.FILE_NAME).read_bytes()
    text = f"^cannot write `{path}/checkpoint.safetensors`: got File too large, expected a wri"
    with file_size_limit(20_000):
        with pytest.raises(OutputError, match=text):
            model.learn(callback=folder)
        with pytest.raises(OutputError, match=text):
            folder.finish()
    assert (path / run_folder.FILE_NAME).read_bytes() == before
    assert not [*path.glob(".*.partial")]
    go_on(path)
    assert_same(path, whole)


def test_a_full_disk_is_one_line_on_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eligibility", "train", HERE + "Bandit-v0", "--out", "run"]
    # Without the measurement of coverage, whose own file is larger than that.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    process = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500)),
    )  # fmt: skip
    assert process.returncode == 2
    *shown, last = process.stderr.splitlines()
    assert all(line.startswith(("training", "warning")) for line in shown), process.stderr
    assert last.startswith("error: cannot write `run/")
    assert "got File too large" in last


@pytest.mark.filterwarnings("ignore:.*The reward returned")
def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(EligibilityError, match=r"^the environment's step: got .*three") as caught:
        Reinforce(HERE + "PaysWords-v0").learn()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("needed", ["config", "progress", "recent"])
def test_a_checkpoint_without_its_facts_is_refused(needed: str, tmp_path: Path) -> None:
    from eligibility.train.checkpoint import write_checkpoint

    facts = {"config": {}, "progress": {}, "recent": []}
    write_checkpoint(tmp_path / "half", {}, {k: v for k, v in facts.items() if k != needed})
    with pytest.raises(EligibilityError, match="a damaged or foreign file"):
        Reinforce.load(tmp_path / "half")


def test_a_changed_fact_is_noticed(tmp_path: Path) -> None:
    path = Reinforce("CartPole-v1", discount=0.97).save(tmp_path / "model")
    content = path.read_bytes()
    assert content.count(b"0.97") == 1
    path.write_bytes(content.replace(b"0.97", b"0.87"))
    with pytest.raises(EligibilityError, match="a damaged or foreign file"):
        Reinforce.load(path)


def test_an_event_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"^cannot write `.*: got No such file or directory, exp"):
        Events(tmp_path / "nowhere", 0)
    events = Events(tmp_path, 0)
    (path,) = tmp_path.iterdir()
    full = path.stat().st_size
    with file_size_limit(full), pytest.raises(OutputError, match=r"got File too large, expected a"):
        events.write(Progress(steps=1))
    events.close()


@pytest.mark.parametrize("package", ["safetensors", "tensorboard", "matplotlib"])
def test_a_record_whose_package_is_missing_says_so(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name)
    )
    with pytest.raises(MissingDependencyError, match=f"^the package `{package}`: got no such"):
        RunFolder(tmp_path / "run", Reinforce(HERE + "Bandit-v0"))


def test_a_checkpoint_without_safetensors_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingDependencyError, match=r"^the package `safetensors`: got no such"):
        Reinforce(HERE + "Bandit-v0").save(tmp_path / "model")
