"""Notebooks as scripts: their code cells one after the other, without what is not Python."""

from __future__ import annotations

import json
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
