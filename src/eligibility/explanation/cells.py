"""Places of a notebook's script as its reader knows them: a cell, and a line of that cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from eligibility.notebooks import place_in_words

_IN_WORDS = re.compile(r'(?:File "(?P<file>[^"]+)", )?\b(?P<word>[Ll])ine (?P<line>\d+)\b')


def in_cells(
    report: dict[str, Any], script: str, notebook: str, cells: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """The report of a notebook's script with every place as cell and line.

    ``cells`` has, for each line of the script, its cell and its line there.
    """

    def known(line: int) -> tuple[int, int] | None:
        return cells[line - 1] if 0 < line <= len(cells) else None

    def in_words(found: re.Match[str]) -> str:
        place = known(int(found["line"]))
        if place is None or found["file"] not in (None, script):
            return found[0]
        words = place_in_words(place[1], place[0])
        words = words.capitalize() if found["word"] == "L" else words
        return f'File "{notebook}", {words}' if found["file"] else words

    def said(text: str) -> str:
        return _IN_WORDS.sub(in_words, text)

    def moved(value: Any) -> Any:
        """The same with the places of sources and of what holds ``line`` alone."""
        if isinstance(value, list):
            return [moved(item) for item in value]
        if not isinstance(value, dict):
            return value
        result = {key: moved(item) for key, item in value.items()}
        place = known(value["line"]) if isinstance(value.get("line"), int) else None
        if place is None or value.get("file", script) != script:
            return result
        where = {"file": f"{notebook}#cell-{place[0]}"} if "file" in value else {"cell": place[0]}
        return {**result, **where, "line": place[1]}

    missing = [{**item, "reason": said(item["reason"])} for item in report["missing"]]
    return {
        **report,
        "calls": moved(report["calls"]),
        "missing": moved(missing),
        "notes": [said(note) for note in report["notes"]],
        "seen": [(said(at), name) for at, name in report["seen"]],
        "failure": said(report.get("failure", "")),
    }
