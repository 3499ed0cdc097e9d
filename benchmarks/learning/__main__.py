"""python -m benchmarks.learning ENV … --seeds 5

Trains REINFORCE as it comes, and Stable-Baselines3's A2C and PPO with the zoo's settings, on each
of the environments (``all``: on all that end), until both the mean of the last 100 training
episodes and the greedy policy reach the threshold, or until a limit. Each run is written to
benchmarks/results/learning/ENV.json when it ends; those that are there already are not repeated,
so it can be done in pieces (``--minutes 30`` starts no run after half an hour), unless the options
that this package trains with have changed. Afterwards: python -m benchmarks.learning.report

Pong takes hours: train it by `eligibility train eligibility/Pong-v0 --out RUN`, go on with it by
`eligibility train --resume RUN`, and put it among the results by
python -m benchmarks.learning eligibility/Pong-v0 --take RUN

Needs the extras train, box2d, mujoco and minigrid, and Stable-Baselines3. The seconds are of
processor time, on one thread. All of it takes about {hours:.0f} hours at most; --list says what
each environment may take. The seeds count from {FIRST}; no option was chosen with one of these.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import time
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.learning.run import ALGORITHMS, is_current, of_folder
from benchmarks.learning.tasks import TASKS, Task
from benchmarks.learning.zoo import ZOO_COMMIT
from eligibility.files import write_atomically

RESULTS = Path(__file__).parents[1] / "results" / "learning"
FIRST = 9101
PACKAGES = ("eligibility", "torch", "gymnasium", "numpy", "stable-baselines3", "mujoco")


def main() -> None:
    """Do what the command line asks for."""
    arguments = parse()
    if arguments.list:
        for task in TASKS.values():
            what = (
                "by hand, see --take" if task.by_hand else f"at most {task.seconds:>5.0f} s a run"
            )
            print(f"{task.env:<26} {what}")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.take:
        take(TASKS[arguments.env[0]], arguments)
        return
    short = [name for name, task in TASKS.items() if not task.by_hand]
    names = short if arguments.env == ["all"] else arguments.env
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(FIRST, FIRST + arguments.seeds):
        for name in names:
            for algorithm in arguments.algorithm or ALGORITHMS:
                if time.monotonic() < end:
                    measure(TASKS[name], algorithm, seed, arguments.out)


def parse() -> argparse.Namespace:
    """The options."""
    short = [task for task in TASKS.values() if not task.by_hand]
    seconds = sum(task.seconds * 5 * (1 + len(task.peers)) for task in short)
    text = str(__doc__).format(hours=seconds / 3600, FIRST=FIRST)
    parser = argparse.ArgumentParser(
        "python -m benchmarks.learning",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*TASKS, "all"]
    parser.add_argument("env", nargs="*", default=["all"], metavar="ENV", help=", ".join(names))
    parser.add_argument("--seeds", type=int, default=5, help=f"how many, from {FIRST}")
    parser.add_argument("--algorithm", action="append", choices=ALGORITHMS, help="default: all")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no new run after this time"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument(
        "--take", type=Path, metavar="RUN", help="take the run folder of `eligibility train ENV`"
    )
    parser.add_argument("--list", action="store_true", help="what each may take, and stop")
    arguments = parser.parse_args()
    for name in arguments.env:
        if name not in names:
            parser.error(f"no environment {name!r}; there are {', '.join(names)}")
    return arguments


def take(task: Task, arguments: argparse.Namespace) -> None:
    """Put the run of a folder among the results, in place of an older one of its seed."""
    path = arguments.out / f"{task.file}.json"
    results = json.loads(path.read_text("utf-8")) if path.exists() else header(task)
    run = {"algorithm": "REINFORCE", **surroundings(), **of_folder(task, arguments.take)}
    others = [other for other in results["runs"] if other["seed"] != run["seed"]]
    write_atomically(path, written({**results, "runs": [*others, run]}))


def measure(task: Task, algorithm: str, seed: int, folder: Path) -> None:
    """Make one run, if it is missing."""
    if algorithm != "REINFORCE" and algorithm not in task.peers:
        return
    path = folder / f"{task.file}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text("utf-8")) if path.exists() else header(task)
    results["runs"] = [run for run in results["runs"] if is_current(run, task)]
    if any((run["algorithm"], run["seed"]) == (algorithm, seed) for run in results["runs"]):
        return
    made = ALGORITHMS[algorithm](task, seed)
    run = {"algorithm": algorithm, "seed": seed, **surroundings(), **made}
    runs = [*results["runs"], run]
    order = list(ALGORITHMS)
    runs.sort(key=lambda one: (order.index(one["algorithm"]), one["seed"]))
    write_atomically(path, written({**results, "runs": runs}))
    print(
        f"{task.env} {algorithm} seed {seed}: training {run['training']}, greedy {run['greedy']}; "
        f"{run['steps']:,} steps, {run['processor_seconds']} s, mean {run['mean_return']}, "
        f"greedy {run['greedy_return']}",
        flush=True,
    )
    gc.collect()


def header(task: Task) -> dict[str, Any]:
    """What all runs of an environment have in common."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "environment": task.env,
        "threshold": task.threshold,
        "steps_at_most": task.steps,
        "seconds_at_most": task.seconds,
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "rl_zoo": ZOO_COMMIT,
        "runs": [],
    }


def surroundings() -> dict[str, Any]:
    """When, and how busy the machine was."""
    now = datetime.now(timezone.utc)
    load = [round(x, 1) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None
    found: dict[str, str] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"date": f"{now:%Y-%m-%d %H:%M} UTC", "load_average": load, "versions": found}


def written(results: dict[str, Any]) -> str:
    """JSON with a line for each run's facts and none for each of its points."""
    runs = ",\n".join("  " + json.dumps(run) for run in results["runs"])
    rest = json.dumps({**results, "runs": []}, indent=1)
    return rest.replace('"runs": []', f'"runs": [\n{runs}\n ]') + "\n"


if __name__ == "__main__":
    main()
