"""Starts the process that runs a script which trains a language model, and waits for its record."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from eligibility.audit.job import Program, encoded
from eligibility.audit.running.forkserver import start_worker
from eligibility.audit.running.preloading import LANGUAGE_LIBRARIES, TRAINER_LIBRARIES
from eligibility.audit.trainers.record import Record, record_from
from eligibility.sandbox import guard_here

_MODULE = "eligibility.audit.trainers.worker"


def train_once(
    script: Path,
    origin: Path,
    arguments: Sequence[str],
    seconds: float,
    megabytes: int,
    progress: Callable[[int, int], None],
) -> Record:
    """Run the script in a separate process, up to the end of one training.

    Its ``origin`` is the user's own file: another one than the script for a notebook.
    """
    from eligibility.audit.trainers.own import trains_with_trl  # and with it torch

    with tempfile.TemporaryDirectory(
        prefix="eligibility-audit-", ignore_cleanup_errors=True
    ) as folder:
        scratch = Path(folder)
        program = Program(
            str(script), str(origin), tuple(arguments), folder, guard_here(), seconds, megabytes,
            False,
        )  # fmt: skip
        libraries = TRAINER_LIBRARIES if trains_with_trl(script) else LANGUAGE_LIBRARIES
        with closing(start_worker(_MODULE, scratch, libraries)) as worker:
            worker.send(encoded(program))
            last = ""
            for line in worker.stdout:
                if line.startswith("["):
                    progress(*json.loads(line))
                last = line
        if not last.startswith("{"):
            return Record("error", "the program's process ended early")
        return record_from(json.loads(last))
