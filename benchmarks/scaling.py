"""Do two processes train in half the time? The same run by one process and by two, in turn.

    python -m benchmarks.scaling        # needs two cores; about 3 minutes

Writes benchmarks/results/scaling.json and the table in docs/train/many_machines.md. The seconds are
those of training (from the first reset), not of starting processes.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.cartpole import RESULTS, machine

PAGE = Path(__file__).parents[1] / "docs" / "train" / "many_machines.md"
ROUNDS = 3
# Environments that step as one array, and copies that are stepped in turn.
RUNS = {"CartPole-v1": 400_000, "Acrobot-v1": 60_000, "LunarLander-v3": 40_000}
# A common network of a small cluster.
SECONDS_A_MESSAGE, BYTES_A_SECOND, MESSAGES = 50e-6, 1.25e9, 5


def main() -> None:
    """Measure, print, write."""
    tables = {env: measured(env, steps) for env, steps in RUNS.items()}
    now = datetime.now(timezone.utc)
    record = {"date": f"{now:%Y-%m-%d %H:%M} UTC", **machine(None), "environments": tables}
    (RESULTS / "scaling.json").write_text(json.dumps(record, indent=2) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), record))
    print(table_of(record))


def measured(env: str, steps: int) -> dict[str, Any]:
    """Median training seconds of each number of processes, which took turns."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for number in seconds:
            result = train(env, steps, number)
            seconds[number].append(result["training_seconds"])
    one, two = (statistics.median(seconds[number]) for number in (1, 2))
    return {
        "steps": result["steps"],
        "updates": result["updates"],
        "one": round(one, 3),
        "two": round(two, 3),
        "speedup": round(one / two, 2),
        "bytes_an_update": round(result["volume"]),
        "modelled_for_eight": round(modelled(one, two, result, 8), 2),
    }


def train(env: str, steps: int, number: int) -> dict[str, Any]:
    """One run, always in two shards, so that it is the same one."""
    options = f"{env} --shards 2 --steps {steps} --stop-at inf --seed 1 --json --out run".split()
    run = ["-m", "eligibility", "train", *options]
    by = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    command = [sys.executable, *(by if number > 1 else []), *run]
    with tempfile.TemporaryDirectory() as folder:
        finished = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        from safetensors import safe_open

        with safe_open(Path(folder) / "run" / "checkpoint.safetensors", "pt") as saved:
            names = [name for name in saved.keys() if name.startswith("network.")]  # noqa: SIM118  # safe_open is not a mapping
            weights = sum(saved.get_tensor(name).numel() for name in names)
    result: dict[str, Any] = json.loads(finished.stdout.strip().splitlines()[-1])
    result["volume"] = 16 * weights + 16 * result["steps"] / result["updates"]
    return result


def modelled(one: float, two: float, result: dict[str, Any], number: int) -> float:
    """The speed-up that is to be expected of ``number`` machines.

    What two processes did not halve does not shrink with more of them (Amdahl); to it comes the
    time of a ring's messages, whose volume hardly depends on the number.
    """
    serial = max(2 * two - one, 0.0)
    steps = MESSAGES * 2 * (number - 1)
    talking = steps * SECONDS_A_MESSAGE + 2 * result["volume"] / BYTES_A_SECOND
    return one / (serial + (one - serial) / number + result["updates"] * talking)


def table_of(record: dict[str, Any]) -> str:
    """The result in Markdown."""
    rows = [
        f"| {env} | {row['one']:.2f} | {row['two']:.2f} | {row['speedup']:.2f} "
        f"| {row['bytes_an_update'] / 1e6:.2f} | {row['modelled_for_eight']:.1f} |"
        for env, row in record["environments"].items()
    ]
    return "\n".join(
        [
            f"{record['date']}, {record['machine']['processor']}, medians of {ROUNDS} rounds.",
            "",
            "| environment | one process, s | two, s | faster | MB an update | model of eight |",
            "| :-- | --: | --: | --: | --: | --: |",
            *rows,
        ]
    )


def with_table(page: str, record: dict[str, Any]) -> str:
    """The page with today's table between its marks."""
    marks = r"(<!-- measured -->\n).*?(\n<!-- end -->)"
    return re.sub(marks, lambda m: m[1] + table_of(record) + m[2], page, flags=re.DOTALL)


if __name__ == "__main__":
    main()
