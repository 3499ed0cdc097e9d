"""docs/performance.md is what benchmarks/report.py makes of the committed results."""

from __future__ import annotations

from pathlib import Path

from benchmarks import report
from benchmarks.goals import goal, slower

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_page_is_what_the_results_say() -> None:
    committed = PAGE.read_text(encoding="utf-8")
    assert committed == report.page(report.RESULTS), "run: python -m benchmarks.report"


def test_goal_that_is_reached_nowhere_is_a_no() -> None:
    assert goal("10 ×", [4.0, 9.0], 10) == ["10 ×", "4.00 to 9.00", "no"]
    assert goal("10 ×", [4.0, 11.0], 10) == ["10 ×", "4.00 to 11.00", "in 1 of 2 cases"]
    assert goal("at most 2", [1.5, 2.0], 2, most=True)[-1] == "yes"
    assert goal("10 ×", [], 10) == ["10 ×", "not measured", "no"]


def test_every_faster_method_is_listed_but_our_own_and_the_bound() -> None:
    seconds = {
        "eligibility": 2.0,
        "eligibility, b": 1.0,
        "three bare products": 1.0,
        "x": 1.6,
        "y": 3.0,
    }
    assert list(slower("here", seconds, "eligibility")) == [["here", "x", "1.25"]]


def test_peers_are_listed_with_ratios_and_failures() -> None:
    machine = {"machine": {"processor": "a core"}, "versions": {"torch": "2"}, "date": "today"}
    limits = {"goal": 475.0, "seconds": 150.0, "steps": 1_000_000}
    solved = {"seeds": 3, "solved": 3, "seconds_median": 0.2, "steps_median": 9e4, "errors": []}
    slow = {**solved, "solved": 2, "seconds_median": 9.0}
    failed = {**slow, "solved": 0, "seconds_median": None, "steps_median": None, "errors": ["no x"]}
    trainers = {"eligibility": solved, "slow": slow, "failed": failed}
    text = report.cartpole_peers({**machine, "limits": limits, "trainers": trainers})
    assert "| slow | 2 of 3 | 9.00 | 45 | 90,000 |" in text
    assert "| failed | 0 of 3 | – | – | – |" in text
    assert text.endswith("Could not run: failed (no x).\n")


def test_the_overhead_of_rollouts_is_a_share() -> None:
    case = {"env": "E", "environments": 2, "overhead": 0.125}
    parts = {f"{part}_microseconds": 9.0 for part in ("rollout", "environment", "network")}
    machine = {"machine": {"processor": "a core"}, "date": "today"}
    text = report.rollout_overhead({**machine, "cases": [{**case, **parts}]})
    assert "| E, 2 side by side | 9 | 9 | 9 | 12% |" in text
