"""The table of estimators shows what the trainer's estimators are today."""

from __future__ import annotations

from benchmarks.estimators import HEAD, PAGE, ROWS, TAIL, row


def test_the_page_is_up_to_date() -> None:
    """The texts as a whole, and one line computed anew: all of them take minutes."""
    shown = PAGE.read_text(encoding="utf-8")
    assert shown.startswith(HEAD)
    assert shown.endswith(TAIL)
    table = shown.removeprefix(HEAD).removesuffix(TAIL).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in table if line] == [*ROWS]
    assert row("moving-average", ROWS["moving-average"]) in table
