"""What does a rollout cost beyond its environment and its network?

    taskset -c 1 python -m benchmarks.rollout_overhead        # about a minute

A rollout of the trainer is timed, and then, in the same round, its two parts alone: the same
environments stepped with the same actions from the same seed, and the same network called on the
same observations, row by row. What remains is sampling, masks, checks and notes:

    overhead = rollout / (environment + network) − 1,

the median over the rounds, in processor time. The result goes to
benchmarks/results/rollout_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.cartpole import machine, pin
from eligibility.train.environments import horizon, make_vector
from eligibility.train.learner import Reinforce
from eligibility.train.network import ArrayForward, Network
from eligibility.train.policy_spaces import interface
from eligibility.train.rollout import Collector
from eligibility.train.seeding import Stream, derive

WARM_UP = 3  # rounds that do not count
RESULT = Path(__file__).parent / "results" / "rollout_overhead.json"
# (environment, training steps before the measurement, so that episodes are as long as they get)
CASES = (("CartPole-v1", 100_000), ("Acrobot-v1", 30_000), ("FrozenLake-v1", 0))


def main() -> None:
    """Measure each environment, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    core = pin(None)
    torch.set_num_threads(1)
    cases = []
    for env, steps in CASES:
        cases.append(measure(env, steps, arguments.rounds))
        print("  ".join(f"{name} {value}" for name, value in cases[-1].items()), flush=True)
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    arguments.out.write_text(
        json.dumps({"date": now, **machine(core), "cases": cases}, indent=2) + "\n"
    )
    print(f"written to {arguments.out}")


def measure(env: str, steps: int, rounds: int) -> dict[str, Any]:
    """Microseconds a row of all environments, and the overhead."""
    model = Reinforce(env, stop_at=float("inf"))
    if steps:
        model.learn(steps)
    network, number = model.network, model.config.environments
    vector = make_vector(env, number)
    collector = Collector(
        interface(vector, model.config), horizon(vector, model.config.max_episode_steps)
    )
    seconds: dict[str, list[float]] = {"rollout": [], "environment": [], "network": []}
    rows = []
    for repeat in range(rounds + WARM_UP):
        seed, generator = derive(0, Stream.TRAINING, repeat)
        start = time.process_time()
        rollout = collector.collect(network, seed, generator)
        whole = time.process_time() - start
        actions = [collector.policy.to_environment(action) for action in rollout.actions]

        def step(actions: list[Any] = actions, seed: int = seed) -> None:
            vector.reset(seed=seed)
            for action in actions:
                vector.step(action)

        forward: Callable[[Any], Any] = torch.inference_mode()(network.__call__)
        if ArrayForward.pays_off(network, number):
            forward = ArrayForward(cast(Network, network), number)

        def call(seen: Any = rollout.observations, forward: Any = forward) -> None:
            for row in seen:
                forward(row)

        if repeat >= WARM_UP:
            rows.append(len(actions))
            seconds["rollout"].append(whole)
            seconds["environment"].append(timed(step))
            seconds["network"].append(timed(call))
    vector.close()
    overhead = [
        whole / (stepping + calling) - 1
        for whole, stepping, calling in zip(*seconds.values(), strict=True)
    ]
    return {
        "env": env,
        "environments": number,
        "rows": int(statistics.median(rows)),
        **{
            f"{name}_microseconds": round(
                statistics.median(s / n * 1e6 for s, n in zip(several, rows, strict=True)), 1
            )
            for name, several in seconds.items()
        },
        "overhead": round(statistics.median(overhead), 3),
    }


def timed(function: Callable[[], None]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    main()
