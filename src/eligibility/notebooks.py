"""Programs as text. A notebook is a script: its code cells one after the other, magics left out."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eligibility.errors import InvalidValueError

_MAGIC = ("%", "!")
# Magics of a whole cell whose body is still Python.
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%python")


def is_notebook(path: Path) -> bool:
    """Whether a path names a Jupyter notebook."""
    return path.suffix == ".ipynb"


def script_of(path: Path) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a notebook's code cells, and of each line its cell and its line there, from 1.

    Magics and shell commands become comments, as do whole cells of another language.
    """
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate(_cells(path), 1):
        if cell.get("cell_type") != "code":
            continue
        text = "".join(cell.get("source", cell.get("input", "")))
        start = text.lstrip()
        is_python = not start.startswith("%%") or start.startswith(_PYTHON_CELLS)
        goes_on = False  # whether the line continues a magic
        for line, content in enumerate(text.splitlines(), 1):
            bare = content.lstrip()
            indent = content[: len(content) - len(bare)]
            magic = bare.startswith(_MAGIC)
            if goes_on or not is_python:
                content = f"# {content}"
            elif magic:
                content = f"{indent}pass  # {bare}"
            goes_on = (magic or goes_on) and bare.endswith("\\")
            lines.append(content)
            places.append((number, line))
    return "\n".join(lines) + "\n", tuple(places)


def place_in_words(line: int, cell: int = 0) -> str:
    """A line of a script, or of one cell of a notebook.

    Example:
        >>> place_in_words(4), place_in_words(2, cell=3)
        ('line 4', 'cell 3, line 2')
    """
    return f"cell {cell}, line {line}" if cell else f"line {line}"


def parse_program(
    path: Path, text: str | bytes, cells: Sequence[tuple[int, int]] = ()
) -> ast.Module:
    """The syntax tree of a program, or of a notebook's script with the places of its lines.

    Raises:
        InvalidValueError: It is not Python; the error says where.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a run shows them
            return ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        cell, line = cells[line - 1] if line and line <= len(cells) else (0, line)
        where = f" ({place_in_words(line, cell)})" if line else ""
        raise InvalidValueError(
            f"`{path}`",
            f"text that is not Python{where}",
            "a Python program",
            "correct it, or pass the script that trains the policy",
        ) from error


def _cells(path: Path) -> list[dict[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = data["cells"] if "cells" in data else data["worksheets"][0]["cells"]
    except OSError as error:
        raise InvalidValueError(
            f"`{path}`", error.strerror or "an unreadable file", "a notebook", "check the path"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidValueError(
            f"`{path}`",
            "a file that is not a Jupyter notebook",
            "JSON with cells",
            "pass the script itself",
        ) from error
    return [cell for cell in found if isinstance(cell, dict)]
