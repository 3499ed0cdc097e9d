"""The record of a run, read back: its curve, its seconds, and which runs belong together."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eligibility.errors import EligibilityError, InvalidValueError, OutputError
from eligibility.files import unwritable
from eligibility.train.checkpoint_header import read_config
from eligibility.train.config import Config, as_written
from eligibility.train.domains import LARGEST, LARGEST_WHOLE
from eligibility.train.progress import Progress

# Fields of `Progress` that are the learning curve, and their types: its numbers but the time.
CURVE: dict[str, Callable[[str], Any]] = {
    field.name: type(field.default)
    for field in fields(Progress)
    if type(field.default) in (int, float) and field.name != "training_seconds"
}

CONFIG, CURVE_FILE, RESULT = "config.json", "curve.csv", "result.json"


@dataclass(frozen=True)
class Result:
    """How a run ended, or where it stands: ``result.json``."""

    solved: bool  # whether the mean of the last 100 training episodes reached the return to stop at
    training_seconds: float  # from the first reset to the end of the training
    steps: int  # environment steps that counted
    updates: int
    # Mean return of the last 100 training episodes; None before the first one ended.
    mean_return: float | None
    run: str  # the run's folder, as it was named then


def curve_text(rows: Sequence[Progress]) -> str:
    """The curve as CSV; numbers read back are the same numbers."""
    lines = [",".join(CURVE)]
    lines += [",".join(repr(getattr(row, name)) for name in CURVE) for row in rows]
    return "\n".join(lines) + "\n"


def read_curve(folder: Path) -> list[Progress]:
    """The rows of a run's ``curve.csv``, at least one, in the order of their steps."""
    path = folder / CURVE_FILE
    rows: list[Progress] = []
    try:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            values = {name: convert(row[name]) for name, convert in CURVE.items()}
            rows.append(Progress(**values))
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise _damaged(path) from error
    steps = [row.steps for row in rows]
    if not rows or sorted({*steps}) != steps or not 0 <= steps[0] <= steps[-1] <= LARGEST_WHOLE:
        raise _damaged(path)
    return rows


def read_result(folder: Path) -> Result:
    """The ``result.json`` of a run."""
    path = folder / RESULT
    content = _read_object(path)
    try:
        result = Result(**{field.name: content[field.name] for field in fields(Result)})
    except KeyError as error:
        raise _damaged(path) from error
    counts = (result.steps, result.updates)
    numbers = (result.training_seconds, 0.0 if result.mean_return is None else result.mean_return)
    if not (
        isinstance(result.solved, bool)
        and isinstance(result.run, str)
        and all(type(one) is int and 0 <= one <= LARGEST_WHOLE for one in counts)
        and all(type(one) in (int, float) and abs(one) <= LARGEST for one in numbers)
    ):
        raise _damaged(path)
    return result


def read_run_config(folder: Path) -> Config:
    """The ``config.json`` of a run, each option checked."""
    path = folder / CONFIG
    try:
        # The name of a function that made the environment may be any text: nobody looks it up.
        return read_config(_read_object(path), own_environment=True)
    except EligibilityError as error:
        raise _damaged(path) from error


def find_runs(path: Path) -> list[Path]:
    """A run folder itself, or all run folders below a folder, as sweeps leave them."""
    if (path / CONFIG).exists():
        return [path]
    runs = sorted(found.parent for found in path.rglob(CONFIG))
    if not runs:
        raise InvalidValueError(
            f"`{path}`",
            "no run folder" if path.exists() else "no such folder",
            "a run folder, or a folder of several",
            "pass a folder that eligibility train or sweep wrote",
        )
    return runs


def read_groups(folders: Sequence[Path]) -> dict[str, list[list[Progress]]]:
    """The curves of the runs in each of `group_runs`."""
    return {name: [read_curve(run) for run in runs] for name, runs in group_runs(folders).items()}


def group_runs(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Run folders by what they have in common, all but the seed.

    A group is named after its environment and the options that differ between its groups.
    """
    configs = [asdict(read_run_config(folder)) for folder in folders]
    values: dict[tuple[str, str], set[str]] = {}  # of each option of the runs of an environment
    for config in configs:
        for name in config.keys() - {"env", "seed"}:
            values.setdefault((config["env"], name), set()).add(json.dumps(config[name]))
    groups: dict[str, list[Path]] = {}
    for folder, config in zip(folders, configs, strict=True):
        options = (
            f"{name} {as_written(config[name])}"
            for name in sorted(config)
            if len(values.get((config["env"], name), ())) > 1
        )
        groups.setdefault(", ".join([config["env"], *options]), []).append(folder)
    return groups


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():  # to open a pipe would wait for ever
            raise _damaged(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(content, dict):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> InvalidValueError:
    return InvalidValueError(
        f"the record `{path}`",
        "a missing or damaged file",
        "the file that the run wrote",
        "restore it from a copy, or train again",
    )


# Stays in the folder: if it were removed, two processes could hold two files of one name.
LOCK = ".lock"


class FolderLock:
    """Holds a folder for this process from its construction on; makes it if there is none."""

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout

        self._path = folder / LOCK
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):  # an old lock proves nothing
                pass
            self._lock.acquire()
        except Timeout as error:
            raise OutputError(
                f"the folder `{folder}`",
                "a folder that another process is writing to",
                "a separate folder for each training",
                "wait for the other process to end, or choose another folder with --out",
            ) from error
        except OSError as error:
            raise unwritable(folder, error) from error

    def release(self, *, remove: bool = False) -> None:
        """Let others have the folder; ``remove`` the file too if the folder is about to go."""
        if remove:
            self._path.unlink(missing_ok=True)
        self._lock.release()
