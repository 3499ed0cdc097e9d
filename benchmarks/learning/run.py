"""One run: an algorithm, an environment, a seed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.learning.record import Record, exactly
from benchmarks.learning.tasks import Task
from eligibility.train.config import Config

# Of a config, what does not say how to train, or is the run's own.
_APART = {"env", "seed", "steps", "stop_at"}


def reinforce(task: Task, seed: int) -> dict[str, Any]:
    """This package, with what it does by default."""
    from eligibility.train.learner import Reinforce
    from eligibility.train.progress import Progress

    model = Reinforce(task.env, seed=seed, stop_at=math.inf)

    def play(episodes: int) -> float:
        if task.env == "Blackjack-v1":
            return exactly(lambda states: model.predict(tuple(states.T)))
        return model.evaluate(episodes).mean_return

    def callback(progress: Progress) -> bool:
        record.note(progress.steps, progress.episodes, progress.mean_return)
        return record.goes_on(progress.steps)

    record = Record(task, play)
    model.learn(task.steps, callback=callback)
    return {**record.result(), "config": config(task)}


def of_folder(task: Task, folder: Path) -> dict[str, Any]:
    """The run that `eligibility train` left in a folder: one that takes days cannot be made here.

    Its curve has no processor time: the seconds are those on the wall, for all rows the last's
    share by steps.
    """
    with (folder / "curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    config_, done = (
        json.loads((folder / name).read_text("utf-8")) for name in ("config.json", "result.json")
    )
    seconds, steps = done["training_seconds"], int(rows[-1]["steps"])
    if config_["env"] != task.env:
        raise SystemExit(f"{folder} holds a run of {config_['env']}, not of {task.env}")
    record = Record(task, lambda _: math.nan)
    for row in rows:
        record.note(int(row["steps"]), int(row["episodes"]), float(row["mean_return"]))
        record.curve[-1][1] = round(seconds * record.steps / steps, 3)
    wall = {"greedy_return": None, "processor_seconds": round(seconds, 2)}
    return {"seed": config_["seed"], **record.result(), **wall, "config": config(task)}


def config(task: Task) -> dict[str, Any]:
    """How this package trains on the environment today, as JSON has it."""
    return as_json(Config.from_options(task.env, {}))


def is_current(run: dict[str, Any], task: Task) -> bool:
    """Whether it is a peer's, or would be trained in the same way today.

    An option that is newer than the run is one that it had at its default.
    """
    return "config" not in run or {**as_json(Config(task.env)), **run["config"]} == config(task)


def as_json(options: Config) -> dict[str, Any]:
    """The options that say how to train, as JSON has them."""
    kept = {name: value for name, value in asdict(options).items() if name not in _APART}
    found: dict[str, Any] = json.loads(json.dumps(kept))
    return found


def peer(algorithm: str) -> Callable[[Task, int], dict[str, Any]]:
    """Stable-Baselines3's A2C or PPO."""

    def run(task: Task, seed: int) -> dict[str, Any]:
        from benchmarks.learning.peers import train

        return train(algorithm, task, seed)

    return run


ALGORITHMS: dict[str, Callable[[Task, int], dict[str, Any]]] = {
    "REINFORCE": reinforce,
    "A2C": peer("A2C"),
    "PPO": peer("PPO"),
}
