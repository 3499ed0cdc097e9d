"""The tutorials as notebooks: the cells that `test_markdown` executes, and a reader can execute."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest

from tests.docs.test_markdown import ROOT, assert_same_output, blocks_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that announce what they will change
    import nbformat
    from nbclient import NotebookClient

    notebook_of = runpy.run_path(str(ROOT / "docs" / "site" / "notebooks.py"))["notebook_of"]

TUTORIALS = sorted((ROOT / "docs" / "learn").glob("*_*.md"))


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell printed; Rich prints as what a notebook displays."""
    return "".join(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in cell.outputs
    )


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_cells_and_outputs_are_the_blocks_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    notebook = notebook_of(text)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    blocks = [block for block in blocks_of(text) if block.language in ("python", "text")]
    wanted = [block.body.rstrip() for block in blocks if block.language == "python"]
    assert [cell.source.rstrip() for cell in cells] == wanted
    outputs = [printed(cell) for cell in cells if cell.outputs]
    assert outputs == [block.body for block in blocks if block.language == "text"]
    assert ".md)" not in "".join(cell.source for cell in notebook.cells)
    assert notebook_of(text) == notebook


def test_a_reader_who_runs_one_sees_what_the_page_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "learn" / "explain_your_gradient.md").read_text(encoding="utf-8")
    shown, run = notebook_of(text), notebook_of(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above: Jupyter's own
        NotebookClient(run, timeout=120).execute(cwd=str(tmp_path))
    for wanted, got in zip(shown.cells, run.cells, strict=True):
        if wanted.cell_type == "code":
            assert_same_output(printed(wanted), printed(got), wanted.source)
