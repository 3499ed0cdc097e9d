"""TensorBoard's event file, written as the training goes on: no thread, nothing held back."""

from __future__ import annotations

import os
import socket
import struct
import time
from functools import cache
from pathlib import Path
from typing import Any

from eligibility.files import unwritable
from eligibility.train.progress import Progress, metrics


def record(data: bytes) -> bytes:
    """An entry of an event file; TensorBoard's function would take 0.25 s to import."""
    length = struct.pack("<Q", len(data))
    return length + _check_sum(length) + data + _check_sum(data)


def _check_sum(data: bytes) -> bytes:
    """CRC-32C, rotated and with a constant added, as TensorFlow's records have it."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder = _crc_table()[(remainder ^ byte) & 0xFF] ^ remainder >> 8
    crc = remainder ^ 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _crc_table() -> list[int]:
    """The remainder of each byte by Castagnoli's polynomial, bits reversed."""
    table = list(range(256))
    for _ in range(8):
        table = [entry >> 1 ^ 0x82F63B78 * (entry & 1) for entry in table]
    return table


class Events:
    """One event file in a folder, without a thread, where nobody could answer a full disk.

    ``steps`` is where the run stands: TensorBoard forgets what a killed run wrote after that.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self._event = Event
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        try:
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._add(wall_time=time.time(), file_version="brain.Event:2")
        self._add(step=steps, session_log=SessionLog(status=SessionLog.START))

    def write(self, progress: Progress) -> None:
        """The numbers of a rollout."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=tag, simple_value=number) for tag, number in metrics(progress).items()
        ]
        self._add(wall_time=time.time(), step=progress.steps, summary=Summary(value=values))

    def close(self) -> None:
        """No more events."""
        self._file.close()

    def _add(self, **content: Any) -> None:
        try:
            self._file.write(record(self._event(**content).SerializeToString()))
        except OSError as error:
            raise unwritable(self._path, error) from error
