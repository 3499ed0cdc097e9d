"""Runs a training loop as the audit does, in a process of its own."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from eligibility.audit.job import Program
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.trainers import worker
from eligibility.audit.trainers.record import read_record
from eligibility.audit.trainers.verdict import report_of
from eligibility.sandbox import guard_here

# What a loop loads at first, so that its process need not.
for module in ("transformers.models.llama.modeling_llama", "datasets"):
    importlib.import_module(module)
worker.prepare()


def audited(folder: Path, text: str) -> AuditReport:
    """The report, in a process that is forked from this one, where libraries are loaded."""
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            scratch = folder / "scratch"
            scratch.mkdir()
            program = Program(
                str(script), str(script), (), str(scratch), guard_here(), 100.0, 4096, False
            )
            record = worker.run(program, lambda done, expected: None)
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                pipe.write(record.to_line())
        finally:
            os._exit(0)  # whatever happens, it must not go on with the other tests
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        line = pipe.read()
    os.waitpid(child, 0)
    return report_of(read_record(line), "train.py")


def biasing(report: AuditReport) -> set[str]:
    """The conventions that have a bias."""
    return {convention.name for convention in report.conventions if convention.bias}
