"""What a run leaves behind: config, learning curve, TensorBoard events, checkpoint, result.

========================  =======================================================================
``config.json``           every option, defaults included
``curve.csv``             one row a rollout; the same seed gives the same bytes
``curve.png``             the same as a picture
``events.out.tfevents…``  the same for TensorBoard, with times
``checkpoint.safetensors``  the trained policy and all that continuing needs
``result.json``           solved or not, seconds, steps
``.lock``                 empty; locked while a process writes to the folder
========================  =======================================================================

The first rollout creates them: a run that fails before it leaves nothing.
"""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError, OutputError
from eligibility.files import remove_partial_files, write_atomically
from eligibility.train.checkpoint import FILE_NAME
from eligibility.train.environments import check_trusted, missing
from eligibility.train.events import Events
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.record import (
    CONFIG,
    CURVE_FILE,
    RESULT,
    FolderLock,
    curve_text,
    read_curve,
    read_result,
    read_run_config,
)
from eligibility.train.saving import check_changes

_SECONDS_BETWEEN_CHECKPOINTS = 30.0


class RunFolder:
    """A callback of `Reinforce.learn` that keeps the record of a run in a folder.

    It alone writes to ``path`` until `finish`. A folder that holds a run is refused, unless the
    model was loaded from it and is to ``resume``; ``notes`` says what of that record was lost.
    """

    def __init__(self, path: str | Path, model: Reinforce, *, resume: bool = False) -> None:
        self.path, self._model = Path(path), model
        self.notes: list[str] = []
        check_packages()
        if not resume:
            _check_new(self.path)
        self._created = not self.path.exists()
        self._lock = FolderLock(self.path)
        try:
            if not resume:  # another process may have begun and ended in between
                _check_new(self.path)
            remove_partial_files(self.path)
            self._rows = self._read_record() if resume else []
        except BaseException:  # an interrupt too must not leave the folder locked
            self._lock.release()
            raise
        self._events: Events | None = None
        # With several processes, at once: a worker that is restarted finds where to go on.
        self._saved = -math.inf if model.config.shards > 1 else time.monotonic()

    def _read_record(self) -> list[Progress]:
        """The curve up to the checkpoint: a killed run wrote more. What was lost of it is noted."""
        model = self._model
        if not model.progress.steps:
            return []
        if (self.path / RESULT).exists():
            seconds = read_result(self.path).training_seconds
            model.progress = replace(model.progress, training_seconds=seconds)
        else:
            self.notes.append(f"{RESULT} is missing: training seconds are counted from here")
        if not (self.path / CURVE_FILE).exists():
            self.notes.append(f"{CURVE_FILE} is missing: the curve starts here")
            return []
        rows = [row for row in read_curve(self.path) if row.steps <= model.progress.steps]
        last = rows[-1].steps if rows else 0
        if last < model.progress.steps:
            self.notes.append(
                f"{CURVE_FILE} is older than the checkpoint: nothing between steps {last:,} and "
                f"{model.progress.steps:,}"
            )
        elif curve_text(rows[-1:]) != curve_text([model.progress]):
            raise InvalidValueError(
                f"the record `{self.path / CURVE_FILE}`",
                "the curve of a run other than the checkpoint's",
                "the file that the run wrote",
                "restore it from a copy, or remove it: the curve then starts at the checkpoint",
            )
        return rows

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
        """Write everything and let go of the folder; return the result.

        With no rollout recorded nothing is written, and a folder made for this run is removed.
        """
        if self._events is not None:
            self._events.close()
        unused = self._created and not self._rows
        try:
            if self._rows:
                self._save()
                self._draw()
            return self._result()
        finally:
            self._lock.release(remove=unused)
            if unused:
                with suppress(OSError):  # it may hold a config: then a disk was full right after
                    self.path.rmdir()

    def _draw(self) -> None:
        from eligibility.train.curve import draw_curve

        title = f"REINFORCE on {self._model.config.env}, seed {self._model.config.seed}"
        picture = draw_curve(self._rows, self._model.stop_at, title)
        write_atomically(self.path / "curve.png", picture)

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
        write_atomically(self.path / CURVE_FILE, curve_text(self._rows))
        result = json.dumps(self._result(), indent=2)
        write_atomically(self.path / RESULT, result + "\n")
        self._model.save(self.path / FILE_NAME)
        self._saved = time.monotonic()


def load_run(
    path: Path,
    changes: dict[str, Any],
    *,
    env: str | None = None,
    allow_modules: Collection[str] = (),
) -> Reinforce:
    """The model of a run folder, to go on with: at its checkpoint, or at the very beginning.

    A run that was killed before its first checkpoint has left its config, and that is enough: the
    same config makes the same run. ``changes`` and ``allow_modules`` as in `Reinforce.load`;
    ``env`` only if the caller names it.
    """
    if (path / FILE_NAME).exists() or not (path / CONFIG).exists():
        return Reinforce.load(path, env=env, allow_modules=allow_modules, **changes)
    check_changes(changes)
    config = asdict(read_run_config(path))
    changes = changes if env is None else {**changes, "env": env}
    for name in ("env", "env_kwargs"):
        if name not in changes:
            check_trusted(config[name], allow_modules, f"the run folder `{path}`")
    return Reinforce(**{**config, **changes})


def check_packages() -> None:
    """Raise unless what the record needs is installed; load it before the training's clock runs."""
    for package in ("matplotlib", "safetensors", "tensorboard"):
        if importlib.util.find_spec(package) is None:
            raise missing(package)
    import tensorboard.compat.proto.event_pb2
    import tensorboard.compat.proto.summary_pb2
    import tensorboard.summary.writer.record_writer  # noqa: F401  # all that `Events` needs


def _check_new(path: Path) -> None:
    """Raise if the folder holds a run, or is none."""
    is_file = path.exists() and not path.is_dir()
    if is_file or (path / CONFIG).exists():
        raise OutputError(
            f"the run folder `{path}`",
            "a file" if is_file else "a folder that already holds a run",
            "a new folder, or an empty one",
            "continue that run with --resume, choose another folder with --out, or remove this one",
        )
