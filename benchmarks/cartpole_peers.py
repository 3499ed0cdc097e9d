"""How long do others take to solve CartPole-v1? Same rule, same clock, one core, in turns.

    python -m benchmarks.cartpole_peers [--seeds 3] [--limit 150] [--sources FOLDER] [--python P]

"Solved" is: the mean of the last 100 training episodes reaches 475. Seconds count from the first
reset to that moment, without imports. Each run is a process of its own, pinned to one core; within
a seed the trainers take turns, so what else the machine does meets all of them. A run that takes
longer than the limit, uses up a million steps, or gives up by itself, is a failure.

At most seeds × 7 × (limit + 15) seconds: 58 minutes as it stands, about 25 in practice.

Peers that are no packages are taken from FOLDER: ``cleanrl_ppo.py`` (cleanrl/ppo.py of
vwxyzjn/cleanrl), ``reinforce.py`` (reinforcement_learning/ of pytorch/examples) and
``spinningup/`` (a checkout of openai/spinningup). ``--python`` is the interpreter that has the
peers. What cannot be started is listed with its error. The result goes to
benchmarks/results/cartpole_peers.json; ``python -m benchmarks.report`` makes the table of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.cartpole import machine, pin
from benchmarks.peers.trainers import PEERS

OURS = "eligibility"
GOAL, STEPS = 475.0, 1_000_000
ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "cartpole_peers.json"


def main() -> None:
    """Run everybody on every seed, print as it goes, write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--limit", type=float, default=150, help="seconds of training")
    parser.add_argument("--sources", type=Path, default=Path("peers"), help="of the scripts")
    parser.add_argument("--python", default=sys.executable, help="that has the peers installed")
    parser.add_argument("--core", type=int, default=None, help="default: the last one")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    core = pin(arguments.core)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in (OURS, *PEERS)}
    for seed in range(arguments.seeds):
        for name, done in runs.items():
            done.append(measure(name, seed, arguments))
            print(f"seed {seed}  {name:32}  {in_words(done[-1])}", flush=True)
    facts = machine(core, arguments.python)
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    limits = {"goal": GOAL, "steps": STEPS, "seconds": arguments.limit}
    peers = {name: {**summarise(done), "runs": done} for name, done in runs.items()}
    record = {"date": now, **facts, "limits": limits, "trainers": peers}
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written to {arguments.out}")


def measure(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One run, in a process and a folder of its own."""
    python, sources = arguments.python, str(arguments.sources.resolve())
    with tempfile.TemporaryDirectory() as folder:
        goal = ["--goal", str(GOAL), "--steps", str(STEPS), "--sources", sources]
        command = [python, "-m", "benchmarks.peers", name, str(seed), *goal]
        if name == OURS:
            options = ["--seed", str(seed), "--stop-at", str(GOAL), "--steps", str(STEPS)]
            out = ["--out", str(Path(folder) / "run"), "--json"]
            command = [sys.executable, "-m", "eligibility", "train", "CartPole-v1", *options, *out]
        paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                timeout=arguments.limit + 15,  # for the imports
                env={**os.environ, "PYTHONPATH": paths},
            )
        except subprocess.TimeoutExpired:
            return {"seed": seed, "solved": False, "error": None}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        error = done.stderr.strip().splitlines() or ["no output"]
        return {"seed": seed, "solved": False, "error": error[-1]}
    result = json.loads(lines[-1])
    result.pop("run", None)
    late = result["training_seconds"] > arguments.limit
    return {"seed": seed, "error": None, **result, "solved": result["solved"] and not late}


def in_words(run: dict[str, Any]) -> str:
    """What a run came to, in one line."""
    if run["error"]:
        return f"could not run: {run['error']}"
    if not run["solved"]:
        return "not solved"
    return f"{run['training_seconds']:8.3f} s  {run['steps']:>9,} steps"


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How many were solved, and the median seconds and steps of those."""
    solved = [run for run in runs if run["solved"]]
    errors = sorted({run["error"] for run in runs if run["error"]})
    return {
        "seeds": len(runs),
        "solved": len(solved),
        "seconds_median": median(run["training_seconds"] for run in solved),
        "steps_median": median(run["steps"] for run in solved),
        "errors": errors,
    }


def median(values: Any) -> float | None:
    """None of nothing."""
    known = list(values)
    return round(statistics.median(known), 3) if known else None


if __name__ == "__main__":
    main()
