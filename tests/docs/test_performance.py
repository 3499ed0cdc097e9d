"""docs/performance.md is what benchmarks/report.py makes of the committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report", ROOT / "benchmarks" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_results_say(report: ModuleType) -> None:
    committed = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert committed == report.page(report.RESULTS), "run: python benchmarks/report.py"


def test_goal_that_is_reached_nowhere_is_a_no(report: ModuleType) -> None:
    assert report.goal("10 ×", [4.0, 9.0], 10) == ["10 ×", "4.00 to 9.00", "no"]
    assert report.goal("10 ×", [4.0, 11.0], 10) == ["10 ×", "4.00 to 11.00", "in 1 of 2 cases"]
    assert report.goal("at most 2", [1.5, 2.0], 2, most=True)[-1] == "yes"
    assert report.goal("10 ×", [], 10) == ["10 ×", "not measured", "no"]
