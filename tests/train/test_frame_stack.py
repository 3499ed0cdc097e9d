"""Memory by Gymnasium's own wrapper: the last observations side by side."""

from __future__ import annotations

from typing import Any

from gymnasium.wrappers import FrameStackObservation

from eligibility.train.learner import Reinforce
from tests.train.recall import Recall


def test_what_was_seen_five_steps_ago_is_remembered_by_a_stack_of_frames() -> None:
    options: dict[str, Any] = {"stop_at": 0.99, "environments": 64, "discount": 1.0}
    stacked = Reinforce(lambda: FrameStackObservation(Recall(), 6), **options)
    assert stacked.learn(40_000).progress.solved
    assert stacked.evaluate(100).mean_return == 1
    forgetful = Reinforce(Recall, **options).learn(40_000)
    assert not forgetful.progress.solved
    assert forgetful.evaluate(100).mean_return < 0.8
