"""A notebook is explained as its code cells, and every place is a cell and a line of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eligibility.errors import InvalidValueError
from eligibility.explanation.script import explain_script

CELLS = [
    ("markdown", "# A policy of three categories"),
    ("code", "%matplotlib inline\nimport torch"),
    ("code", "%%bash\nfor x in 1 2; do echo line 3; done"),
    ("code", "import helper\n\nprobs = helper.weights()\nhidden = probs * 1.0"),
    ("code", "p = torch.distributions.Categorical(hidden).log_prob(torch.tensor(1))\np.backward()"),
    ("code", "print(hidden.grad)"),
]


def write(folder: Path, cells: list[tuple[str, str]]) -> Path:
    (folder / "helper.py").write_text(
        "import torch\n\n"
        "def weights():\n    return torch.tensor([0.2, 0.3, 0.5], requires_grad=True)\n"
    )
    path = folder / "lesson.ipynb"
    written = [{"cell_type": kind, "source": text.splitlines(True)} for kind, text in cells]
    path.write_text(json.dumps({"cells": written, "nbformat": 4}), encoding="utf-8")
    return path


def test_places_are_cells(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, CELLS))
    (call,) = found.calls
    assert (call.cell, call.line, call.place) == (5, 2, "cell 5, line 2")
    assert call.explanation.leaves[0].gradient is not None
    assert call.explanation.leaves[0].gradient.values == pytest.approx((-1, 1 / 0.3 - 1, -1))
    files = {(s.file, s.line) for step in call.explanation.steps for s in step.sources}
    assert ("lesson.ipynb#cell-4", 4) in files
    (missing,) = found.missing
    assert (missing.name, missing.place) == ("hidden", "cell 6, line 1")
    text = found.text()
    assert "cell 5, line 2: p.backward()" in text
    assert "cell 6, line 1: hidden.grad is None" in text
    assert "cell 5, line 2" in found.html()


def test_a_failure_is_told_in_cells(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, [*CELLS, ("code", "\np.backward()")]))
    assert len(found.calls) == 1
    assert found.failure.startswith("WHAT HAPPENED\ncell 7, line 2, `p.backward()` goes through")
    assert "was freed by cell 5, line 2, `p.backward()`" in found.failure
    assert 'File "lesson.ipynb", cell 7, line 2' in found.failure


def test_a_line_of_a_notebook_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="choose a backward pass by `tensor`"):
        explain_script(write(tmp_path, CELLS), line=3)
    with pytest.raises(InvalidValueError, match=r"none of them|p.backward\(\) in cell 5, line 2"):
        explain_script(write(tmp_path, CELLS), tensor="q")
