"""How long does it take to solve CartPole-v1? N seeds, each in a fresh process, on one core.

    python -m benchmarks.cartpole            # 30 seeds, about 4 minutes

"Solved" is: the mean of the last 100 training episodes reaches 475. Training seconds count from
the first reset to that moment; process seconds are all of `eligibility train`, with the run folder
written. Both are of the processor, all on one thread, so that other work on the machine lengthens
them little. Afterwards each policy plays 100 fresh episodes greedily. The result,
with date, machine and versions, goes to benchmarks/results/cartpole.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# `eligibility` with a clock of the processor in place of that on the wall.
PROGRAM = """
import runpy, time
time.perf_counter = time.process_time
runpy.run_module("eligibility", run_name="__main__", alter_sys=True)
"""
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the seeds one after the other, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30, help="how many seeds, from 0")
    parser.add_argument("--core", type=int, default=None, help="the core; default: the last one")
    parser.add_argument("--out", type=Path, default=RESULTS / "cartpole.json")
    arguments = parser.parse_args()
    core = pin(arguments.core)
    print(
        f"{'seed':>4} {'solved':>6} {'training s':>10} {'process s':>9} {'steps':>9} {'greedy':>7}"
    )
    runs = []
    for seed in range(arguments.seeds):
        run = measure(seed)
        runs.append(run)
        print(
            f"{seed:>4} {run['solved']!s:>6} {run['training_seconds']:>10.3f} "
            f"{run['process_seconds']:>9.2f} {run['steps']:>9,} {run['greedy_return']:>7.1f}",
            flush=True,
        )
    summary = summarise(runs)
    for name, value in summary.items():
        print(f"{name:>24}  {value}")
    now = datetime.now(timezone.utc)
    record = {"date": f"{now:%Y-%m-%d %H:%M} UTC", **machine(core), **summary, "runs": runs}
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written to {arguments.out}")


def pin(core: int | None) -> int | None:
    """Keep this process and its children on one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {core})
    return core


def measure(seed: int) -> dict[str, Any]:
    """One run of the command line, and a greedy evaluation of what it left."""
    command = [sys.executable, "-c", PROGRAM]
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        train = [*command, "train", "CartPole-v1", "--seed", str(seed), "--stop-at", "475"]
        start = processor_seconds()
        result = read_json([*train, "--out", run, "--json"])
        seconds = processor_seconds() - start
        greedy = read_json([*command, "evaluate", run, "--json"])
    del result["run"]
    return {
        "seed": seed,
        **result,
        "process_seconds": round(seconds, 3),
        "greedy_return": greedy["mean_return"],
    }


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_json(command: list[str]) -> Any:
    """What a command prints on standard output; its errors stop the benchmark."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, the worst, and how many were solved."""
    training = [run["training_seconds"] for run in runs]
    process = [run["process_seconds"] for run in runs]
    return {
        "solved": f"{sum(run['solved'] for run in runs)} of {len(runs)}",
        "training_seconds_median": round(statistics.median(training), 3),
        "training_seconds_worst": round(max(training), 3),
        "process_seconds_median": round(statistics.median(process), 3),
        "process_seconds_worst": round(max(process), 3),
        "greedy_return_lowest": min(run["greedy_return"] for run in runs),
    }


def machine(core: int | None, python: str = sys.executable) -> dict[str, Any]:
    """What the figures were measured on; versions are those that ``python`` has."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "machine": {
            "processor": models[0] if models else platform.processor(),
            "cores": os.cpu_count(),
            "pinned_to_core": core,
            "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
            "system": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            **versions(python),
        },
    }


def versions(python: str) -> dict[str, str]:
    """Of the packages that matter and that an interpreter has."""
    names = "eligibility torch gymnasium numpy stable_baselines3 tianshou envpool"
    program = (
        "import json; from importlib.metadata import version, packages_distributions as known\n"
        f"print(json.dumps({{n: version(n) for n in '{names}'.split() if n in known()}}))"
    )
    found: dict[str, str] = read_json([python, "-c", program])
    return found


if __name__ == "__main__":
    main()
