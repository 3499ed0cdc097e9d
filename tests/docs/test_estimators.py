"""The table of estimators shows what the trainer's estimators are today."""

from __future__ import annotations

from benchmarks.estimators import HEAD, PAGE, ROWS, TAIL, row


def test_the_page_is_up_to_date() -> None:
    """The texts as a whole, and one line computed again: all of them take minutes."""
    remedy = "run python -m benchmarks.estimators"
    shown = PAGE.read_text(encoding="utf-8")
    assert shown.startswith(HEAD), remedy
    assert shown.endswith(TAIL), remedy
    table = shown.removeprefix(HEAD).removesuffix(TAIL).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in table if line] == [*ROWS], remedy
    assert row("moving-average", ROWS["moving-average"]) in table, remedy
