"""Writes the page of arguments from the table: python -m docs.reference.arguments."""

from __future__ import annotations

from pathlib import Path

from eligibility.arguments import TENSORS
from eligibility.scalars import CHOICES, NUMBERS

PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Arguments

One table checks these arguments wherever they occur, and this page is written from it. Every wrong
value raises an error of [`eligibility.errors`](errors.md) that says what was wrong, what was given,
what is expected and what to do.
"""
KINDS = {
    "floating": "float64, float32, bfloat16, float16",
    "integer": "int64, int32, int16, int8, uint8",
    "boolean": "bool",
    "real": "integer or floating",
}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page() -> str:
    """The text of the page."""
    numbers = [
        (
            f"`{name}`",
            entry.symbol or "–",
            f"{entry.domain}{' or None' if entry.may_be_none else ''}",
            entry.meaning,
        )
        for name, entry in NUMBERS.items()
    ]
    choices = [
        (f"`{name}`", ", ".join(f'`"{word}"`' for word in words)) for name, words in CHOICES.items()
    ]
    tensors = [
        (f"`{name}`", f"`{entry.shape}`", KINDS[entry.kind], entry.meaning)
        for name, entry in TENSORS.items()
    ]
    parts = (
        HEAD,
        "## Numbers\n",
        "Of Python or NumPy; True, False and tensors are refused.\n",
        table(("argument", "symbol", "is", "meaning"), numbers),
        "## Words\n",
        table(("argument", "one of"), choices),
        "## Tensors\n",
        "Dense, and on the device of the logits, hidden states, rewards or returns that they\n"
        "belong to. Shapes are checked exactly: nothing is broadcast silently.\n",
        table(("argument", "shape", "dtype", "meaning"), tensors),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
