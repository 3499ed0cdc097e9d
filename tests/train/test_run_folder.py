"""What a run leaves behind, and that a failed one leaves nothing half-written."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from eligibility.errors import InvalidValueError, OutputError
from eligibility.train.display import ProgressDisplay
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.run_folder import RunFolder

FILES = [".lock", "checkpoint.safetensors", "config.json", "curve.csv", "curve.png", "result.json"]


def run(path: Path, seed: int = 1) -> dict[str, object]:
    """A short training with a record of it in ``path``."""
    model = Reinforce("CartPole-v1", seed=seed, steps=4000)
    folder = RunFolder(path, model)
    model.learn(callback=folder)
    return folder.finish()


def test_the_folder_holds_config_curve_events_checkpoint_and_result(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    names = sorted(file.name for file in (tmp_path / "run").iterdir())
    assert [name for name in names if not name.startswith("events.")] == FILES
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["env"] == "CartPole-v1"
    assert config["discount"] == 0.99
    rows = list(csv.DictReader((tmp_path / "run" / "curve.csv").read_text().splitlines()))
    assert list(rows[0]) == [
        "updates", "steps", "episodes", "rollout_return", "mean_return", "entropy", "gradient_norm",
        "gradient_noise", "signal_to_noise", "saturated", "effective_batch", "explained_variance",
    ]  # fmt: skip
    assert int(rows[-1]["steps"]) == result["steps"]
    assert float(rows[-1]["mean_return"]) == result["mean_return"]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert Reinforce.load(tmp_path / "run").progress.steps == result["steps"]


def test_tensorboard_reads_the_same_curve(tmp_path: Path) -> None:
    run(tmp_path / "run")
    (events,) = (tmp_path / "run").glob("events.*")
    scalars = [
        (event.step, value.tensor.float_val[0])
        for event in EventFileLoader(str(events)).Load()
        for value in event.summary.value
        if value.tag == "return/rollout"
    ]
    rows = csv.DictReader((tmp_path / "run" / "curve.csv").read_text().splitlines())
    wanted = [(int(row["steps"]), float(row["rollout_return"])) for row in rows]
    assert [step for step, _ in scalars] == [step for step, _ in wanted]
    assert [value for _, value in scalars] == pytest.approx([value for _, value in wanted])


def test_the_same_seed_leaves_the_same_curve_and_checkpoint_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(tmp_path / name)
    for file in ("curve.csv", "checkpoint.safetensors", "config.json", "curve.png"):
        one, two = ((tmp_path / name / file).read_bytes() for name in ("one", "two"))
        assert one == two, file


def test_a_run_that_never_had_a_rollout_leaves_nothing(tmp_path: Path) -> None:
    RunFolder(tmp_path / "new", Reinforce("CartPole-v1")).finish()
    assert not (tmp_path / "new").exists()


def test_a_run_that_was_stopped_and_resumed_is_one_that_never_stopped(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    model = Reinforce("CartPole-v1", seed=1, steps=4000)
    stopped = RunFolder(tmp_path / "part", model)
    model.learn(callback=lambda progress: stopped(progress) or progress.updates < 1)
    seconds = stopped.finish()["training_seconds"]
    model = Reinforce.load(tmp_path / "part")
    resumed = RunFolder(tmp_path / "part", model, resume=True)
    model.learn(callback=resumed)
    assert resumed.finish()["training_seconds"] > seconds
    for file in ("curve.csv", "checkpoint.safetensors", "config.json", "curve.png"):
        one, two = ((tmp_path / name / file).read_bytes() for name in ("whole", "part"))
        assert one == two, file


def test_rows_after_the_checkpoint_of_a_killed_run_are_forgotten(tmp_path: Path) -> None:
    run(tmp_path / "run")
    whole = (tmp_path / "run" / "curve.csv").read_text()
    (tmp_path / "run" / "curve.csv").write_text(
        whole + "99,99999,6400,1.0,1.0,0.1,0.1,0.1,0.1,0.1,0.1,0.1\n"
    )
    RunFolder(tmp_path / "run", Reinforce.load(tmp_path / "run"), resume=True).finish()
    assert (tmp_path / "run" / "curve.csv").read_text() == whole


def test_a_finished_run_goes_on_with_more_steps(tmp_path: Path) -> None:
    before = run(tmp_path / "run")
    model = Reinforce.load(tmp_path / "run", steps=before["steps"] + 1)
    resumed = RunFolder(tmp_path / "run", model, resume=True)
    model.learn(callback=resumed)
    assert resumed.finish()["steps"] > before["steps"]


@pytest.mark.parametrize("file", ["curve.csv", "result.json"])
def test_a_damaged_record_is_refused(file: str, tmp_path: Path) -> None:
    run(tmp_path / "run")
    (tmp_path / "run" / file).write_text("updates\nmany")
    text = (
        f"the record `{tmp_path}/run/{file}`: got a missing or damaged file, expected the file "
        "that the run wrote; restore it from a copy, or train again"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        RunFolder(tmp_path / "run", Reinforce.load(tmp_path / "run"), resume=True)


def test_resuming_with_another_kind_of_change_is_refused(tmp_path: Path) -> None:
    text = (
        "`discount`: got a new value for a saved model, expected changes of env_kwargs, "
        "learning_rate, natural_gradient, steps, stop_at, threads; train a new model"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(text)}$"):
        Reinforce.load(tmp_path, discount=0.5)


def test_a_folder_with_a_run_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    text = (
        f"the run folder `{tmp_path}`: got a folder that already holds a run, expected a new "
        "folder, or an empty one; continue that run with --resume, choose another folder with "
        "--out, or remove this one"
    )
    with pytest.raises(OutputError, match=f"^{re.escape(text)}$"):
        RunFolder(tmp_path, Reinforce("CartPole-v1"))


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    text = (
        f"cannot write `{tmp_path}/file/run`: got Not a directory, expected a writable place; "
        "choose another folder, free some space, or change the permissions"
    )
    with pytest.raises(OutputError, match=f"^{re.escape(text)}$"):
        RunFolder(tmp_path / "file" / "run", Reinforce("CartPole-v1"))


def progress(solved: bool = False) -> Progress:
    """Some progress."""
    return Progress(
        updates=3, steps=5000, episodes=192, rollout_return=90.0, mean_return=85.25,
        entropy=0.5, gradient_norm=0.1, solved=solved, training_seconds=0.05,
    )  # fmt: skip


def test_without_a_terminal_the_display_writes_plain_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with ProgressDisplay(console, steps=1_000_000, stop_at=475) as display:
        display(progress())
        display(progress(solved=True))  # a moment later: drawn at the end only
    assert console.file.getvalue().splitlines() == [
        "training  return 85.2 of 475   entropy 0.500   5,000 steps   100,000/s   "
        "at most 10 s left",
        "training  return 85.2 of 475   entropy 0.500   5,000 steps   100,000/s   solved",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_on_a_terminal_one_line_is_redrawn(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    with ProgressDisplay(console, steps=1_000_000, stop_at=float("inf")) as display:
        display(progress())
    shown = "return 85.2   entropy 0.500   5,000 steps   100,000/s   at most 10 s left"
    assert shown in console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.7, "1 s"), (59, "59 s"), (61, "1 min 01 s"), (7261, "2 h 01 min")]
)
def test_time_left_is_shown_in_units_of_its_size(seconds: float, text: str) -> None:
    display = ProgressDisplay(Console(file=io.StringIO()), steps=1000, stop_at=1)
    shown = display.status(Progress(steps=500, training_seconds=seconds - 0.5))
    assert shown.endswith(f"at most {text} left")
