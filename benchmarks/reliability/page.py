"""docs/reliability.md, from the results: what was tried, what held, what did not."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# In the order of the page; a part without results is left out.
PARTS = (
    "kills",
    "checkpoints",
    "hostile_scripts",
    "wrong_calls",
    "command_lines",
    "random_losses",
    "sanitizers",
)
HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "reliability"
PAGE = HERE.parents[1] / "docs" / "reliability.md"

HEAD = """\
# Reliability

Written by `python -m benchmarks.reliability` from what it measured; do not edit it. The product is
attacked as a careless user, a failing machine and a stranger would: everything that did not hold is
listed. What is meant to hold is in `SECURITY.md`.

"""


def page() -> str:
    """The page as it has to be."""
    return HEAD + _summary() + "".join(_part(part) for part in _measured())


def _measured() -> list[str]:
    return [part for part in PARTS if (RESULTS / f"{part}.json").exists()]


def _result(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{part}.json").read_text(encoding="utf-8"))
    return found


def _summary() -> str:
    lines = ["| | tried | held |", "|---|---:|---:|"]
    for part in _measured():
        rows = _result(part)["rows"]
        tried, held = (sum(row[name] for row in rows) for name in ("tried", "held"))
        title = _source(part)[0]
        lines.append(f"| [{title}](#{_anchor(title)}) | {tried:,} | {held:,} |")
    return "\n".join(lines) + "\n"


def _part(part: str) -> str:
    title, text = _source(part)
    result = _result(part)
    lines = [f"\n## {title}\n", text, ""]
    lines += [
        f"{result['date']}, Python {result['python']}, {result['system']}, "
        f"{result['minutes']:g} minutes; `python -m benchmarks.reliability {part}`.",
        "",
        "| attack | expected | tried | held | |",
        "|---|---|---:|---:|---|",
    ]
    lines += [
        f"| {row['attack']} | {row['expected']} | {row['tried']} | {row['held']} | {row['note']} |"
        for row in result["rows"]
    ]
    failures = list(_failures(result["rows"]))
    if failures:
        lines += ["", "What did not hold:", "", *failures]
    return "\n".join(lines) + "\n"


def _failures(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        for failure in row["failures"]:
            yield f"- {row['attack']}: `{' '.join(failure.split()).replace('`', chr(39))}`"


def _source(part: str) -> tuple[str, str]:
    """The title and the docstring of a part, read and not run: the page needs no torch."""
    tree = ast.parse((HERE / f"{part}.py").read_text(encoding="utf-8"))
    text = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TITLE":
            return str(ast.literal_eval(node.value)), text
    raise ValueError(f"{part} has no TITLE")


def _anchor(title: str) -> str:
    """As the site makes it from a heading."""
    return "-".join("".join(c if c.isalnum() or c in " -" else "" for c in title.lower()).split())
