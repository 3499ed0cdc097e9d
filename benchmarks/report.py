"""Writes docs/performance.md from the newest files in benchmarks/results/.

    python -m benchmarks.report

The page holds what the files hold, losses included; a test compares the two. The first section's
file comes from the command, in about four and a half minutes on a quiet machine:

    OMP_NUM_THREADS=1 taskset -c 1 eligibility bench --budget 5 \\
        --out benchmarks/results/logits-$(date +%Y%m%d).json
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.goals import (
    LOSSES,
    OURS,
    YARDSTICKS,
    goals,
    names_in,
    pairs,
    slowdown,
)
from eligibility.files import write_atomically

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

INTRODUCTION = """\
# Performance

Written by `python -m benchmarks.report` from the files in `benchmarks/results/`; do not edit it.
Ratios compare methods that took turns in the same run, so they hold better than milliseconds,
which other programs on the machine lengthen. `eligibility bench` measures the first section on
your machine; the other scripts are in `benchmarks/`.

**On a GPU everything is experimental.** The Triton kernels compile, and their numbers are right in
the interpreter; nothing was timed on a GPU (`python -m benchmarks.triton_kernels` does it).
"""


def main() -> None:
    """Write the page."""
    print(f"written to {write_atomically(PAGE, page(RESULTS))}")


def page(results: Path) -> str:
    """The whole page, from a folder of results: goals and losses first, then every table."""
    newest = {}
    for section in SECTIONS:
        files = sorted(results.glob(section))
        if files:
            newest[section] = json.loads(files[-1].read_text(encoding="utf-8"))
    tables = [SECTIONS[section](result) for section, result in newest.items()]
    return "\n".join([INTRODUCTION, first_look(newest), *tables])


def first_look(newest: dict[str, dict[str, Any]]) -> str:
    """The goals, and every comparison that a peer wins."""
    logits = newest["logits-*.json"]["tables"]
    lost = [row for section, find in LOSSES.items() for row in find(newest[section])]
    return f"""\
## Goals

{table(("goal", "measured", "reached"), goals(logits))}
## Lost

Every comparison on this page in which somebody else needs less time than `eligibility`.
`linear_log_prob` cannot know in its forward pass what its result will be multiplied by, so it
computes the logits a second time: a fourth product.

{table(("", "faster than ours", "ours / theirs"), lost)}"""


def table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown; the first column is text, the others are numbers."""
    heading = list(heading)
    lines = [heading, [":--", *["--:"] * (len(heading) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def over_logits(result: dict[str, Any]) -> str:
    """Milliseconds, ratios, memory, and which goals were reached."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    load = ", ".join(f"{number:.1f}" for number in machine["load_average"])
    noun = "thread" if result["threads"] == 1 else "threads"
    missing = "".join(f"- {name}: {why}.\n" for name, why in result["left_out"].items())
    cases = pairs(result["tables"])
    return f"""\
## Over logits

`-mean(A * log_prob)` and its gradient; in brackets with an entropy bonus. {result["date"]},
{machine["processor"]}, {result["threads"]} {noun}, {result["clock"]}, median of
{rounds(result)} rounds; load of the machine {load}; {versions}.
{roofline(result)}
Milliseconds:

{table(*times(cases))}
How many times as long as `eligibility`:

{table(*slowdowns(cases))}
What bounds the time from below, in milliseconds:

{table(*yardsticks(cases))}
Extra memory at the peak, in units of the logits' own size (of torch's allocator; the gradient
itself is 1):

{table(*peaks(cases))}
Error of the gradient, relative rms against float64:

{table(*errors(cases))}
Below a few thousand logits the time is that of Python calling torch. "An empty node" is an autograd
Function that computes nothing, and `backward()` through it: no Function written in Python can be
faster. `el.reinforce_gradient` gives loss and gradient without a record; its time here includes
`logits.backward(gradient)`.

Large gradients lie in memory that gradients before them left behind ("a copy, new memory" shows
what new pages cost here); `el.release_memory()` gives it back.

Not measured:

{missing}"""


def rounds(result: dict[str, Any]) -> str:
    """How many, over all sizes."""
    found = [one.get("rounds", result["rounds"]) for one in result["tables"]]
    return str(found[0]) if len(set(found)) == 1 else f"{min(found)} to {max(found)}"


def roofline(result: dict[str, Any]) -> str:
    """What the machine can do at most, if that was measured."""
    found = result.get("roofline")
    if found is None:
        return ""
    speeds = ", ".join(
        f"{speed:.0f} GFLOP/s in {dtype}" for dtype, speed in found["matmul_gflop_per_s"].items()
    )
    return (
        f"Roofline, measured in the same run: {found['copy_gb_per_s']:.1f} GB/s read and written "
        f"by a copy; matrix products of {speeds}.\n"
    )


Rows = tuple[list[str], list[list[str]]]


def grid(cases: list[Any], names: list[str], cell: Any) -> Rows:
    """One row a size, one column a name, each cell without and with the entropy bonus."""
    rows = [
        [words, *(f"{cell(plain, name)} [{cell(bonus, name)}]" for name in names)]
        for words, plain, bonus in cases
    ]
    return ["", *names], rows


def times(cases: list[Any]) -> Rows:
    names = [OURS, *names_in(cases, YARDSTICKS)]
    return grid(cases, names, lambda of, name: number(of[name]["milliseconds"]))


def slowdowns(cases: list[Any]) -> Rows:
    names = names_in(cases, YARDSTICKS)
    return grid(cases, names, lambda of, name: f"{slowdown(of, name):.2f}")


def yardsticks(cases: list[Any]) -> Rows:
    names = [name for name in YARDSTICKS if name != OURS]
    return grid(cases, names, lambda of, name: number(of[name]["milliseconds"]))


def peaks(cases: list[Any]) -> Rows:
    names = [name for name in cases[0][1] if cases[0][1][name]["extra_peak"] is not None]
    return grid(cases, names, lambda of, name: f"{of[name]['extra_peak']:.2f}")


def errors(cases: list[Any]) -> Rows:
    names = [name for name in cases[0][1] if cases[0][1][name]["gradient_error"] is not None]
    return grid(cases, names, lambda of, name: f"{of[name]['gradient_error']:.1e}")


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def through_linear(result: dict[str, Any]) -> str:
    """The linear head against the three matrix products that nobody can avoid."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    load = ", ".join(f"{number:.1f}" for number in result["load_average"])
    noun = "thread" if result["threads"] == 1 else "threads"
    parts = [
        f"""\
## Through the linear layer

`-mean(A * log_prob)` of hidden states times an unembedding, and both gradients. The ratio is to the
three bare matrix products, in the same rounds; the peak is that of a process of its own and holds
the two gradients; the error is that of the hidden states' gradient against the same numbers in
float32. {result["date"]}, {result["processor"]}, {result["threads"]} {noun}, process time,
{result["rounds"]} round(s), one where a method takes over three times the products; load of the
machine {load}; {versions}.
"""
    ]
    for of in result["tables"]:
        size = " × ".join(str(of["size"][axis]) for axis in ("tokens", "vocabulary", "features"))
        bonus = ", entropy bonus" if of["entropy_coef"] else ""
        parts.append(f"### {of['dtype']} {size}{bonus}\n")
        rows = [
            [
                row["method"],
                f"{row['seconds']:.2f}",
                f"{row['ratio']:.2f}",
                "" if row["extra_peak_mib"] is None else f"{row['extra_peak_mib']:.0f}",
                f"{row['gradient_error']:.1e}",
            ]
            for row in of["figures"]
        ]
        parts.append(table(("", "seconds", "ratio", "peak MiB", "gradient error"), rows))
        missing = "".join(f"- {name}: {why}.\n" for name, why in of["left_out"].items())
        if missing:
            parts.append(f"Not measured:\n\n{missing}")
    return "\n".join(parts)


def hot_path(result: dict[str, Any]) -> str:
    """Sample, log_prob, backward with the drop-in distributions."""
    rows = [
        [f"{by}: {name}", f"{ratio:.2f}"]
        for by in ("logits", "probs")
        for name, ratio in result[by]["times_as_fast"].items()
    ]
    size = f"{result['states']} states, {result['actions']} actions"
    return f"""\
## Drop-in Categorical, small batches

Construct, sample, `log_prob`, backward for {size}; {result["date"]}, torch {result["torch"]}.
How many times as fast as torch's own:

{table(("", "times as fast"), rows)}{sampling(result)}"""


def sampling(result: dict[str, Any]) -> str:
    """Sample, log_prob and backward by one operation, against others."""
    sizes = result.get("sampling")
    if not sizes:
        return ""
    names = list(next(iter(sizes.values()))["median_microseconds"])
    rows = []
    for size, figures in sizes.items():
        fast = figures["times_as_fast"]
        cells = [
            f"{microseconds:.1f}" + (f" [{fast[name]:.2f}]" if name in fast else "")
            for name, microseconds in figures["median_microseconds"].items()
        ]
        rows.append([size, *cells])
    return f"""
### Sample, log_prob, backward in one operation

`el.categorical_sample` draws and takes log π(a) in one pass. Microseconds from logits to their
gradient, states × actions; in brackets how many times as long as `categorical_sample`; less than 1
is a loss for us:

{table(("", *names), rows)}"""


def per_sample(result: dict[str, Any]) -> str:
    """Every weight's eligibility for every sample."""
    rows = [
        [
            f"{row['network']}, {row['task']}",
            row["method"],
            f"{row['ms']:.1f}",
            f"{row['time_ratio']:.2f}",
            f"{row['memory_ratio']:.2f}",
        ]
        for row in result["table"]
    ]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return f"""\
## Per-sample eligibilities

{result["samples"]} samples; {result["date"]}, {result["machine"]["processor"]},
{result["machine"]["threads"]} thread(s), {versions}. Time and peak memory relative to torch.func:

{table(("", "method", "ms", "time", "memory"), rows)}"""


def cartpole(result: dict[str, Any]) -> str:
    """The trainer on one core."""
    names = ("training_seconds_median", "training_seconds_worst", "process_seconds_median")
    rows = [[name.replace("_", " "), f"{result[name]:.2f}"] for name in names]
    rows.append(["lowest greedy return of 100 episodes", f"{result['greedy_return_lowest']:.1f}"])
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return f"""\
## CartPole-v1 to a mean return of 475

Solved {result["solved"]}, one core of {result["machine"]["processor"]}, seconds of the processor;
{result["date"]}, {versions}.

{table(("", "value"), rows)}"""


def cartpole_peers(result: dict[str, Any]) -> str:
    """Everybody under one stopwatch."""
    trainers = result["trainers"]
    ours = trainers[OURS]["seconds_median"]
    rows = []
    for name, trainer in trainers.items():
        seconds, steps = trainer["seconds_median"], trainer["steps_median"]
        ratio = f"{seconds / ours:.0f}" if seconds and ours else "–"
        rows.append(
            [
                name,
                f"{trainer['solved']} of {trainer['seeds']}",
                f"{seconds:.2f}" if seconds else "–",
                ratio,
                f"{steps:,.0f}" if steps else "–",
            ]
        )
    errors = [(name, error) for name, of in trainers.items() for error in of["errors"]]
    failed = "".join(f"\nCould not run: {name} ({error}).\n" for name, error in errors)
    limits = result["limits"]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    heading = ("", "solved", "seconds", "times ours", "steps")
    return f"""\
## CartPole-v1: others, by the same rule

Until the mean of the last 100 training episodes is {limits["goal"]:g}, in turns on one core of
{result["machine"]["processor"]}; medians of the runs that were solved within
{limits["seconds"]:g} s and {limits["steps"]:,} steps; seconds from the first reset, without
imports. Each with the settings that its own project gives for CartPole; {result["date"]},
{versions}.

{table(heading, rows)}{failed}"""


def rollout_overhead(result: dict[str, Any]) -> str:
    """What a rollout costs beyond its parts."""
    rows = [
        [
            f"{case['env']}, {case['environments']} side by side",
            *(f"{case[f'{part}_microseconds']:.0f}" for part in ("rollout", "environment")),
            f"{case['network_microseconds']:.0f}",
            f"{case['overhead']:.0%}",
        ]
        for case in result["cases"]
    ]
    heading = ("microseconds a step of all", "rollout", "environment", "network", "overhead")
    return f"""\
## Rollouts: what environment and network leave

Rollouts, and the same environment steps and network calls alone, in turns on one core of
{result["machine"]["processor"]}; {result["date"]}. The goal is an overhead below 20 %.

{table(heading, rows)}"""


SECTIONS = {  # newest file of this name -> its part of the page, in this order
    "logits-*.json": over_logits,
    "linear.json": through_linear,
    "hot_path*.json": hot_path,
    "per_sample_eligibilities*.json": per_sample,
    "cartpole.json": cartpole,
    "cartpole_peers.json": cartpole_peers,
    "rollout_overhead.json": rollout_overhead,
}

if __name__ == "__main__":
    main()
