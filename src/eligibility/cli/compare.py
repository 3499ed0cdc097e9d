"""``eligibility compare A B``: is the second better than the first?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eligibility.cli.options import AllowModule, AsJson, Episodes, EpisodeSeed, Stochastic
from eligibility.cli.plot import check_picture
from eligibility.errors import InvalidValueError

if TYPE_CHECKING:
    from rich.table import Table

    from eligibility.train.comparison import Comparison


def compare(
    a: Annotated[Path, typer.Argument(help="A run folder, or a folder of several seeds.")],
    b: Annotated[
        Path, typer.Argument(help="The run folder, or folder of several seeds, to compare with A.")
    ],
    episodes: Episodes = 100,
    seed: EpisodeSeed = None,
    stochastic: Stochastic = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the comparison, as .png.")] = None,
    allow_module: AllowModule = None,
    json_: AsJson = False,
) -> None:
    """Play fresh episodes with two runs, or two groups of seeds, and test whether B beats A.

    The probability of improvement is that a run of B, drawn at random, beats one of A (an episode,
    where each is a single run). Intervals are 95 %, by percentile bootstrap over the runs and the
    episodes within them.
    """
    if plot is not None:
        check_picture("--plot", plot)
    from rich.console import Console

    from eligibility.files import write_atomically
    from eligibility.train.comparison import compare as compare_returns
    from eligibility.train.comparison import play_runs
    from eligibility.train.curve import draw_comparison
    from eligibility.train.record import find_runs, read_run_config

    folders = [find_runs(path) for path in (a, b)]
    tasks = {read_run_config(run).env for group in folders for run in group}
    if len(tasks) > 1:
        raise InvalidValueError(
            "the runs",
            " and ".join(sorted(tasks)),
            "one environment",
            "compare runs of the same environment",
        )
    of_a, of_b = (
        play_runs(group, episodes, seed, not stochastic, allow_modules=allow_module or ())[1]
        for group in folders
    )
    result = compare_returns(of_a, of_b, 0 if seed is None else seed)
    if plot is not None:
        names = (a.name or str(a), b.name or str(b))
        write_atomically(plot, draw_comparison(names, (of_a, of_b), result))
    if json_:
        sys.stdout.write(json.dumps({"a": str(a), "b": str(b), "result": asdict(result)}) + "\n")
    console = Console(stderr=json_)
    for letter, path in (("A", a), ("B", b)):
        typer.echo(f"{letter}: {path}", err=json_)
    console.print(_table(result))
    typer.echo(_verdict(result), err=json_)
    if plot is not None:
        typer.echo(f"drawn in {plot}", err=json_)


def _table(result: Comparison) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("")
    for name in ("runs", "episodes", "mean", "95 % interval", "IQM", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for letter, found in (("A", result.a), ("B", result.b)):
        low, high = found.confidence_95
        start, end = found.interquartile_confidence_95
        table.add_row(
            letter, str(found.runs), str(found.episodes),
            f"{found.mean_return:.1f}", f"{low:.1f} to {high:.1f}",
            f"{found.interquartile_mean:.1f}", f"{start:.1f} to {end:.1f}",
        )  # fmt: skip
    return table


def _verdict(result: Comparison) -> str:
    change, share = result.interquartile_difference, result.probability_of_improvement
    if not result.is_clear:
        answer = "no clear difference"
    else:
        answer = "B is better" if change.value > 0 else "A is better"
    return (
        f"{answer}: IQM of B minus A {change.value:+.1f} "
        f"({change.low:+.1f} to {change.high:+.1f}), "
        f"B beats A with probability {share.value:.2f} ({share.low:.2f} to {share.high:.2f})"
    )
