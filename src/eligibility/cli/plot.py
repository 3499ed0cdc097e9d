"""``eligibility plot RUN…``: learning curves of one or several runs in one picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from eligibility.errors import InvalidValueError
from eligibility.files import check_writable
from eligibility.train.environments import missing


def check_picture(option: str, path: Path, formats: tuple[str, ...] = (".png",)) -> None:
    """Raise unless one of the ``formats`` can be drawn and written to ``path``."""
    if path.suffix not in formats:
        wanted = f"a name that ends in {', '.join(formats)}"
        raise InvalidValueError(f"`{option}`", repr(path.name), wanted, "choose another name")
    if importlib.util.find_spec("matplotlib") is None:
        raise missing("matplotlib")
    check_writable(path)


def plot(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders of several.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("curves.png"),
) -> None:
    """Draw learning curves, one line for each environment and set of options.

    Runs that differ only in their seed become one line, the mean over the seeds, with a band from
    the worst to the best.
    """
    check_picture("--out", out)
    from eligibility.files import write_atomically
    from eligibility.train.curve import draw_groups
    from eligibility.train.record import find_runs, read_groups

    groups = read_groups([run for path in runs for run in find_runs(path)])
    title = "REINFORCE, mean return of the last 100 episodes"
    write_atomically(out, draw_groups(groups, title))
    for name, members in groups.items():
        final = sum(run[-1].mean_return for run in members) / len(members)
        number = f"{len(members)} run{'' if len(members) == 1 else 's'}"
        typer.echo(f"{name}: {number}, mean return {final:.1f} at the end")
    typer.echo(f"drawn in {out}")
