"""Callbacks: functions and objects, alone and together, told of the start and of the end."""

from __future__ import annotations

import pytest

from eligibility.errors import EligibilityError, InvalidTypeError
from eligibility.train.callbacks import Callback
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
        Reinforce("CartPole-v1").learn(callback=["print"])  # type: ignore[list-item]


def test_weights_and_biases_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from eligibility.errors import MissingDependencyError
    from eligibility.train.weights_and_biases import WandbCallback

    monkeypatch.setitem(sys.modules, "wandb", None)
    text = (
        "the package `wandb`: got no installation of it, expected eligibility with its wandb "
        'extra; pip install "eligibility\\[train,wandb\\]"'
    )
    with pytest.raises(MissingDependencyError, match=f"^{text}$"):
        WandbCallback("project")
