"""Callbacks: functions and objects, alone and together, told of the start and of the end."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eligibility.errors import EligibilityError, InvalidTypeError, MissingDependencyError
from eligibility.train.callbacks import Callback, KeepBest, WandbCallback
from eligibility.train.learner import Reinforce
from eligibility.train.progress import Progress

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
        "the package `wandb`: got no such package, expected eligibility with its wandb "
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


def test_the_best_policy_is_kept_and_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns 3, 9, 5 in turn: the second policy is that of the file, and training is the same."""
    returns = iter([3.0, 9.0, 5.0])
    monkeypatch.setattr(
        Reinforce, "evaluate", lambda *_: SimpleNamespace(mean_return=next(returns))
    )
    weights = []
    best = KeepBest(tmp_path / "best.safetensors", every=2)
    model = Reinforce("CartPole-v1", environments=4, stop_at=1e9)

    def note(progress: Progress) -> bool:
        weights.append([weight.detach().clone() for weight in model.network.parameters()])
        return progress.updates < 7

    model.learn(callback=[best, note])
    kept = Reinforce.load(best.path)
    assert (best.best_return, best.best_steps) == (9.0, kept.progress.steps)
    assert kept.progress.updates == 4
    assert all(map(torch.equal, kept.network.parameters(), weights[3]))
    alone = Reinforce("CartPole-v1", environments=4, stop_at=1e9)
    alone.learn(callback=lambda progress: progress.updates < 7)
    assert all(map(torch.equal, alone.network.parameters(), weights[-1]))


def test_looking_at_the_policy_leaves_the_training_as_it_is(tmp_path: Path) -> None:
    trained = []
    for listeners in ([], [KeepBest(tmp_path / "best.safetensors", every=1, episodes=3)]):
        model = Reinforce("CartPole-v1", environments=4, normalize_observations=True)
        model.learn(callback=[*listeners, lambda progress: progress.updates < 4])
        trained.append([weight.detach() for weight in model.network.parameters()])
    assert all(map(torch.equal, *trained))


def test_a_look_every_zero_updates_is_refused() -> None:
    with pytest.raises(EligibilityError, match="`every`: got 0"):
        KeepBest("best.safetensors", every=0)
