"""Renderers: everything of the record is shown, within 80 columns, and LaTeX stays balanced."""

from __future__ import annotations

import io
import re
import shutil
import subprocess

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from torch.distributions import Binomial, Categorical

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.explanation.wording import cell, number, numbers_of, summary

EXPLANATION = el.explain(
    Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01])), value=torch.tensor(0), of="prob"
)


def test_text_shows_the_sections_in_order_within_80_columns() -> None:
    text = EXPLANATION.text()
    headings = ["∂ prob / ∂ probs", "WHY", "STEPS", "RULE", "CHECKS", "YOU EXPECTED"]
    positions = [text.index(heading) for heading in headings]
    assert positions == sorted(positions)
    assert max(map(cell_len, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 60, 120])
def test_text_folds_to_any_width(width: int) -> None:
    assert max(map(cell_len, EXPLANATION.text(width).splitlines())) <= width


def test_first_screen_answers_the_forum() -> None:
    first_screen = "\n".join(EXPLANATION.text().splitlines()[:24])
    for answer in ("0.3100", "-0.6900", "through the", "denominator", "1 + (-0.69) = 0.31"):
        assert answer in first_screen


def test_a_terminal_gets_colour() -> None:
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", width=100).print(EXPLANATION)
    assert "\x1b[" in stream.getvalue()


def test_latex_is_balanced_and_ascii_safe() -> None:
    for explanation in (
        EXPLANATION,
        el.explain(Binomial(3, torch.tensor(0.5)), value=torch.tensor(1.0)),
    ):
        document = explanation.latex()
        begun = re.findall(r"\\begin\{(\w+)\}", document)
        ended = re.findall(r"\\end\{(\w+)\}", document)
        assert sorted(begun) == sorted(ended)
        unescaped = re.sub(r"\\[{}]", "", document)
        assert unescaped.count("{") == unescaped.count("}")
        assert document.count(r"\[") == document.count(r"\]")
        assert len(re.findall(r"(?<!\\)\$", document)) % 2 == 0
        assert max(map(ord, document)) < 256
        assert "U+" not in document


def test_notebook_shows_the_rule_in_latex() -> None:
    latex = EXPLANATION._repr_latex_()
    assert latex.startswith("$$")
    assert r"\frac{\partial p}{\partial w_k}" in latex
    assert "0.31" in latex


def test_save_chooses_the_format_by_the_suffix(tmp_path) -> None:
    assert EXPLANATION.save(tmp_path / "a.txt").read_text(encoding="utf-8") == EXPLANATION.text()
    assert EXPLANATION.save(tmp_path / "a.tex").read_text(encoding="utf-8") == EXPLANATION.latex()
    assert (
        EXPLANATION.save(tmp_path / "a.json").read_text(encoding="utf-8") == EXPLANATION.to_json()
    )
    with pytest.raises(InvalidValueError, match=r"`path`: got 'a.docx', expected a name that ends"):
        EXPLANATION.save(tmp_path / "a.docx")


@pytest.mark.parametrize(
    ("value", "sentence", "entry"),
    [
        (0.31, "0.31", "0.3100"),
        (-0.69, "-0.69", "-0.6900"),
        (0.0, "0", "0.0000"),
        (-0.0, "0", "0.0000"),
        (2.061e-9, "2.061e-09", "2.061e-09"),
        (float("inf"), "inf", "inf"),
        (float("-inf"), "-inf", "-inf"),
        (float("nan"), "NaN", "NaN"),
    ],
)
def test_numbers_are_written_for_reading(value: float, sentence: str, entry: str) -> None:
    assert (number(value), cell(value)) == (sentence, entry)


def test_long_tensors_are_summarised() -> None:
    assert summary(numbers_of(torch.arange(1000.0))) == "1000 numbers from 0 to 999"
    assert summary(numbers_of(torch.zeros(3, 4))) == "3×4 numbers, each 0"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path) -> None:
    source = EXPLANATION.save(tmp_path / "derivation.tex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "derivation.pdf").stat().st_size > 10_000
