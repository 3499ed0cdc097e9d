"""A program that is run by other jobs: every one with the same values of some fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eligibility.audit.job import Job
from eligibility.audit.running.runner import OtherRunner, Runner
from eligibility.audit.trace import Trace


class WithFields(OtherRunner):
    """Runs a program by jobs that are given ``fields``."""

    def __init__(self, runner: Runner, **fields: Any) -> None:
        super().__init__(runner)
        self._fields = fields

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        return self._runner.start(replace(job, **self._fields))
