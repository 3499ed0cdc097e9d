"""``eligibility evaluate RUN``: how good is the policy of a run?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder, or a checkpoint file.")],
    episodes: Annotated[int, typer.Option(min=1, help="Fresh episodes to play.")] = 100,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the episodes. Default: the run's.")
    ] = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Draw the actions instead of taking the best.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on standard output.")
    ] = False,
) -> None:
    """Play fresh episodes with a trained policy and report the return.

    Each action is the most probable one, unless --stochastic. The interval is the 95 % one of the
    mean, by percentile bootstrap.
    """
    from rich.console import Console

    from eligibility.train.learner import Reinforce

    model = Reinforce.load(run)
    result = model.evaluate(episodes, seed, deterministic=not stochastic)
    if json_:
        sys.stdout.write(json.dumps({**asdict(result), "run": str(run)}) + "\n")
    low, high = result.confidence_95
    Console(stderr=json_).print(
        f"{model.config.env}, {result.episodes} episodes: mean return {result.mean_return:.1f} "
        f"(95 % interval {low:.1f} to {high:.1f}), standard deviation "
        f"{result.standard_deviation:.1f}, from {result.minimum:g} to {result.maximum:g}",
        highlight=False,
        soft_wrap=True,
    )
