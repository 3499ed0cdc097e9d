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
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eligibility.errors import OutputError
from eligibility.files import write_atomically
from eligibility.train.checkpoint import FILE_NAME
from eligibility.train.environments import missing
from eligibility.train.learner import Progress, Reinforce

# Fields of `Progress` that are the learning curve, and their names in TensorBoard.
_CURVE = {
    "updates": None,
    "steps": None,
    "episodes": None,
    "rollout_return": "return/rollout",
    "mean_return": "return/mean_of_last_100",
    "entropy": "policy/entropy",
    "gradient_norm": "policy/gradient_norm",
}
_SECONDS_BETWEEN_CHECKPOINTS = 30.0


class RunFolder:
    """A callback of `Reinforce.learn` that keeps the record of a run in a folder.

    Args:
        path: The folder; made if it does not exist. One that holds a run already is refused.
        model: The model that is going to be trained.

    Raises:
        OutputError: The folder cannot be written, or holds a run.
        MissingDependencyError: matplotlib, tensorboard or safetensors is not installed.
    """

    def __init__(self, path: str | Path, model: Reinforce) -> None:
        for package in ("matplotlib", "safetensors", "tensorboard"):
            if importlib.util.find_spec(package) is None:
                raise missing(package)
        self.path, self._model = Path(path), model
        self._rows: list[Progress] = []
        self._events: Any = None
        self._saved = time.monotonic()
        self._created = _make_writable(self.path)
        # Loaded before the training, so that it is not a part of the training's time.
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.event_file_writer  # noqa: F401

    def __call__(self, progress: Progress) -> None:
        """Record one rollout; every 30 seconds also write the checkpoint and the curve."""
        if not self._rows:
            config = json.dumps(asdict(self._model.config), indent=2)
            write_atomically(self.path / "config.json", config + "\n")
        self._rows.append(progress)
        self._write_events(progress)
        if time.monotonic() - self._saved > _SECONDS_BETWEEN_CHECKPOINTS:
            self._save()

    def finish(self) -> dict[str, Any]:
        """Write everything. Returns the result as it stands in ``result.json``.

        With no rollout recorded nothing is written, and a folder made for this run is removed.
        """
        last = self._rows[-1] if self._rows else self._model.progress
        result = {
            "solved": last.solved,
            "training_seconds": round(last.training_seconds, 6),
            "steps": last.steps,
            "updates": last.updates,
            "mean_return": last.mean_return if last.episodes else None,
            "run": str(self.path),
        }
        if self._events is not None:
            self._events.close()
        if not self._rows:
            if self._created:
                self.path.rmdir()
            return result
        self._save()
        from eligibility.train.curve import draw_curve

        title = f"REINFORCE on {self._model.config.env}, seed {self._model.config.seed}"
        write_atomically(
            self.path / "curve.png", draw_curve(self._rows, self._model.stop_at, title)
        )
        write_atomically(self.path / "result.json", json.dumps(result, indent=2) + "\n")
        return result

    def _save(self) -> None:
        self._model.save(self.path / FILE_NAME)
        lines = [",".join(_CURVE)]
        lines += [",".join(repr(getattr(row, name)) for name in _CURVE) for row in self._rows]
        write_atomically(self.path / "curve.csv", "\n".join(lines) + "\n")
        self._saved = time.monotonic()

    def _write_events(self, progress: Progress) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._events is None:
            self._events = EventFileWriter(str(self.path))
        values = [
            Summary.Value(tag=tag, simple_value=getattr(progress, name))
            for name, tag in _CURVE.items()
            if tag is not None
        ]
        values.append(
            Summary.Value(
                tag="speed/steps_per_second",
                simple_value=progress.steps / max(progress.training_seconds, 1e-9),
            )
        )
        self._events.add_event(
            Event(wall_time=time.time(), step=progress.steps, summary=Summary(value=values))
        )


def _make_writable(path: Path) -> bool:
    """Make the folder, prove that a file can be made in it; True if it did not exist before."""
    if path.exists() and (not path.is_dir() or (path / "config.json").exists()):
        raise OutputError(
            f"the run folder `{path}`",
            "a folder that holds a run already" if path.is_dir() else "a file",
            "a new folder, or an empty one",
            "choose another with --out, or remove this one",
        )
    created = not path.exists()
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
    return created
