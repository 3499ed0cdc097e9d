"""What a run leaves behind: config, learning curve, TensorBoard events, checkpoint, result.

========================  =======================================================================
``config.json``           every option, defaults included
``curve.csv``             one row a rollout; the same seed gives the same bytes
``curve.png``             the same as a picture
``events.out.tfevents…``  the same for TensorBoard, with times
``checkpoint.safetensors``  the trained policy and all that continuing needs
``result.json``           solved or not, seconds, steps
========================  =======================================================================

The first rollout creates them: a run that fails before it leaves nothing.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from eligibility.errors import OutputError
from eligibility.files import write_atomically
from eligibility.train.checkpoint import FILE_NAME
from eligibility.train.environments import missing
from eligibility.train.events import Events, load_tensorboard
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.record import CONFIG, RESULT, curve_text, read_curve, read_json, read_seconds
from eligibility.train.saving import check_changes

_SECONDS_BETWEEN_CHECKPOINTS = 30.0


class RunFolder:
    """A callback of `Reinforce.learn` that keeps the record of a run in a folder.

    Args:
        path: The folder; made if it does not exist. One that holds a run already is refused.
        model: The model that is going to be trained.
        resume: The folder holds a run, and the model was loaded from it: go on with the record.

    Raises:
        OutputError: The folder cannot be written, or holds a run that is not to be resumed.
        InvalidValueError: The record to go on with is damaged.
        MissingDependencyError: matplotlib, tensorboard or safetensors is not installed.
    """

    def __init__(self, path: str | Path, model: Reinforce, *, resume: bool = False) -> None:
        self.path, self._model = Path(path), model
        _check_packages()
        self._created = False
        self._rows: list[Progress] = []
        if resume:
            _prove_writable(self.path)
            # A run that was killed may have written more than its checkpoint knows of.
            if model.progress.steps:
                rows = read_curve(self.path)
                self._rows = [row for row in rows if row.steps <= model.progress.steps]
                seconds = read_seconds(self.path)
                model.progress = replace(model.progress, training_seconds=seconds)
        else:
            self._created = _make_writable(self.path)
        self._events: Events | None = None
        # With several processes, at once: a worker that is started anew finds where to go on.
        self._saved = -math.inf if model.config.shards > 1 else time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Record one rollout; every 30 seconds also write the checkpoint and the curve."""
        if self._events is None:
            config = json.dumps(asdict(self._model.config), indent=2)
            write_atomically(self.path / CONFIG, config + "\n")
            self._events = Events(self.path, progress.steps)
        self._rows.append(progress)
        self._events.write(progress)
        if time.monotonic() - self._saved > _SECONDS_BETWEEN_CHECKPOINTS:
            self._save()

    def finish(self) -> dict[str, Any]:
        """Write everything. Returns the result as it stands in ``result.json``.

        With no rollout recorded nothing is written, and a folder made for this run is removed.
        """
        if self._events is not None:
            self._events.close()
        if not self._rows:
            if self._created:
                self.path.rmdir()
            return self._result()
        self._save()
        from eligibility.train.curve import draw_curve

        title = f"REINFORCE on {self._model.config.env}, seed {self._model.config.seed}"
        picture = draw_curve(self._rows, self._model.stop_at, title)
        write_atomically(self.path / "curve.png", picture)
        return self._result()

    def _result(self) -> dict[str, Any]:
        last = self._model.progress
        return {
            "solved": last.solved,
            "training_seconds": round(last.training_seconds, 6),
            "steps": last.steps,
            "updates": last.updates,
            "mean_return": last.mean_return if last.episodes else None,
            "run": str(self.path),
        }

    def _save(self) -> None:
        """The checkpoint last: what it goes on from is then always there."""
        write_atomically(self.path / "curve.csv", curve_text(self._rows))
        result = json.dumps(self._result(), indent=2)
        write_atomically(self.path / RESULT, result + "\n")
        self._model.save(self.path / FILE_NAME)
        self._saved = time.monotonic()


def load_run(path: Path, changes: dict[str, Any]) -> Reinforce:
    """The model of a run folder, to go on with: at its checkpoint, or at the very beginning.

    A run that was killed before its first checkpoint has left its config, and that is enough: the
    same config makes the same run.

    Args:
        path: The folder.
        changes: New values of ``steps``, ``stop_at`` or ``threads``.

    Raises:
        InvalidValueError: There is no run, it is damaged, or another option is to be changed.
    """
    if (path / FILE_NAME).exists() or not (path / CONFIG).exists():
        return Reinforce.load(path, **changes)
    check_changes(changes)
    return Reinforce(**{**read_json(path / CONFIG, "env"), **changes})


def _check_packages() -> None:
    """Raise unless what the record needs is installed; load it before the training's clock runs."""
    for package in ("matplotlib", "safetensors", "tensorboard"):
        if importlib.util.find_spec(package) is None:
            raise missing(package)
    load_tensorboard()


def _make_writable(path: Path) -> bool:
    """Make the folder, prove that a file can be made in it; True if it did not exist before."""
    if path.exists() and (not path.is_dir() or (path / CONFIG).exists()):
        raise OutputError(
            f"the run folder `{path}`",
            "a folder that holds a run already" if path.is_dir() else "a file",
            "a new folder, or an empty one",
            "go on with that run by --resume, choose another folder with --out, or remove this one",
        )
    created = not path.exists()
    _prove_writable(path)
    return created


def _prove_writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(
            f"the run folder `{path}`",
            os.strerror(error.errno) if error.errno else str(error),
            "a folder that can be written",
            "choose another with --out, or change its permissions",
        ) from error
