"""docs/learning/README.md is what the committed results say, and its rules are as they claim."""

from __future__ import annotations

import time
from pathlib import Path

import gymnasium
import pytest

from benchmarks.learning import blackjack, report
from benchmarks.learning.record import Record
from benchmarks.learning.run import config, is_current
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


def record(task: str, *greedy: float) -> Record:
    """A record whose greedy policy has these returns, one look after the other; always due."""
    returns = iter(greedy)
    return Record(TASKS[task], lambda _: next(returns), _look=0.0)


def test_a_run_goes_on_until_both_measures_have_reached_the_threshold() -> None:
    run = record("CartPole-v1", 480.0, 300.0, 300.0)
    run.note(1000, 99, 480)
    assert run.goes_on(1000)
    run.note(2000, 100, 474)
    assert run.goes_on(2000)
    run.note(3000, 101, 475)
    assert not run.goes_on(3000)
    assert run.greedy is not None
    assert run.training is not None
    assert (run.greedy["steps"], run.training["steps"]) == (1000, 3000)


def test_a_run_is_over_at_its_limit_of_steps_with_a_last_look() -> None:
    run = record("HalfCheetah-v5", 1.0, 2.0)
    run.note(999_999, 999, 1e9)
    assert run.goes_on(999_999)
    run._look = 1e9
    run.note(1_000_000, 1000, 1e9)
    assert not run.goes_on(1_000_000)
    assert run.training is run.greedy is None
    assert [row[2] for row in run.greedy_curve] == [1.0, 2.0]


def test_the_clock_stands_still_during_a_look() -> None:
    def play(_: int) -> float:
        start = time.process_time()
        while time.process_time() < start + 0.2:
            pass
        return 0.0

    run = Record(TASKS["CartPole-v1"], play, _look=0.0)
    run.goes_on(1)
    assert run.seconds < 0.1


def run_of(algorithm: str, seed: int, seconds: float | None) -> dict[str, object]:
    """A run whose greedy policy reached the threshold after that time, and whose mean did not."""
    return {
        "algorithm": algorithm, "seed": seed, "training": None,
        "greedy": seconds and {"steps": 100, "seconds": seconds},
        "processor_seconds": 60.0, "mean_return": 400.0, "greedy_return": 470.0,
    }  # fmt: skip


def test_a_better_peer_is_told() -> None:
    runs = [run_of("REINFORCE", 1, 6.0), run_of("A2C", 1, 2.0), run_of("PPO", 1, None)]
    told = report.losses([{"environment": "CartPole-v1", "threshold": 475, "runs": runs}])
    assert "by the greedy policy: A2C needed 3.0 times fewer seconds" in told
    assert "by the mean of training: 1 of 1 seeds (1) did not reach the threshold" in told
    assert "PPO" not in told


def test_a_run_that_fails_counts_with_its_limit() -> None:
    """Seconds 10, 20, 60+: their mean is 30, the least and the largest resample 10 and 60."""
    runs = [run_of("REINFORCE", seed, seconds) for seed, seconds in enumerate((10.0, 20.0, None))]
    cell = report.need(TASKS["CartPole-v1"], runs, "REINFORCE", "greedy")
    assert cell == "≥ 30 s [10, 60], 2 of 3"
    assert report.need(TASKS["CartPole-v1"], runs, "A2C", "greedy") == "not run"
    assert report.need(TASKS["CartPole-v1"], runs[2:], "REINFORCE", "greedy") == "(470)"


def test_a_run_is_made_again_when_the_package_trains_otherwise() -> None:
    task = TASKS["CartPole-v1"]
    now = config(task)
    older = {name: value for name, value in now.items() if name != "schedule"}
    assert is_current({"config": now}, task)
    assert is_current({"config": older}, task)  # from before there was that option
    assert not is_current({"config": {**now, "schedule": "linear"}}, task)
    assert not is_current({"config": {**older, "learning_rate": 0.1}}, task)
    assert is_current({"algorithm": "PPO"}, task)


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
