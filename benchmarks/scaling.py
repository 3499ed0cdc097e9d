"""Do two processes train in half the time? The same training by one process and by two, in turn.

    python -m benchmarks.scaling        # needs two cores; about 3 minutes

Writes benchmarks/results/scaling.json and the table in docs/train/many_machines.md. Seconds are of
training (from the first reset), not of starting processes, and for each 100,000 steps: rounding
makes two processes take other steps than one before long. On a busy machine the processor's
seconds, of the slower of two processes, tell more than those on the wall; they leave out waiting.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.cartpole import RESULTS, machine

PAGE = Path(__file__).parents[1] / "docs" / "train" / "many_machines.md"
ROUNDS = 5
# Environments that step as one array, and copies that are stepped in turn.
RUNS = {"CartPole-v1": 400_000, "Acrobot-v1": 60_000, "LunarLander-v3": 40_000}
# A common network of a small cluster.
SECONDS_A_MESSAGE, BYTES_A_SECOND, MESSAGES = 50e-6, 1.25e9, 5


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:]:
        print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
        return
    tables = {env: measured(env, steps) for env, steps in RUNS.items()}
    now = datetime.now(timezone.utc)
    record = {"date": f"{now:%Y-%m-%d %H:%M} UTC", **machine(None), "environments": tables}
    (RESULTS / "scaling.json").write_text(json.dumps(record, indent=2) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), record))
    print(table_of(record))


def measured(env: str, steps: int) -> dict[str, Any]:
    """Median seconds of each number of processes, which took turns."""
    taken: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for number in taken:
            taken[number].append(slowest(env, steps, number))
    row: dict[str, Any] = {"updates": taken[2][0]["updates"], "steps": taken[2][0]["steps"]}
    for name in ("processor", "wall"):
        one, two = (statistics.median(run[name] for run in taken[number]) for number in taken)
        row[name] = {"one": round(one, 3), "two": round(two, 3), "speedup": round(one / two, 2)}
    row["bytes_an_update"] = round(taken[2][0]["volume"])
    row["modelled_for_eight"] = round(modelled(row, 8), 2)
    return row


def slowest(env: str, steps: int, number: int) -> dict[str, Any]:
    """One training by that many processes: what the one that worked longest says of it."""
    by = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    finished = subprocess.run(
        [sys.executable, *by, "-m", "benchmarks.scaling", env, str(steps)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = [json.loads(line + "}") for line in finished.stdout.split("}") if line.strip()]
    assert len(found) == number, finished.stdout
    return max(found, key=lambda one: float(one["processor"]))


def train(env: str, steps: int) -> dict[str, Any]:
    """One training as this process sees it, always in two shards; seconds for 100,000 steps."""
    import eligibility as el

    model = el.Reinforce(env, shards=2, seed=1, stop_at=float("inf"))
    model.shards.prepare()
    wall, processor = time.perf_counter(), time.process_time()
    model.learn(steps)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    done, weights = model.progress, sum(p.numel() for p in model.network.parameters())
    share = 100_000 / done.steps
    volume = 16 * weights + 16 * done.steps / done.updates
    return {
        "steps": done.steps,
        "updates": done.updates,
        "wall": wall * share,
        "processor": processor * share,
        "volume": volume,
    }


def modelled(row: dict[str, Any], number: int) -> float:
    """The speed-up that is to be expected of ``number`` machines.

    What two processes did not halve does not shrink with more of them (Amdahl); to it comes the
    time of a ring's messages, whose volume hardly depends on the number.
    """
    one, two = row["processor"]["one"], row["processor"]["two"]
    serial = max(2 * two - one, 0.0)
    rounds = MESSAGES * 2 * (number - 1)
    talking = rounds * SECONDS_A_MESSAGE + 2 * row["bytes_an_update"] / BYTES_A_SECOND
    updates = 100_000 * row["updates"] / row["steps"]
    return float(one / (serial + (one - serial) / number + updates * talking))


def table_of(record: dict[str, Any]) -> str:
    """The result in Markdown."""
    rows = [
        f"| {env} | {row['processor']['one']:.2f} | {row['processor']['two']:.2f} "
        f"| {row['processor']['speedup']:.2f} | {row['wall']['speedup']:.2f} "
        f"| {row['bytes_an_update'] / 1e6:.2f} | {row['modelled_for_eight']:.1f} |"
        for env, row in record["environments"].items()
    ]
    made_on = record["machine"]
    load = f", load {made_on['load_average'][0]:.1f}" if made_on["load_average"] else ""
    return "\n".join(
        [
            f"{record['date']}, {made_on['processor']}, medians of {ROUNDS} rounds{load}.",
            "",
            "| environment | one process, s | two, s | faster | on the wall "
            "| MB an update | model of eight |",
            "| :-- | --: | --: | --: | --: | --: | --: |",
            *rows,
        ]
    )


def with_table(page: str, record: dict[str, Any]) -> str:
    """The page with today's table between its marks."""
    marks = r"(<!-- measured -->\n).*?(\n<!-- end -->)"
    return re.sub(marks, lambda m: m[1] + table_of(record) + m[2], page, flags=re.DOTALL)


if __name__ == "__main__":
    main()
