"""Runs programs: a script in a child process, a Python callable in this one."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from eligibility.audit.job import OPEN_LANE, Job, Program, encoded
from eligibility.audit.running.forkserver import MOST_LANES, Lane, early_end, start_worker
from eligibility.audit.running.preloading import shared_libraries
from eligibility.audit.side_by_side import in_order, processors
from eligibility.audit.trace import LANGUAGE, Trace, parse_trace
from eligibility.errors import EligibilityError
from eligibility.sandbox import guard_here


class LanguageScriptError(EligibilityError):
    """A script trains a language model: another probe answers for it."""


_LANES_AFTER = 1.0  # seconds of runs: what takes less is over before a lane would have helped
_AHEAD = 2  # runs of a lane: the one that is made, and one for the moment when it ends


class Runner:
    """Something that can run the program under audit; one of `start` and `run` says how."""

    @property
    def ahead(self) -> int:
        """How many runs are worth starting before the first of them is asked for."""
        return 1

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run; the result waits for its end."""
        return partial(self.run, job)

    def run(self, job: Job) -> Trace:
        """One run."""
        return self.start(job)()


def run_all(runner: Runner, jobs: Iterable[Job]) -> Iterator[Trace]:
    """The runs in their order, of which several are made at once where there are processors."""
    return in_order((runner.start(job) for job in jobs), lambda: runner.ahead)


class OtherRunner(Runner):
    """Runs a program by another runner, whose jobs are given ``fields``."""

    def __init__(self, runner: Runner, **fields: Any) -> None:
        self._runner, self._fields = runner, fields

    @property
    def ahead(self) -> int:
        """As many as of the other."""
        return self._runner.ahead

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run."""
        return self._runner.start(replace(job, **self._fields))


class CallableRunner(Runner):
    """Runs a Python callable in this process; everything is restored after each run."""

    def __init__(self, program: Callable[[], object], four_tuple: bool = False) -> None:
        self._program, self._four_tuple = program, four_tuple

    def run(self, job: Job) -> Trace:
        """One run."""
        from eligibility.audit.running.execution import execute

        return execute(self._program, job, four_tuple=self._four_tuple)


class ScriptRunner(Runner):
    """Runs a script in a child process that is limited in time, memory and reach.

    Once the runs have taken a while, several are made at once, on as many processors as there are.

    Attributes:
        script: The file that is run; with a ``text`` in place of the file's, another one.
        guard: As of `Program`: the best that this machine has.
    """

    def __init__(
        self,
        path: Path,
        arguments: tuple[str, ...],
        seconds: float,
        megabytes: int,
        four_tuple: bool,
        text: str | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="eligibility-audit-", ignore_cleanup_errors=True
        )
        scratch = Path(self._folder.name)
        self.script, self.guard = path, guard_here()
        if text is not None:
            self.script = scratch / f"{path.stem}_cells.py"
            self.script.write_text(text, encoding="utf-8")
        program = Program(
            str(self.script), str(path), arguments, str(scratch), self.guard, seconds, megabytes,
            four_tuple,
        )  # fmt: skip
        lanes = min(processors(), 1 + MOST_LANES) - 1
        self._worker = start_worker(
            "eligibility.audit.running.worker", scratch, shared_libraries(self.script), lanes
        )
        self._lanes: list[Lane] = [self._worker]
        self._spent = 0.0  # seconds that runs were waited for
        self._answered(self._worker.ask(encoded(program)))

    @property
    def ahead(self) -> int:
        """A run for each lane, and the next one; 1 where there is one lane."""
        return _AHEAD * len(self._lanes) if len(self._lanes) > 1 else 1

    def start(self, job: Job) -> Callable[[], Trace]:
        """Begin a run, where the fewest are waiting."""
        if self._spent > _LANES_AFTER and len(self._lanes) == 1:
            self._open_lanes()
        lane = min(self._lanes, key=lambda lane: lane.waiting)
        return partial(self._trace, lane.ask(encoded(job)))

    def _open_lanes(self) -> None:
        for lane in self._worker.lanes:
            self._worker.send(OPEN_LANE)
            self._lanes.append(lane)

    def _trace(self, answer: Callable[[], str]) -> Trace:
        start = time.monotonic()
        text = self._answered(answer)
        self._spent += time.monotonic() - start
        try:
            trace = parse_trace(json.loads(text))
        except ValueError as error:
            return Trace("error", f"the run left no readable record: {error}")
        if trace.outcome == LANGUAGE:
            raise LanguageScriptError(
                "the program",
                "one that trains a language model",
                "one that acts in an environment",
                "audit it with audit_script, which handles both",
            )
        return trace

    def close(self) -> None:
        """End the child process and remove its folder."""
        self._worker.close()
        self._folder.cleanup()

    def __enter__(self) -> ScriptRunner:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _answered(self, answer: Callable[[], str]) -> str:
        text = answer()
        if not text:
            self._worker.hang_up()  # one of its lanes may have died alone
            raise early_end(*self._worker.stderr.read().strip().splitlines()[-1:])
        return text
