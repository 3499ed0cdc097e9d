"""Writes the page of each fault, and the two tables of ``docs/audit/README.md``, from the records.

    python -m docs.audit.faults

A test fails where a committed page differs.
"""

from __future__ import annotations

import re
from pathlib import Path

from eligibility.audit.faults import CHOICES, FAULTS

HERE = Path(__file__).parent


def pages() -> dict[Path, str]:
    """What each generated file holds."""
    made = {HERE / f"{fault.id}.md": fault.page() for fault in FAULTS.values()}
    index = HERE / "README.md"
    text = index.read_text(encoding="utf-8")
    faults = [f"| [`{f.id}`]({f.id}.md) | {f.title} |" for f in FAULTS.values()]
    choices = [f"| `{name}` | {means} |" for name, means in CHOICES.items()]
    for head, rows in (("| rule | title |", faults), ("| name | what it does |", choices)):
        table = "\n".join([head, "|---|---|", *rows])
        text = re.sub(rf"{re.escape(head)}\n(\|.*\n)*", lambda _, t=table: f"{t}\n", text)
    return {**made, index: text}


def main() -> None:
    """Write them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
