"""Notebooks: their code cells are the program, and a finding names its cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.notebooks import script_of
from tests.audit.test_own_rewards import BATCH, BEGIN, END
from tests.audit.writing import LOSS, PROGRAM


def write_notebook(path: Path, cells: list[tuple[str, str]]) -> Path:
    written = [{"cell_type": kind, "source": text.splitlines(True)} for kind, text in cells]
    path.write_text(json.dumps({"cells": written, "nbformat": 4}), encoding="utf-8")
    return path


def test_code_cells_become_one_script_and_magics_do_nothing(tmp_path: Path) -> None:
    path = write_notebook(
        tmp_path / "n.ipynb",
        [
            ("markdown", "# Title"),
            ("code", "%matplotlib inline\na = 1"),
            ("code", "if a:\n  !ls \\\n   -l"),
        ],
    )
    text, places = script_of(path)
    assert text == "pass  # %matplotlib inline\na = 1\nif a:\n  pass  # !ls \\\n#    -l\n"
    assert places == ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3))


def test_a_finding_in_a_notebook_names_the_cell_and_its_line(tmp_path: Path) -> None:
    head, body = PROGRAM.split("for episode", 1)
    body = ("for episode" + body).replace(LOSS, "loss = (gamma_t * log_probs * returns).sum()")
    path = write_notebook(tmp_path / "n.ipynb", [("code", head), ("markdown", ""), ("code", body)])
    report = el.audit_script(path)
    (finding,) = report.findings
    assert report.verdict == "wrong-sign"
    assert finding.file == f"{path}#cell-3"
    assert body.splitlines()[finding.line - 1].strip().startswith("loss = ")


def test_a_reward_in_a_notebook_is_named_by_its_cell(tmp_path: Path) -> None:
    body = BEGIN + BATCH.strip("\n").replace("(4,)", "(400,)") + END
    head, loop = body.split("for step", 1)
    path = write_notebook(tmp_path / "n.ipynb", [("code", head), ("code", "for step" + loop)])
    report = el.audit_script(path, max_paths=60, samples=40)
    line = next(n for n, text in enumerate(loop.splitlines(), 1) if "rewards = " in text)
    assert any(f"`rewards` in line {line} of cell 2, which" in note for note in report.notes)
    assert any("400 is 6 at line 3 of cell 2" in note for note in report.notes), report.notes


def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(
        InvalidValueError, match="got a file that is not a Jupyter notebook, expected JSON"
    ):
        el.audit_script(path)
