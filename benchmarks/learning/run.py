"""One run: an algorithm, an environment, a seed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learning.record import EPISODES, Record, exactly
from benchmarks.learning.tasks import Task


def reinforce(task: Task, seed: int) -> dict[str, Any]:
    """This package with its preset, and the greedy policy that it ends with."""
    from eligibility.train.learner import Progress, Reinforce

    goal = math.inf if task.threshold is None else task.threshold
    model = Reinforce(task.env, seed=seed, stop_at=goal)
    record = Record(task)

    def callback(progress: Progress) -> bool:
        return record.note(progress.steps, progress.episodes, progress.mean_return)

    model.learn(task.steps, callback=callback)
    result = record.result()
    result["preset"] = preset(task)
    if task.env == "Blackjack-v1":
        result["greedy_return"] = exactly(lambda states: model.predict(tuple(states.T)))
    else:
        result["greedy_return"] = round(model.evaluate(EPISODES).mean_return, 4)
    return result


def of_folder(task: Task, folder: Path) -> dict[str, Any]:
    """The run that `eligibility train` left in a folder: one that takes days cannot be made here.

    Its curve has no processor time: the seconds are those on the wall, for all rows the last's
    share by steps.
    """
    with (folder / "curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    config, done = (
        json.loads((folder / name).read_text("utf-8")) for name in ("config.json", "result.json")
    )
    seconds, steps = done["training_seconds"], int(rows[-1]["steps"])
    if config["env"] != task.env:
        raise SystemExit(f"{folder} holds a run of {config['env']}, not of {task.env}")
    record = Record(task)
    for row in rows:
        record.note(int(row["steps"]), int(row["episodes"]), float(row["mean_return"]))
        record.curve[-1][1] = round(seconds * record.steps / steps, 3)
    result = record.result()
    greedy = {"greedy_return": None, "wall_seconds": round(seconds, 2)}
    return {"seed": config["seed"], **result, **greedy, "preset": preset(task)}


def preset(task: Task) -> dict[str, Any]:
    """The options that come with the package, as JSON has them."""
    from eligibility.train.presets import PRESETS

    options: dict[str, Any] = json.loads(json.dumps(PRESETS.get(task.env, {})))
    return options


def peer(algorithm: str) -> Callable[[Task, int], dict[str, Any]]:
    """Stable-Baselines3's A2C or PPO."""

    def run(task: Task, seed: int) -> dict[str, Any]:
        from benchmarks.learning.peers import train

        record = Record(task)
        play = train(algorithm, task, seed, record)
        return {**record.result(), "greedy_return": play()}

    return run


ALGORITHMS: dict[str, Callable[[Task, int], dict[str, Any]]] = {
    "REINFORCE": reinforce,
    "A2C": peer("A2C"),
    "PPO": peer("PPO"),
}
