"""docs/learning/README.md is what the committed results say, and its rules are as they claim."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest

from benchmarks.learning import blackjack, report
from benchmarks.learning.record import Record
from benchmarks.learning.tasks import TASKS

DOCS = Path(__file__).parents[2] / "docs" / "learning"


def test_the_page_is_what_the_results_say() -> None:
    committed = (DOCS / "README.md").read_text(encoding="utf-8")
    wanted = report.page(report.read(report.RESULTS))
    assert committed == wanted, "run: python -m benchmarks.learning.report"


def test_every_picture_of_the_page_is_there() -> None:
    for result in report.read(report.RESULTS):
        name = TASKS[result["environment"]].file
        assert (DOCS / f"{name}.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("episodes", "mean", "goes_on"), [(99, 480, True), (100, 474, True), (100, 475, False)]
)
def test_a_run_is_over_when_the_mean_of_a_hundred_reaches_the_threshold(
    episodes: int, mean: float, goes_on: bool
) -> None:
    record = Record(TASKS["CartPole-v1"])
    assert record.note(1000, episodes, mean) is goes_on
    assert record.solved is not goes_on


def test_a_run_is_over_at_its_limit_of_steps() -> None:
    record = Record(TASKS["HalfCheetah-v5"])
    assert record.note(999_999, 999, 1e9)
    assert not record.note(1_000_000, 1000, 1e9)
    assert not record.solved


def test_a_better_peer_is_told() -> None:
    def run(algorithm: str, seconds: float, solved: bool = True) -> dict[str, object]:
        return {
            "algorithm": algorithm, "seed": 0, "solved": solved, "steps": 100,
            "processor_seconds": seconds, "mean_return": 480.0, "greedy_return": 470.0,
        }  # fmt: skip

    result = {
        "environment": "CartPole-v1",
        "threshold": 475,
        "runs": [run("REINFORCE", 6.0), run("A2C", 2.0), run("PPO", 1.0, solved=False)],
    }
    told = report.losses([result])
    assert "A2C needed 3.0 times fewer seconds" in told
    assert "without the draws the policies reach a median of 470" in told
    assert "PPO" not in told


def test_blackjack_is_known_exactly() -> None:
    """Against play: the mean of 4000 hands is within four standard errors."""
    environment, total = gymnasium.make("Blackjack-v1"), 0.0
    environment.reset(seed=0)
    for _ in range(4000):
        state, over = environment.reset()[0], False
        while not over:
            state, reward, over, _, _ = environment.step(int(state[0] < 17))
        total += reward
    exact = blackjack.expected_return(lambda state: int(state[0] < 17))
    assert total / 4000 == pytest.approx(exact, abs=4 * 0.95 / 4000**0.5)
    assert exact < blackjack.expected_return(None) == pytest.approx(-0.0431, abs=5e-5)
