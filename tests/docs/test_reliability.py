"""The page on reliability says what was measured."""

from __future__ import annotations

import json

import pytest

from benchmarks.reliability.page import PAGE, PARTS, RESULTS, page
from benchmarks.reliability.row import Row, row_of


def test_the_page_is_that_of_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.reliability --page"


@pytest.mark.parametrize("part", PARTS)
def test_what_was_tried_and_did_not_hold_is_told(part: str) -> None:
    for row in json.loads((RESULTS / f"{part}.json").read_text())["rows"]:
        assert row["held"] == row["tried"] or row["failures"]


def test_a_row_counts_what_was_expected_and_keeps_the_rest() -> None:
    assert row_of("attack", "nothing", ["", "fell", ""]) == Row(
        "attack", 3, 2, "nothing", ("fell",)
    )
