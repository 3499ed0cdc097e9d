"""A line on standard error that says how far the audit is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eligibility.audit.running import survey


@contextmanager
def shown_progress() -> Iterator[survey.Progress]:
    """A progress function that draws a bar if standard error is a terminal, and nothing else."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("starting", total=None)

        def show(what: str, done: int, expected: int) -> None:
            bar.update(task, description=what, completed=done, total=expected)

        yield show
