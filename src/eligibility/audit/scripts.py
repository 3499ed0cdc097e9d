"""`audit_script`: an unmodified program in a separate process."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from eligibility.audit.examine import examine
from eligibility.audit.interception.language import imports_trainers
from eligibility.audit.job import OwnProblem, SmallNumber, WholeNumber
from eligibility.audit.judgement.advantage import BY_COUNT
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.constants import GIVEN
from eligibility.audit.judgement.source import read_source
from eligibility.audit.reporting.report import AuditReport, Convention, Finding
from eligibility.audit.running.later_part import from_training
from eligibility.audit.running.outside_numbers import numbers_outside, place_of
from eligibility.audit.running.reward_search import Solving, own_problem, with_own_reward
from eligibility.audit.running.runner import LanguageScriptError, Runner, ScriptRunner
from eligibility.audit.running.smaller import FIRST, Smaller, limits_in_probe, small_batches
from eligibility.audit.running.survey import Progress, silent
from eligibility.audit.trace import NO_ENVIRONMENT, Trace
from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.notebooks import is_notebook, script_of
from eligibility.sandbox import GUARDS, LANDLOCK
from eligibility.sandbox.workspace import root_around
from eligibility.scalars import check_numbers, check_path, described, is_number, not_a_number

_Placed = TypeVar("_Placed", Finding, Convention)
_FEW_DRAWS = 100  # before an update, of a program whose reward is sought in many runs
_LIMIT_MISSED = "truncation-as-termination"
_RUNS = 10  # runs of another script that may take as long as the one of a language model


def audit_script(
    path: str | Path,
    argv: Sequence[str] = (),
    *,
    discount: float | None = None,
    max_paths: int = 600,
    samples: int = 200,
    time_limit: float = 20.0,
    memory_limit: int = 2048,
    progress: Progress | None = None,
) -> AuditReport:
    """Whether an unmodified program computes the policy gradient.

    E[g] over every path of a small problem, against ∇E[Σ_t γ^t r_t].

    The program meets a probe in place of the environment that it makes, runs once for every
    sequence of random outcomes up to its first update, and is stopped there; its parameters never
    change. It runs in a child process without network or display, in a copy of its folder; the
    kernel lets it write nowhere else (`AuditReport.guard` says by what).
    A program that trains a language model, with TRL or in its own loop on transformers, runs
    on a tiny model, through every group of answers to its prompts.

    Args:
        path: The script, or a notebook: its code cells one after the other.
        argv: Its command-line arguments.
        discount: γ of the return; None: as measured by the powers in the program's weights, or
            else of the constants in its text the one that its gradient fits best.
        max_paths: Maximum number of paths to enumerate; beyond it, paths are sampled.
        samples: How many paths to sample then.
        time_limit: Seconds of the processor that one run may take; waiting may take ten times that.
        memory_limit: Megabytes that one run may take, beyond what the libraries do.
        progress: Called with what is done, runs so far, and runs expected.

    Returns:
        The report. A program that cannot be run is "inconclusive", with what it needs.

    Raises:
        InvalidValueError: No such file, no Python, or a limit without sense.

    Notes:
        Conventions such as dropping γ^t are named with the size of their bias, and are not faults.

    Example:
        >>> import tempfile
        >>> audit_script(Path(tempfile.gettempdir()) / "missing.py")
        Traceback (most recent call last):
            ...
        eligibility.errors.InvalidValueError: ...

    References:
        Williams 1992, Theorem 2.
    """
    check_path(path)
    path = Path(path)
    if isinstance(argv, str) or not isinstance(argv, Sequence):
        raise InvalidTypeError(
            "`argv`", described(argv), "a list of strings", "pass for example ['--seed', '1']"
        )
    _check_limits(discount, max_paths, samples, time_limit, memory_limit)
    started = time.perf_counter()
    progress = progress or silent
    language = not is_notebook(path) and imports_trainers(path.absolute())
    if not language:
        try:
            report = _in_environment(
                path, tuple(argv), discount, max_paths, samples, time_limit, memory_limit, progress
            )
        except LanguageScriptError:
            language = True
    if language:
        report = _with_language_model(path, argv, time_limit, memory_limit, progress)
    return replace(report, seconds=time.perf_counter() - started)


def _with_language_model(
    path: Path, argv: Sequence[str], time_limit: float, memory_limit: int, progress: Progress
) -> AuditReport:
    """The audit of a script that trains a language model; it is run once, for all outcomes."""
    from eligibility.audit.trainers.child import train_once
    from eligibility.audit.trainers.verdict import report_of

    with tempfile.TemporaryDirectory(prefix="eligibility-audit-") as folder:
        script = path.absolute()
        if is_notebook(path):
            script = Path(folder, f"{path.stem}_cells.py")
            script.write_text(script_of(path)[0], encoding="utf-8")
        record = train_once(
            script,
            path.absolute(),
            argv,
            _RUNS * time_limit,
            2 * memory_limit,
            lambda done, expected: progress("groups of answers", done, expected),
        )
        report = report_of(record, str(path))
    return _in_cells(report, script, path) if is_notebook(path) else report


def _in_environment(
    path: Path,
    argv: tuple[str, ...],
    discount: float | None,
    max_paths: int,
    samples: int,
    time_limit: float,
    memory_limit: int,
    progress: Progress,
) -> AuditReport:
    """The audit of a script that acts in an environment; it is run once for every path."""
    source = read_source(path)
    text = "\n".join(source.lines) if is_notebook(path) else None
    with ScriptRunner(
        path.absolute(), argv, time_limit, memory_limit, source.four_tuple, text
    ) as runner:
        constants = source.constants(argv)
        if discount is not None:
            constants = replace(constants, discounts=(discount,), origin=GIVEN)
        text_of = replace(source, path=runner.script)

        def judged(by: Runner) -> AuditReport:
            known = partial(
                AuditedProgram,
                source=text_of,
                name=str(path),
                constants=constants,
                shortened=isinstance(by, Smaller),
            )
            return examine(by, max_paths, samples, progress, known)

        def numbers() -> list[WholeNumber]:
            root = root_around(path.parent.resolve(), Path.cwd())
            beside = numbers_outside(path.absolute(), root, text_of.strings(), argv)
            return [*text_of.whole_numbers(), *beside]

        report = _Script(runner, runner.run(FIRST), numbers, judged).report()
    if is_notebook(path):
        report = _in_cells(report, runner.script, path)
    notes = (*report.notes, GUARDS[runner.guard]) if runner.guard != LANDLOCK else report.notes
    return replace(report, notes=notes, guard=runner.guard)


@dataclass(frozen=True)
class _Script:
    """A script that acts in an environment, or for a reward of its own."""

    runner: Runner  # runs it
    first: Trace  # its first run
    numbers: Callable[[], Sequence[WholeNumber]]  # in its text
    judged: Callable[[Runner], AuditReport]  # the report of what a runner does

    def report(self) -> AuditReport:
        """Of the reward that it acts for where it has no environment, or else as it is."""
        no_environment = self.first.outcome == NO_ENVIRONMENT
        own = own_problem(self.runner, self.first) if no_environment else None
        return (self._of_own_reward(*own) if own else None) or self._from_training()

    def _of_own_reward(self, problem: OwnProblem, path: Trace) -> AuditReport | None:
        """The report of a program without an environment; None if no number is its reward."""
        solving = Solving(self.runner, problem)
        shorter = small_batches(solving, path, self.numbers, _FEW_DRAWS)
        by = Smaller(self.runner, shorter) if shorter else self.runner
        found = with_own_reward(by, problem, len(path.updates))
        if found is None:
            return None
        report = self._with_small_batches(found, found.run(FIRST))
        return replace(report, notes=(*report.notes, _reduced(shorter))) if shorter else report

    def _from_training(self) -> AuditReport:
        """The report of a program without what it plays before it trains."""
        later, played = from_training(self.runner, self.first)
        if not played:
            return self._with_small_batches(self.runner, self.first)
        report = self._with_small_batches(later, later.run(FIRST))
        note = f"left out: the {played} steps that it plays before it trains; they move no gradient"
        return replace(report, notes=(*report.notes, note))

    def _with_small_batches(self, runner: Runner, first: Trace) -> AuditReport:
        """The report of a program with short batches, where it has long ones and runs with them."""
        numbers = small_batches(runner, first, self.numbers)
        if not numbers:
            return self._with_known_limits(runner)
        short = self._with_known_limits(Smaller(runner, numbers))
        short = replace(short, notes=(*short.notes, _reduced(numbers)))
        return short if short.paths else self._with_known_limits(runner)

    def _with_known_limits(self, runner: Runner) -> AuditReport:
        """The report, with the probe's time limit where the program writes its own as a number."""
        report = self.judged(runner)
        if not any(finding.rule == _LIMIT_MISSED for finding in report.faults):
            return report
        limits = limits_in_probe(self.first, self.numbers())
        if not limits:
            return report
        other = self.judged(Smaller(runner, limits))
        if other.faults or BY_COUNT not in [each.name for each in other.conventions]:
            return report
        note = f"the environment's time limit, which is the probe's in the audit: {_said(limits)}"
        return replace(other, notes=(*other.notes, note))


def _reduced(numbers: Sequence[SmallNumber]) -> str:
    """The note on numbers that are small in the audit."""
    return f"reduced, so that a batch can be enumerated: {_said(numbers)}"


def _said(numbers: Sequence[SmallNumber]) -> str:
    """Numbers, what they are in the audit, and where they stand."""
    return ", ".join(f"{each[3]} is {each[4]} {place_of(each[:4])}" for each in numbers)


def _in_cells(report: AuditReport, script: Path, notebook: Path) -> AuditReport:
    """The report of a notebook's script, in which lines are those of its cells."""
    _, places = script_of(notebook)

    def moved(said: _Placed) -> _Placed:
        if said.file != str(script) or not 0 < said.line <= len(places):
            return said
        cell, line = places[said.line - 1]
        return replace(said, file=f"{notebook}#cell-{cell}", line=line)

    def in_cell(line: re.Match[str]) -> str:
        return "line {1} of cell {0}".format(*places[int(line[1] or line[2]) - 1])

    name = re.escape(script.name)
    lines = re.compile(rf"line (\d+) of {name}|{name}:(\d+)")
    notes = tuple(lines.sub(in_cell, note) for note in report.notes)
    return replace(
        report,
        findings=tuple(map(moved, report.findings)),
        conventions=tuple(map(moved, report.conventions)),
        notes=notes,
    )


def _check_limits(
    discount: float | None, max_paths: int, samples: int, time_limit: float, memory_limit: int
) -> None:
    if discount is not None:
        check_numbers(discount=discount)
    limits = {
        "max_paths": max_paths,
        "samples": samples,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
    }
    for name, value in limits.items():
        if not is_number(value):
            raise not_a_number(name, value, "a positive number")
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(
                f"`{name}`", f"{value:g}", "a positive number", "omit it to use the default"
            )
