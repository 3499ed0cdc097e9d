"""``eligibility evaluate RUN…``: how good is the policy of a run, or of several seeds together?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eligibility.cli.options import AllowModule, AsJson, Episodes, EpisodeSeed, Stochastic
from eligibility.errors import InvalidValueError
from eligibility.files import check_writable

if TYPE_CHECKING:
    from eligibility.train.evaluation import Evaluation
    from eligibility.train.learner import Reinforce


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, folders of several, or a checkpoint file.", show_default=False
        ),
    ],
    episodes: Episodes = 100,
    seed: EpisodeSeed = None,
    stochastic: Stochastic = False,
    video: Annotated[
        Path | None, typer.Option(help="Also film one episode of the run: .gif, or .mp4.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="Play in this environment instead; its spaces must match.")
    ] = None,
    allow_module: AllowModule = None,
    json_: AsJson = False,
) -> None:
    """Play fresh episodes with trained policies and report the return.

    Each action is the most probable one; then the same episodes are played again with actions
    sampled from the policy, as in training. --stochastic plays only the latter. Runs that differ
    only in their seed are one result. Intervals are 95 %, by percentile bootstrap over the runs and
    the episodes within them; IQM is the mean of the middle half of the runs' means, or of the
    episodes of a single run.
    """
    if video is not None:
        check_writable(video)
    from eligibility.train.comparison import play_runs
    from eligibility.train.learner import Reinforce
    from eligibility.train.record import find_runs, group_runs

    checkpoint = len(runs) == 1 and runs[0].is_file()
    folders = runs if checkpoint else [run for path in runs for run in find_runs(path)]
    load = partial(Reinforce.load, env=env, allow_modules=allow_module or ())
    if video is not None:
        _film(folders, load, video, seed, stochastic)
    groups = {load(folders[0]).config.env: folders} if len(folders) == 1 else group_runs(folders)
    ways = ("sampled",) if stochastic else ("greedy", "sampled")
    results = {
        name: {
            way: play_runs(
                members, episodes, seed, way == "greedy", env=env, allow_modules=allow_module or ()
            )
            for way in ways
        }
        for name, members in groups.items()
    }
    if json_:
        found = [_as_json(groups[name], played) for name, played in results.items()]
        named = [{"name": name, **one} for name, one in zip(groups, found, strict=True)]
        content: Any = found[0] if len(folders) == 1 else {"groups": named}
        sys.stdout.write(json.dumps(content) + "\n")
    for name, played in results.items():
        for way, (evaluation, _) in played.items():
            typer.echo(_sentence(name, way, evaluation), err=json_)
        if not stochastic:
            typer.echo(_difference(*(played[way][0] for way in ways)), err=json_, nl=False)


def _film(
    folders: list[Path],
    load: Callable[[Path], Reinforce],
    video: Path,
    seed: int | None,
    stochastic: bool,
) -> None:
    from eligibility.train.video import check_video, record_video

    if len(folders) > 1:
        raise InvalidValueError(
            "`--video`", f"{len(folders)} runs", "one", "film one run at a time"
        )
    model = load(folders[0])
    check_video(video, model.config.env, model.config.env_kwargs)
    seed = model.config.seed if seed is None else seed
    total = record_video(model, video, seed, deterministic=not stochastic)
    typer.echo(f"filmed an episode of return {total:g} in {video}", err=True)


def _as_json(members: list[Path], played: dict[str, tuple[Evaluation, Any]]) -> dict[str, Any]:
    """The first way of playing, and the other one, if there is one, under its name."""
    (_, (evaluation, returns)), *others = played.items()
    where: dict[str, Any] = {"run": str(members[0])}
    if len(members) > 1:
        where = {"folders": [str(run) for run in members], "run_means": returns.mean(1).tolist()}
    return {**asdict(evaluation), **where} | {way: asdict(found) for way, (found, _) in others}


def _difference(greedy: Evaluation, sampled: Evaluation) -> str:
    """What it means that the two ways of playing differ, if they certainly do."""
    if greedy.confidence_95[0] > sampled.confidence_95[1]:
        return (
            "Drawing the actions costs return: the policy is still undecided where it matters. "
            "Training is judged by drawn actions; train on, or lower --entropy-coef.\n"
        )
    if greedy.confidence_95[1] < sampled.confidence_95[0]:
        return (
            "The most probable actions alone do worse: this policy needs its chance, as where "
            "states look alike. Play it with --stochastic (in Python deterministic=False).\n"
        )
    return ""


def _sentence(name: str, way: str, found: Evaluation) -> str:
    low, high = found.confidence_95
    start, end = found.interquartile_confidence_95
    number = f"{found.runs} runs, " if found.runs > 1 else ""
    return (
        f"{name}, {way}, {number}{found.episodes} episodes: mean return {found.mean_return:.1f} "
        f"(95 % interval {low:.1f} to {high:.1f}), IQM {found.interquartile_mean:.1f} "
        f"({start:.1f} to {end:.1f}), standard deviation {found.standard_deviation:.1f}, "
        f"from {found.minimum:g} to {found.maximum:g}"
    )
