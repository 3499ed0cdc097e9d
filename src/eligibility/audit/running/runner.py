"""Runs programs: a script in a child process, a Python callable in this one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from eligibility.audit.job import Job, Program, encode_job, settings_line
from eligibility.audit.running.forkserver import early_end, start_worker
from eligibility.audit.running.preloading import shared_libraries
from eligibility.audit.trace import LANGUAGE, Trace, parse_trace
from eligibility.errors import EligibilityError
from eligibility.sandbox import guard_here


class LanguageScriptError(EligibilityError):
    """A script trains a language model: another probe answers for it."""


class Runner(Protocol):
    """Something that can run the program under audit."""

    def run(self, job: Job) -> Trace:
        """One run."""
        ...


class CallableRunner:
    """Runs a Python callable in this process; everything is restored after each run."""

    def __init__(self, program: Callable[[], object], four_tuple: bool = False) -> None:
        self._program, self._four_tuple = program, four_tuple

    def run(self, job: Job) -> Trace:
        """One run."""
        from eligibility.audit.running.execution import execute

        return execute(self._program, job, four_tuple=self._four_tuple)


class ScriptRunner:
    """Runs a script in a child process that is limited in time, memory and reach.

    Attributes:
        script: The file that is run; with a ``text`` in place of the file's, another one.
        guard: As of `Program`; without one, the best that this machine has.
    """

    def __init__(
        self,
        path: Path,
        arguments: tuple[str, ...],
        seconds: float,
        megabytes: int,
        four_tuple: bool,
        text: str | None = None,
        guard: str | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="eligibility-audit-", ignore_cleanup_errors=True
        )
        scratch = Path(self._folder.name)
        self.script, self.guard = path, guard or guard_here()
        if text is not None:
            self.script = scratch / f"{path.stem}_cells.py"
            self.script.write_text(text, encoding="utf-8")
        program = Program(
            str(self.script), str(path), arguments, str(scratch), self.guard, seconds, megabytes,
            four_tuple,
        )  # fmt: skip
        self._worker = start_worker(
            "eligibility.audit.running.worker", scratch, shared_libraries(self.script)
        )
        self._ask(settings_line(program))

    def run(self, job: Job) -> Trace:
        """One run."""
        answer = self._ask(encode_job(job))
        try:
            trace = parse_trace(json.loads(answer))
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, line: str) -> str:
        answer = ""
        with suppress(BrokenPipeError):
            self._worker.send(line)
            answer = self._worker.stdout.readline()
        if not answer:
            raise early_end(*self._worker.stderr.read().strip().splitlines()[-1:])
        return answer
