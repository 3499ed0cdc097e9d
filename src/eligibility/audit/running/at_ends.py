"""A program that earns something only where an episode ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eligibility.audit.job import Job
from eligibility.audit.running.runner import OtherRunner
from eligibility.audit.trace import Trace


class AtEnds(OtherRunner):
    """Runs a program whose rewards are 0 but for those of the last steps."""

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        return self._runner.start(replace(job, at_ends=True))
