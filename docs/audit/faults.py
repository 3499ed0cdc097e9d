"""Writes what the records say into each fault's page, and the tables of ``docs/audit/README.md``.

    python -m docs.audit.faults

A page's example, how the fault is found and where it was seen are written by hand. A test fails
where a committed page differs in the rest.
"""

from __future__ import annotations

import re
from pathlib import Path

from eligibility.audit.faults import CHOICES, FAULTS, Fault

HERE = Path(__file__).parent
_SECTIONS = ("What it means", "Minimal example", "The fix", "How it is found", "Seen in")


def pages() -> dict[Path, str]:
    """What each generated file holds."""
    made = {_path(fault): _page(fault) for fault in FAULTS.values()}
    index = HERE / "README.md"
    text = index.read_text(encoding="utf-8")
    faults = [f"| [`{f.id}`]({f.id}.md) | {f.title} |" for f in FAULTS.values()]
    choices = [f"| `{choice.id}` | {choice.means} |" for choice in CHOICES.values()]
    for head, rows in (("| rule | title |", faults), ("| name | what it does |", choices)):
        table = "\n".join([head, "|---|---|", *rows])
        text = re.sub(rf"{re.escape(head)}\n(\|.*\n)*", lambda _, t=table: f"{t}\n", text)
    return {**made, index: text}


def _path(fault: Fault) -> Path:
    return HERE / f"{fault.id}.md"


def _page(fault: Fault) -> str:
    """Its page, with the title, what it means and the fix as the record has them."""
    path = _path(fault)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    held = dict(re.findall(r"^## (.+?)\n\n(.*?)\n(?=\n## |\Z)", text, re.MULTILINE | re.DOTALL))
    held["What it means"] = f"{fault.means[0].upper()}{fault.means[1:]}."
    held["The fix"] = f"```\n{fault.fix}\n```"
    parts = [f"## {name}\n\n{held[name]}" for name in _SECTIONS if name in held]
    return "\n\n".join([f"# {fault.title}", f"Rule id: `{fault.id}`", *parts]) + "\n"


def main() -> None:
    """Write them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
