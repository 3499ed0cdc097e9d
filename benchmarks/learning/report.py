"""Writes docs/learning/ from benchmarks/results/learning/: the page, and a picture each.

    python -m benchmarks.learning.report

The page holds what the files hold, failures included; a test compares the two.
"""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.record import FIRST_LOOK, GROWTH
from benchmarks.learning.run import ALGORITHMS, as_json
from benchmarks.learning.tasks import TASKS, Task
from eligibility.files import write_atomically
from eligibility.train.config import Config
from eligibility.train.statistics import interquartile_mean, interval

RESULTS = Path(__file__).parents[1] / "results" / "learning"
DOCS = Path(__file__).parents[2] / "docs" / "learning"
COLOURS = {"REINFORCE": "#0b69a3", "A2C": "#c05621", "PPO": "#2f855a"}
# How the threshold may be reached, and the return of that kind at the end of a run.
MEASURES = {"greedy": "By the greedy policy", "training": "By the mean of training"}
RETURNS = {"greedy": "greedy_return", "training": "mean_return"}
FEW = 40  # points on the common axis of a picture

INTRODUCTION = f"""\
# Learning curves

Written by `python -m benchmarks.learning.report` from the files in `benchmarks/results/learning/`,
which `python -m benchmarks.learning all` makes; do not edit it.

REINFORCE is `eligibility train ENV` with nothing else. A2C and PPO are Stable-Baselines3's with the
settings of rl-baselines3-zoo (the commit is in the files). The seeds count from 9101; no option was
chosen with one of these. A run ends when both the mean of the last 100 training episodes and the
greedy policy, the one of the most probable actions, have reached the threshold, or at the same
limits of steps and seconds. *Seconds* are of processor time on one thread, a busy machine lengthens
them less than those on the wall, and the clock stands still while the greedy policy is looked at:
after {FIRST_LOOK} s, and then whenever the seconds have grown by {GROWTH - 1:.0%}, over 20 episodes
(100 on Taxi, 200 on FrozenLake; exactly on Blackjack). In square brackets: 95 %
bootstrap intervals over seeds; one seed has none.

"""


def main() -> None:
    """Write the page and the pictures."""
    results = read(RESULTS)
    for result in results:
        name = f"{TASKS[result['environment']].file}.png"
        write_atomically(DOCS / name, picture(result))
    print(f"written to {write_atomically(DOCS / 'README.md', page(results))}")


def read(folder: Path) -> list[dict[str, Any]]:
    """The files, in the order of the tasks."""
    paths = [folder / f"{task.file}.json" for task in TASKS.values()]
    return [json.loads(path.read_text("utf-8")) for path in paths if path.exists()]


def page(results: list[dict[str, Any]]) -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## At a glance\n\n", glance(results), "\n", losses(results)]
    return "".join([*parts, *map(section, results)])


def glance(results: list[dict[str, Any]]) -> str:
    """A table for each measure: one row an environment, what each algorithm needed."""
    measured = {result["environment"]: result["runs"] for result in results}
    parts = []
    for measure, title in MEASURES.items():
        names = " | ".join(ALGORITHMS)
        parts.append(f"**{title}**\n\n| environment | threshold | {names} |\n")
        parts.append("| :-- | --: | --: | --: | --: |\n")
        for name, task in TASKS.items():
            runs = measured.get(name, [])
            cells = [need(task, runs, algorithm, measure) for algorithm in ALGORITHMS]
            shown = f"[{name}](#{name.lower().replace('/', '')})" if runs else name
            goal = "none" if task.threshold is None else f"{task.threshold:g}"
            parts.append(f"| {shown} | {goal} | {' | '.join(cells)} |\n")
        parts.append("\n")
    text = """\
Interquartile mean, over seeds, of the seconds to the threshold, and how many seeds reached it; one
that did not counts with the seconds it was given, hence ≥. Where none did, or there is no
threshold: the return at the end, in parentheses.
"""
    return "".join(parts) + text


def need(task: Task, runs: list[dict[str, Any]], algorithm: str, measure: str) -> str:
    """A cell of the first tables."""
    runs = [run for run in runs if run["algorithm"] == algorithm]
    if not runs:
        return "not run" if algorithm in ("REINFORCE", *task.peers) else "—"
    reached = [run for run in runs if run[measure]]
    if not reached:
        ends = [run[RETURNS[measure]] for run in runs if run[RETURNS[measure]] is not None]
        return f"({over_seeds(ends, '')})" if ends else "not played"
    seconds = [(run[measure] or {"seconds": run["processor_seconds"]})["seconds"] for run in runs]
    at_least = "≥ " if len(reached) < len(runs) else ""
    return f"{at_least}{over_seeds(seconds, ' s')}, {len(reached)} of {len(runs)}"


def over_seeds(values: list[float], unit: str) -> str:
    """Interquartile mean and interval; of one run, the value."""
    if len(values) == 1:
        return f"{values[0]:.3g}{unit}"
    found = interval(interquartile_mean, np.array(values)[:, None], seed=0)
    return f"{found.value:.3g}{unit} [{found.low:.3g}, {found.high:.3g}]"


def losses(results: list[dict[str, Any]]) -> str:
    """Where it failed or a peer was better: the sentences that the figures make."""
    lines = [line for result in results for line in lost(result)]
    if not lines:
        return ""
    return "## Where REINFORCE fails or loses\n\n" + "".join(f"- {line}\n" for line in lines) + "\n"


def lost(result: dict[str, Any]) -> Iterator[str]:
    """What is worse than it should be on one environment."""
    name, ours = result["environment"], runs_of(result, "REINFORCE")
    if not ours:
        return
    for measure, title in MEASURES.items():
        failed = [str(run["seed"]) for run in ours if not run[measure]]
        played = [run for run in ours if run[RETURNS[measure]] is not None]
        if result["threshold"] is not None and failed and played:
            yield (
                f"{name}, {title.lower()}: {len(failed)} of {len(ours)} seeds "
                f"({', '.join(failed)}) did not reach the threshold."
            )
        for algorithm in ("A2C", "PPO"):
            theirs = runs_of(result, algorithm)
            if theirs and played:
                yield from compare(name, title, measure, algorithm, played, theirs)


def compare(
    name: str, title: str, measure: str, algorithm: str, ours: list[Any], theirs: list[Any]
) -> Iterator[str]:
    """What of one peer is better than ours."""
    own, other = share_reached(ours, measure), share_reached(theirs, measure)
    if other > own:
        yield (
            f"{name}, {title.lower()}: {algorithm} reached the threshold with {other:.0%} of its "
            f"seeds, REINFORCE with {own:.0%}."
        )
    if not own and not other:
        one, two = (median([run[RETURNS[measure]] for run in runs]) for runs in (ours, theirs))
        if two > one:
            ends = f"{algorithm} ended at {two:.4g}, REINFORCE at {one:.4g}"
            yield f"{name}, {title.lower()}: {ends}."
    for unit in ("steps", "seconds"):
        a, b = ([run[measure][unit] for run in runs if run[measure]] for runs in (ours, theirs))
        if a and b and median(b) < median(a):
            ratio = median(a) / median(b)
            yield f"{name}, {title.lower()}: {algorithm} needed {ratio:.1f} times fewer {unit}."


def section(result: dict[str, Any]) -> str:
    """One environment: picture, options, every run."""
    name = result["environment"]
    task, ours = TASKS[name], runs_of(result, "REINFORCE")
    defaults = as_json(Config(name))
    used = ours[0]["config"] if ours else {}
    options = {key: value for key, value in used.items() if value != defaults.get(key)}
    flags = f"`{' '.join(map(written, options.items()))}`" if options else "as for all"
    goal = "No threshold" if task.threshold is None else f"Threshold {task.threshold:g}"
    load = max(run["load_average"][0] for run in result["runs"])
    sources = "; ".join(f"{key}: {value.source}" for key, value in task.peers.items())
    sources = f"{sources}. " if sources else ""
    head = "| algorithm | seed | greedy reached | training reached | steps | episodes | seconds "
    rows = [f"{head}| mean return | greedy |\n", "| :-- |" + " --: |" * 8 + "\n"]
    rows += [
        f"| {run['algorithm']} | {run['seed']} | {when(run['greedy'])} | {when(run['training'])} | "
        f"{run['steps']:,} | {run['episodes']:,} | {run['processor_seconds']:.1f} | "
        f"{run['mean_return']:.4g} | {greedy(run)} |\n"
        for run in result["runs"]
    ]
    limit = result["seconds_at_most"]
    note = f" {task.note}" if task.note else ""
    return f"""\
## {name}

![{name}: return over seconds, in training and of the greedy policy]({task.file}.png)

{goal} ({task.meaning}); at most {result["steps_at_most"]:,} steps and {limit:g} s.{note}
Options: {flags}.
{sources}{result["processor"]}, load of the machine up to {load:g}.

{"".join(rows)}
"""


def when(reached: dict[str, float] | None) -> str:
    """Seconds and steps to the threshold."""
    return f"{reached['seconds']:.3g} s, {reached['steps']:,}" if reached else "no"


def written(option: tuple[str, Any]) -> str:
    """An option as the command line takes it."""
    name, value = option
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    if isinstance(value, list):
        value = ",".join(map(str, value)) or '""'
    return f"{flag} {value}"


def greedy(run: dict[str, Any]) -> str:
    return "not played" if run["greedy_return"] is None else f"{run['greedy_return']:.4g}"


def runs_of(result: dict[str, Any], algorithm: str) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if run["algorithm"] == algorithm]


def median(values: list[float]) -> float:
    return float(statistics.median(values))


def share_reached(runs: list[dict[str, Any]], measure: str) -> float:
    return sum(run[measure] is not None for run in runs) / len(runs)


def picture(result: dict[str, Any]) -> bytes:
    """Training and greedy return over seconds: the median of the seeds, and their range."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, field, title in zip(
        panels, ("curve", "greedy_curve"), reversed(MEASURES.values()), strict=True
    ):
        for algorithm, colour in COLOURS.items():
            runs = runs_of(result, algorithm)
            curves = [np.array(run[field]) for run in runs if run[field]]
            if curves:
                draw(axes, curves, algorithm, colour)
        if result["threshold"] is not None:
            axes.axhline(result["threshold"], color="#c0392b", linewidth=1, linestyle=(0, (5, 3)))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("seconds of processor time")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[0].set_xscale("log")
    shortest, longest = panels[0].get_xlim()
    between = (1,) if longest > 1000 * shortest else (1, 2, 5)  # as many as there is room for
    panels[0].xaxis.set_major_locator(LogLocator(subs=between, numticks=8))
    panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].xaxis.set_minor_formatter(NullFormatter())
    panels[0].set_ylabel("return")
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(result["environment"], x=0.01, ha="left", fontsize=11)
    file = io.BytesIO()
    figure.savefig(file, dpi=110, metadata={"Software": None})
    return file.getvalue()


def draw(axes: Any, curves: list[Any], label: str, colour: str) -> None:
    """The median over seeds, and their range; a run that has ended keeps its last value."""
    first = min(curve[0, 1] for curve in curves)
    last = max(curve[-1, 1] for curve in curves)
    grid = np.geomspace(max(first, 1e-3), last, FEW)
    values = np.stack([np.interp(grid, curve[:, 1], curve[:, 2]) for curve in curves])
    axes.plot(grid, np.median(values, 0), color=colour, linewidth=1.8, label=label)
    axes.fill_between(grid, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)


if __name__ == "__main__":
    main()
