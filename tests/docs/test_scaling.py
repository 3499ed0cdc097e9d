"""The page on several processes shows the figures of the last measurement."""

from __future__ import annotations

import json

from benchmarks.cartpole import RESULTS
from benchmarks.scaling import PAGE, with_table


def test_the_page_shows_the_measurement() -> None:
    record = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, record) == page
