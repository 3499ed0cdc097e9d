"""The record of a run, read back: its curve, its seconds, and which runs belong together."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError
from eligibility.train.progress import Progress

# Fields of `Progress` that are the learning curve, and their types.
CURVE: dict[str, Callable[[str], Any]] = {
    "updates": int,
    "steps": int,
    "episodes": int,
    "rollout_return": float,
    "mean_return": float,
    "entropy": float,
    "gradient_norm": float,
    "gradient_noise": float,
    "signal_to_noise": float,
    "saturated": float,
    "effective_batch": float,
    "explained_variance": float,
}

CONFIG, RESULT = "config.json", "result.json"
_SECONDS = "training_seconds"


def curve_text(rows: Sequence[Progress]) -> str:
    """The curve as CSV; numbers read back are the same numbers."""
    lines = [",".join(CURVE)]
    lines += [",".join(repr(getattr(row, name)) for name in CURVE) for row in rows]
    return "\n".join(lines) + "\n"


def read_curve(folder: Path) -> list[Progress]:
    """The rows of a run's ``curve.csv``, at least one."""
    path = folder / "curve.csv"
    rows: list[Progress] = []
    try:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            values = {name: convert(row[name]) for name, convert in CURVE.items()}
            rows.append(Progress(**values))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error
    if not rows:
        raise _damaged(path)
    return rows


def read_seconds(folder: Path) -> float:
    """The training seconds of a run's ``result.json``."""
    return float(read_json(folder / RESULT, _SECONDS)[_SECONDS])


def find_runs(path: Path) -> list[Path]:
    """A run folder itself, or the run folders in a folder of several, as a sweep leaves them."""
    if (path / CONFIG).exists():
        return [path]
    runs = sorted(found.parent for found in path.glob(f"*/{CONFIG}"))
    if not runs:
        raise InvalidValueError(
            f"`{path}`",
            "no run folder" if path.exists() else "no such folder",
            "a run folder, or a folder of several",
            "pass what eligibility train or sweep has written",
        )
    return runs


def read_groups(folders: Sequence[Path]) -> dict[str, list[list[Progress]]]:
    """The curves of runs, by what they have in common: all but the seed.

    A group is named after its environment and, where there are several for one environment, after
    the options in which they differ.
    """
    return {
        name: [read_curve(folder) for folder in members]
        for name, members in group_runs(folders).items()
    }


def group_runs(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Run folders by what they have in common; see `read_groups`."""
    configs = [read_json(folder / CONFIG, "env") for folder in folders]
    differing = sorted(
        name
        for name in {name for config in configs for name in config} - {"env", "seed"}
        if len({json.dumps(config.get(name)) for config in configs}) > 1
    )
    groups: dict[str, list[Path]] = {}
    for folder, config in zip(folders, configs, strict=True):
        options = ", ".join(f"{name} {config.get(name)}" for name in differing)
        name = f"{config['env']}, {options}" if options else str(config["env"])
        groups.setdefault(name, []).append(folder)
    return groups


def read_json(path: Path, needed: str) -> dict[str, Any]:
    """A JSON object that has what is needed."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content[needed]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error
    return content


def _damaged(path: Path) -> InvalidValueError:
    return InvalidValueError(
        f"the record `{path}`",
        "a missing or damaged file",
        "what the run had written",
        "restore it from a copy, or train again",
    )
