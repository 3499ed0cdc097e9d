"""Callbacks: functions and objects, alone and together, told of the start and of the end."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from eligibility.errors import EligibilityError, InvalidTypeError, MissingDependencyError
from eligibility.train.callbacks import Callback
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress
from eligibility.train.weights_and_biases import WandbCallback

HERE = "tests.train.environments:"


class Diary(Callback):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_training_start(self, model: Reinforce) -> None:
        """The model and where it stands."""
        self.heard.append(f"start at {model.progress.updates}")

    def on_rollout_end(self, progress: Progress) -> bool:
        """Stops after two updates."""
        self.heard.append(f"update {progress.updates}")
        return progress.updates < 2

    def on_training_end(self) -> None:
        """The end."""
        self.heard.append("end")


def test_an_object_hears_of_the_start_each_rollout_and_the_end_and_stops_the_training() -> None:
    diary, updates = Diary(), list[int]()
    model = Reinforce("CartPole-v1", environments=4)
    model.learn(callback=[diary, lambda progress: updates.append(progress.updates)])
    assert diary.heard == ["start at 0", "update 1", "update 2", "end"]
    assert updates == [1, 2]


def test_the_end_is_told_when_an_error_ends_the_training() -> None:
    diary = Diary()
    model = Reinforce(HERE + "Crashing-v0")
    with pytest.raises(EligibilityError):
        model.learn(callback=diary)
    assert diary.heard == ["start at 0", "end"]


def test_something_else_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"^`callback`: got str, expected a function"):
        Reinforce("CartPole-v1").learn(callback=["print"])


def test_weights_and_biases_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    text = (
        "the package `wandb`: got no installation of it, expected eligibility with its wandb "
        'extra; pip install "eligibility\\[train,wandb\\]"'
    )
    with pytest.raises(MissingDependencyError, match=f"^{text}$"):
        WandbCallback("project")


def test_weights_and_biases_hears_of_every_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interface, as far as it is used, in place of the package and its service."""
    heard: list[Any] = []

    class Run:
        def log(self, numbers: dict[str, float], step: int) -> None:
            heard.append((step, numbers["episodes"]))

        def finish(self) -> None:
            heard.append("finished")

    def init(*, config: dict[str, Any], project: str, mode: str) -> Run:
        heard.append((config["env"], project, mode))
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    curve: list[Progress] = []
    listeners = [WandbCallback("project", mode="offline"), curve.append]
    Reinforce("CartPole-v1", environments=4).learn(total_steps=300, callback=listeners)
    steps = [(progress.steps, progress.episodes) for progress in curve]
    assert heard == [("CartPole-v1", "project", "offline"), *steps, "finished"]
