"""TensorBoard's event file, written as the training goes on: no thread, nothing held back."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from eligibility.files import unwritable
from eligibility.train.progress import Progress, metrics


class Events:
    """One event file in a folder, without a thread, where nobody could answer a full disk.

    ``steps`` is where the run stands: TensorBoard forgets what a killed run wrote after that.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = Event
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        try:
            self._writer = RecordWriter(self._path.open("ab", buffering=0))
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._add(wall_time=time.time(), file_version="brain.Event:2")
        self._add(step=steps, session_log=SessionLog(status=SessionLog.START))

    def write(self, progress: Progress) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=tag, simple_value=number) for tag, number in metrics(progress).items()
        ]
        self._add(wall_time=time.time(), step=progress.steps, summary=Summary(value=values))

    def close(self) -> None:
        self._writer.close()

    def _add(self, **content: Any) -> None:
        try:
            self._writer.write(self._event(**content).SerializeToString())
        except OSError as error:
            raise unwritable(self._path, error) from error
