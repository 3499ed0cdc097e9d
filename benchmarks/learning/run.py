"""One run: an algorithm, an environment, a seed. The same stopping rule for all."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning import blackjack
from benchmarks.learning.tasks import Task

# Episodes in the mean that decides, points kept of a curve, episodes of the evaluation.
WINDOW, POINTS, EPISODES = 100, 150, 200


@dataclass
class Record:
    """What a run has cost so far, and whether it is over: solved, or at a limit.

    The curve has a row ``[steps, seconds of processor time, mean of the last 100 episodes]``.
    """

    task: Task
    curve: list[list[float]] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    solved: bool = False
    _wall: float = field(default_factory=time.perf_counter)
    _processor: float = field(default_factory=time.process_time)

    def note(self, steps: int, episodes: int, mean: float) -> bool:
        """Take the state after ``steps`` steps; True while training is to go on."""
        self.steps, self.episodes = steps, episodes
        seconds = time.process_time() - self._processor
        self.curve.append([steps, round(seconds, 3), round(mean, 4)])
        goal = self.task.threshold
        self.solved = goal is not None and episodes >= WINDOW and mean >= goal
        return not self.solved and seconds < self.task.seconds and steps < self.task.steps

    def result(self) -> dict[str, Any]:
        """What is kept of the run."""
        stride = max(1, math.ceil(len(self.curve) / POINTS))
        curve = self.curve[::stride]
        if self.curve and curve[-1] != self.curve[-1]:
            curve.append(self.curve[-1])
        return {
            "solved": self.solved,
            "steps": self.steps,
            "episodes": self.episodes,
            "mean_return": self.curve[-1][2] if self.curve else None,
            "processor_seconds": self.curve[-1][1] if self.curve else None,
            "wall_seconds": round(time.perf_counter() - self._wall, 2),
            "curve": curve,
        }


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


def exactly(predict: Callable[[np.ndarray[Any, Any]], Any]) -> float:
    """What greedy Blackjack pays on average: 200 hands would not tell."""
    states = np.array([(t, s, a) for t in range(2, 22) for s in range(1, 11) for a in (0, 1)])
    actions = np.asarray(predict(states)).tolist()
    table = dict(zip(map(tuple, states.tolist()), actions, strict=True))
    return round(blackjack.expected_return(table.__getitem__), 5)


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
