"""Notebooks as scripts: their code cells one after the other, without what is no Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.errors import InvalidValueError

_MAGIC = ("%", "!")


def is_notebook(path: Path) -> bool:
    """Whether a path names a Jupyter notebook."""
    return path.suffix == ".ipynb"


def script_of(path: Path) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a notebook's code cells, and of each line its cell and its line there, from 1.

    Magics and shell commands become comments: they start no training.
    """
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate(_cells(path), 1):
        if cell.get("cell_type") != "code":
            continue
        text = "".join(cell.get("source", cell.get("input", "")))
        for line, content in enumerate(text.splitlines(), 1):
            bare = content.lstrip()
            indent = content[: len(content) - len(bare)]
            lines.append(f"{indent}pass  # {bare}" if bare.startswith(_MAGIC) else content)
            places.append((number, line))
    return "\n".join(lines) + "\n", tuple(places)


def in_cells(report: AuditReport, script: Path, notebook: Path) -> AuditReport:
    """The report of a notebook's script, with each finding on its line of its cell."""
    _, places = script_of(notebook)

    def moved(finding: Finding) -> Finding:
        if finding.file != str(script) or not 0 < finding.line <= len(places):
            return finding
        cell, line = places[finding.line - 1]
        return replace(finding, file=f"{notebook}#cell-{cell}", line=line)

    return replace(report, findings=tuple(map(moved, report.findings)))


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
            f"`{path}`", "no notebook of Jupyter", "JSON with cells", "pass the script itself"
        ) from error
    return [cell for cell in found if isinstance(cell, dict)]
