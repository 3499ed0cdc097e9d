"""``eligibility sweep ENV``: the same training with several seeds, side by side."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from eligibility.cli.options import (
    AllowModule,
    config_options,
    flag,
    given,
    option,
    parameter,
    take_signature,
)
from eligibility.cli.search import Search
from eligibility.cli.seeds import Seeds, read_seeds
from eligibility.errors import InvalidValueError
from eligibility.scalars import check_count
from eligibility.train.config import Config
from eligibility.train.config_file import read_trusted


def sweep(
    env: str | None,
    *,
    seeds: str | None,
    jobs: int | None,
    search: int | None,
    over: list[str] | None,
    config: Path | None,
    out: Path | None,
    allow_module: list[str] | None,
    json_: bool,
    **options: Any,
) -> int:
    """Train with several seeds in parallel, each in its own process and run folder.

    Run the same command again to continue. It keeps finished seeds, resumes stopped ones and
    retries failed ones. A failed seed does not stop the others, but the exit status is then 1. The
    folder also receives summary.json and curves.png. evaluate, plot and compare take the whole
    folder.

    With --search each trial is such a sweep, with options that Optuna proposes; best.json is then
    a --config of the best.
    """
    chosen = read_seeds("5" if seeds is None else seeds)
    options = given(options)
    if config is not None:
        options = {**read_trusted(config, env, allow_module or ()), **options}
    env = options.pop("env", env)
    options.pop("seed", None)
    if env is None:
        raise InvalidValueError(
            "the command", "no ENV", "the id of an environment", "eligibility sweep CartPole-v1"
        )
    whole = Config.from_options(env, options)
    if jobs is not None and jobs < 1:
        raise InvalidValueError("`--jobs`", str(jobs), "at least 1", "choose a larger one")
    folder = out or Path("runs") / ("sweep-" + re.sub(r"[^\w.-]+", "-", env))
    _check_trainable(whole)
    if search is not None:
        return _search(
            Search(folder, env, options, over or (), chosen, allow_module or ()),
            search,
            jobs,
            json_,
        )
    if over:
        raise InvalidValueError("`--over`", "no --search", "one", "add --search 20")
    runs = Seeds(folder, whole, chosen, allow_module or ())
    summary = runs.run(jobs)
    if json_:
        sys.stdout.write(json.dumps(summary) + "\n")
    report(summary, folder, to_stderr=json_)
    if runs.stopped:
        return 130
    return 1 if summary["failed"] else 0


def _search(trials: Search, number: int, jobs: int | None, json_: bool) -> int:
    """Make that many trials, and report the best."""
    check_count(number, "--search")
    found = trials.run(number, jobs)
    if json_:
        sys.stdout.write(json.dumps(found) + "\n")
    if found["best"] is not None:
        chosen = ", ".join(f"{name} {value}" for name, value in found["best"]["options"].items())
        text = f"best of {len(found['trials'])} trials: {found['best']['value']:.2f} by {chosen}"
        typer.echo(f"{text}; train --config {trials.folder / 'best.json'}", err=json_)
    if trials.stopped:
        return 130
    return 0 if found["best"] is not None else 1


def _check_trainable(config: Config) -> None:
    """Raise what every one of the runs would raise before its first step."""
    from eligibility.train.learner import Reinforce
    from eligibility.train.run_folder import check_packages

    check_packages()
    Reinforce(**asdict(config))


def report(summary: dict[str, Any], folder: Path, to_stderr: bool) -> None:
    """The summary in two lines."""
    finished, failed = summary["finished"], summary["failed"]
    text = f"{summary['config']['env']}: {len(finished)} seeds finished, {summary['solved']} solved"
    if finished:
        low, high = summary["interquartile_confidence_95"]
        text += (
            f"; last 100 training episodes: IQM {summary['interquartile_mean']:.1f} "
            f"(95 % interval {low:.1f} to {high:.1f}); training seconds: median "
            f"{summary['median_seconds']:.2f}, worst {summary['worst_seconds']:.2f}"
        )
    if failed:
        text += f"; failed: {', '.join(str(one['seed']) for one in failed)}"
    typer.echo(text, err=to_stderr)
    typer.echo(f"everything is in {folder}", err=to_stderr)


OWN = (
    option(
        "seeds", str, "Number of seeds, such as 3, or a list, such as 0-9 or 0,3,5-7. Default: 5."
    ),
    option(
        "jobs", int, "Maximum number of processes at a time. Default: the number of processors."
    ),
    option("search", int, "Number of Optuna trials; requires --over."),
    option(
        "over",
        list[str],
        "An option to search over: NAME=LOW..HIGH, on a logarithmic scale if both are above 0; or "
        "NAME=VALUE, once for each choice. Repeat for more options.",
    ),
    option(
        "config", Path, "Options from a YAML, TOML or JSON file; those given here take precedence."
    ),
    option("out", Path, "Folder of the runs. Default: runs/sweep-ENV."),
    parameter("allow_module", AllowModule, None),
    flag(
        "json_",
        "--json",
        "Print the summary as JSON on standard output, everything else on stderr.",
    ),
)
take_signature(sweep, [*config_options(without=("seed",)), *OWN])
