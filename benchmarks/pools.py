"""Where does EnvPool train in less processor time than Gymnasium's environments, and as well?

    python -m benchmarks.pools        # needs the extra envpool; about 3 minutes

Rollouts of an untrained policy, acting included, are timed in turn, and the processor's time for a
step compared: of all threads, because EnvPool has several. Where EnvPool's take at most half of it,
and what is seen and how long episodes last are the same, both are trained from the same seeds until
the mean of the last 100 episodes reaches the threshold of benchmarks/learning. The result goes to
benchmarks/results/envpool.json; eligibility/train/presets.py has the factors of those where every
run reached it.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from datetime import datetime, timezone
from typing import Any

from benchmarks.cartpole import RESULTS, machine
from benchmarks.learning.tasks import TASKS
from eligibility.train.learner import Reinforce

ROUNDS, SEEDS, LEAST = 5, (1, 2, 3), 2.0
ENVIRONMENTS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "LunarLander-v3",
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-Empty-8x8-v0",
    "MiniGrid-DoorKey-5x5-v0",
)


def main() -> None:
    """Measure, print, write."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = {}
    for env in ENVIRONMENTS:
        rows[env] = row = speed(env)
        if row["factor"] >= LEAST and row["same"]:
            row["learned"] = {
                made: [learned(made + env, env, seed) for seed in SEEDS]
                for made in ("gymnasium:", "envpool:")
            }
        print(env, json.dumps(row), flush=True)
    now = datetime.now(timezone.utc)
    record = {"date": f"{now:%Y-%m-%d %H:%M} UTC", **machine(None), "environments": rows}
    (RESULTS / "envpool.json").write_text(json.dumps(record, indent=1) + "\n")


def speed(env: str) -> dict[str, Any]:
    """Microseconds of the processor for a step, by turns, and whether the two are alike."""
    models = {made: Reinforce(made + env, seed=1) for made in ("gymnasium:", "envpool:")}
    taken: dict[str, list[float]] = {made: [] for made in models}
    for number in range(ROUNDS + 1):
        for made, model in models.items():
            start = time.process_time()
            steps = model.shards.collect(model.network, number).steps
            taken[made].append((time.process_time() - start) / steps)
    ours, theirs = (statistics.median(times[1:]) * 1e6 for times in taken.values())
    alike = {
        (
            one.horizon,
            one.shards.observations.shape,
            type(one.shards.policy),
            one.shards.policy.size,
        )
        for one in models.values()
    }
    return {
        "gymnasium": round(ours, 2),
        "envpool": round(theirs, 2),
        "factor": round(ours / theirs, 1),
        "same": len(alike) == 1,
    }


def learned(name: str, env: str, seed: int) -> float | None:
    """Seconds of the processor until training reached the threshold; None: it did not."""
    task = TASKS[env]
    assert task.threshold is not None
    model = Reinforce(name, seed=seed, stop_at=task.threshold)
    model.shards.prepare()
    start = time.process_time()

    def goes_on(_: object) -> bool:
        return time.process_time() - start < task.seconds

    model.learn(task.steps, callback=goes_on)
    return round(time.process_time() - start, 2) if model.progress.solved else None


if __name__ == "__main__":
    main()
