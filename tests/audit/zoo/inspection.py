"""Runs the audit on a program of the zoo, in this process, and labels it by its exact gradient."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from eligibility.audit.examine import examine
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.evidence import gather
from eligibility.audit.judgement.source import Source, read_source
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import Survey, survey
from tests.audit.zoo.styles import Program


def audit_program(program: Program, max_paths: int = 200) -> AuditReport:
    """The audit of a program, without a child process."""
    with running(program) as (runner, source):
        return examine(
            runner,
            max_paths,
            20,
            lambda what, done, expected: None,
            lambda observed: AuditedProgram(observed, source, program.name, source.constants(())),
        )


def same_gradient(one: Program, other: Program, max_paths: int = 200) -> bool:
    """Whether two programs give the policy the same gradient on every path, up to rounding."""
    first, second = (gather(observe(program, max_paths)) for program in (one, other))
    if first is None or second is None or first.ascent.shape != second.ascent.shape:
        return False
    return bool(np.allclose(first.ascent, second.ascent, rtol=1e-9, atol=1e-12))


def observe(program: Program, max_paths: int) -> Survey:
    """What a program does on every path."""
    with running(program) as (runner, _):
        return survey(runner, max_paths, 20, lambda what, done, expected: None)


@contextmanager
def running(program: Program) -> Iterator[tuple[CallableRunner, Source]]:
    """What runs a program, and its text."""
    with patch.object(sys, "argv"), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program.text, encoding="utf-8")
        source = read_source(path)
        code = compile(program.text, str(path), "exec")

        def run() -> None:
            sys.argv = [str(path)]
            exec(code, {"__name__": "__main__"})

        yield CallableRunner(run, four_tuple=source.four_tuple), source


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))
