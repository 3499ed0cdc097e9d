"""The tutorials as notebooks: the same cells, with the outputs that the page shows."""

from __future__ import annotations

import re

import jupytext
import nbformat
from nbformat import NotebookNode

# What follows a code cell if the page shows what it prints.
_OUTPUT = re.compile(r"\A```text\n(.*?)^```$\n*", flags=re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"(\]\([^):]+)\.md\b")


def notebook_of(markdown: str) -> NotebookNode:
    """A page's Markdown as a notebook: each ``python`` block is a cell, in order.

    A ``text`` block that follows one becomes its output. Links to other pages lead to those of
    the site, next to which the notebook lies.
    """
    notebook = jupytext.reads(markdown, fmt="md")
    cells: list[NotebookNode] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            shown = _OUTPUT.match(cell.source)
            if shown and cells and cells[-1].cell_type == "code":
                cells[-1].outputs = [nbformat.v4.new_output("stream", text=shown[1])]
                cell.source = cell.source[shown.end() :]
            cell.source = _PAGE.sub(r"\1.html", cell.source)
        if cell.source:
            cells.append(cell)
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # else drawn at random: the same page, the same bytes
    notebook.cells = cells
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return notebook
