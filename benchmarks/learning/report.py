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

from benchmarks.learning.record import EPISODES
from benchmarks.learning.run import ALGORITHMS
from benchmarks.learning.tasks import TASKS
from eligibility.files import write_atomically

RESULTS = Path(__file__).parents[1] / "results" / "learning"
DOCS = Path(__file__).parents[2] / "docs" / "learning"
COLOURS = {"REINFORCE": "#0b69a3", "A2C": "#c05621", "PPO": "#2f855a"}
FEW = 40  # points on the common axis of a picture

INTRODUCTION = f"""\
# Learning curves

Written by `python -m benchmarks.learning.report` from the files in `benchmarks/results/learning/`,
which `python -m benchmarks.learning all` makes; do not edit it.

REINFORCE is `eligibility train ENV` with nothing else: the preset that comes with the package,
seeds from 0. A2C and PPO are Stable-Baselines3's with the settings of rl-baselines3-zoo (the commit
is in the files). All stop by the same rule, the mean of the last 100 training episodes, or at the
same limits of steps and seconds. *Seconds* are of processor time on one thread: a busy machine
lengthens them less than those on the wall. *Greedy* is the mean of {EPISODES} fresh episodes with
the most probable actions. Presets were chosen with seeds of 100 and above, on the same machine, and
not for long.

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
    parts += [section(result) for result in results]
    missing = [name for name in TASKS if name not in {one["environment"] for one in results}]
    if missing:
        parts.append(f"## Not measured yet\n\n{', '.join(missing)}.\n")
    return "".join(parts)


def glance(results: list[dict[str, Any]]) -> str:
    """One row an environment: what each algorithm needed."""
    names = " | ".join(ALGORITHMS)
    rows = [f"| environment | threshold | {names} |\n", "| :-- | --: | --: | --: | --: |\n"]
    for result in results:
        name, goal = result["environment"], result["threshold"]
        cells = [need(runs_of(result, algorithm), goal) for algorithm in ALGORITHMS]
        anchor = f"[{name}](#{name.lower().replace('/', '')})"
        rows.append(f"| {anchor} | {'none' if goal is None else goal} | {' | '.join(cells)} |\n")
    text = """
Seconds of processor time to the threshold (median of the seeds that reached it, and how many did);
where none did or there is no threshold, the last mean return, in brackets.
"""
    return "".join(rows) + text


def need(runs: list[dict[str, Any]], goal: float | None) -> str:
    """A cell of the first table."""
    if not runs:
        return "not run"
    solved = [run["processor_seconds"] for run in runs if run["solved"]]
    if goal is None or not solved:
        return f"({median(runs, 'mean_return'):.4g})"
    return f"{statistics.median(solved):.3g} s ({len(solved)} of {len(runs)})"


def losses(results: list[dict[str, Any]]) -> str:
    """Where it failed or a peer was better: the sentences that the figures make."""
    lines = []
    for result in results:
        ours = runs_of(result, "REINFORCE")
        failed = [run["seed"] for run in ours if not run["solved"]]
        if failed and result["threshold"] is not None:
            seeds = ", ".join(map(str, failed))
            lines.append(
                f"{result['environment']}: {len(failed)} of {len(ours)} seeds ({seeds}) did not "
                "reach the threshold."
            )
        solved = [run["greedy_return"] for run in ours if run["solved"]]
        if solved and statistics.median(solved) < result["threshold"]:
            lines.append(
                f"{result['environment']}: without the draws the policies reach a median of "
                f"{statistics.median(solved):.4g} only; what training rarely met, they get wrong."
            )
        for algorithm in ("A2C", "PPO"):
            theirs = runs_of(result, algorithm)
            if ours and theirs:
                lines += compare(result, algorithm, ours, theirs)
    if not lines:
        return ""
    return "## Where REINFORCE fails or loses\n\n" + "".join(f"- {line}\n" for line in lines) + "\n"


def compare(
    result: dict[str, Any], algorithm: str, ours: list[Any], theirs: list[Any]
) -> Iterator[str]:
    """What of one peer is better than ours."""
    name, goal = result["environment"], result["threshold"]
    own, other = share_solved(ours), share_solved(theirs)
    if goal is None:
        one, two = median(ours, "mean_return"), median(theirs, "mean_return")
        if two > one:
            yield f"{name}: {algorithm} ended at {two:.4g}, REINFORCE at {one:.4g}."
        return
    if other > own:
        yield (
            f"{name}: {algorithm} reached the threshold with {other:.0%} of its seeds, REINFORCE "
            f"with {own:.0%}."
        )
    for field, unit in (("steps", "steps"), ("processor_seconds", "seconds")):
        a = [run[field] for run in ours if run["solved"]]
        b = [run[field] for run in theirs if run["solved"]]
        if a and b and statistics.median(b) < statistics.median(a):
            ratio = statistics.median(a) / statistics.median(b)
            yield f"{name}: {algorithm} needed {ratio:.1f} times fewer {unit}."


def section(result: dict[str, Any]) -> str:
    """One environment: picture, preset, every run."""
    name = result["environment"]
    preset = next((run["preset"] for run in runs_of(result, "REINFORCE")), {})
    options = " ".join(map(written, preset.items()))
    task = TASKS[name]
    goal = "No threshold" if task.threshold is None else f"Threshold {task.threshold:g}"
    load = max(run["load_average"][0] for run in result["runs"])
    sources = "; ".join(f"{key}: {value.source}" for key, value in task.peers.items())
    head = "| algorithm | seed | solved | steps | episodes | seconds | mean return | greedy |\n"
    rows = [head, "| :-- | --: | :-- | --: | --: | --: | --: | --: |\n"]
    rows += [
        f"| {run['algorithm']} | {run['seed']} | {'yes' if run['solved'] else 'no'} | "
        f"{run['steps']:,} | {run['episodes']:,} | {run['processor_seconds']:.1f} | "
        f"{run['mean_return']:.4g} | {greedy(run)} |\n"
        for run in result["runs"]
    ]
    limit = result["seconds_at_most"]
    note = f" {task.note}" if task.note else ""
    return f"""\
## {name}

![{name}: mean of the last 100 episodes over steps]({task.file}.png)

{goal} ({task.meaning}); at most {result["steps_at_most"]:,} steps and {limit:g} s.{note}
Preset: `{options or "the defaults"}`.
{sources}. {result["processor"]}, load of the machine up to {load:g}.

{"".join(rows)}
"""


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


def median(runs: list[dict[str, Any]], field: str) -> float:
    return float(statistics.median(run[field] for run in runs))


def share_solved(runs: list[dict[str, Any]]) -> float:
    return sum(run["solved"] for run in runs) / len(runs)


def picture(result: dict[str, Any]) -> bytes:
    """Mean of the last 100 episodes over steps and over seconds: median, and the range of seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column, label in zip(
        panels, (0, 1), ("environment steps", "seconds of processor time"), strict=True
    ):
        for algorithm, colour in COLOURS.items():
            curves = [np.array(run["curve"]) for run in runs_of(result, algorithm)]
            if curves:
                draw(axes, curves, column, algorithm, colour)
        if result["threshold"] is not None:
            axes.axhline(result["threshold"], color="#c0392b", linewidth=1, linestyle=(0, (5, 3)))
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[0].xaxis.set_major_locator(MaxNLocator(5))
    panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[1].set_xscale("log")
    shortest, longest = panels[1].get_xlim()
    between = (1,) if longest > 1000 * shortest else (1, 2, 5)  # as many as there is room for
    panels[1].xaxis.set_major_locator(LogLocator(subs=between, numticks=8))
    panels[1].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[1].xaxis.set_minor_formatter(NullFormatter())
    panels[0].set_ylabel("mean of the last 100 episodes")
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(result["environment"], x=0.01, ha="left", fontsize=11)
    file = io.BytesIO()
    figure.savefig(file, dpi=110, metadata={"Software": None})
    return file.getvalue()


def draw(axes: Any, curves: list[Any], column: int, label: str, colour: str) -> None:
    """The median over seeds, and their range; a run that has ended keeps its last value."""
    first = min(curve[0, column] for curve in curves)
    last = max(curve[-1, column] for curve in curves)
    scale = np.geomspace if column else np.linspace
    grid = scale(max(first, 1e-3) if column else first, last, FEW)
    values = np.stack([np.interp(grid, curve[:, column], curve[:, 2]) for curve in curves])
    axes.plot(grid, np.median(values, 0), color=colour, linewidth=1.8, label=label)
    axes.fill_between(grid, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)


if __name__ == "__main__":
    main()
