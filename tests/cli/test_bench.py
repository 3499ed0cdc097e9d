"""``eligibility bench`` as a user runs it: what it writes, where, and how it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Command

PNG = b"\x89PNG\r\n"


SMALL = ("--sizes", "8x5, 40x300", "--rounds", "2", "--no-compile")


def test_json_has_every_contestant_at_every_size(eligibility: Command, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    out, plot = tmp_path / "figures" / "result.json", tmp_path / "bars.png"
    status, output, errors = eligibility(
        "bench", *SMALL, "--json", "--out", str(out), "--plot", str(plot)
    )
    assert status == 0
    result = json.loads(output)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert plot.read_bytes().startswith(PNG)
    assert errors.splitlines() == [
        "measuring float32 8 × 5",
        "measuring float32 8 × 5, entropy bonus 0.01",
        "measuring float32 40 × 300",
        "measuring float32 40 × 300, entropy bonus 0.01",
    ]
    assert result["left_out"]["torch.compile"] == "left out, as asked"
    assert {"python", "torch"} <= set(result["machine"]["versions"])
    assert len(result["tables"]) == 4
    assert result["roofline"]["copy_gb_per_s"] > 0
    assert set(result["roofline"]["matmul_gflop_per_s"]) == {"float32", "bfloat16"}
    for table in result["tables"]:
        figures = {figure["name"]: figure for figure in table["figures"]}
        assert {"eligibility", "Categorical", "cross_entropy", "a copy"} <= set(figures)
        assert figures["a copy"]["of_copy"] == 1
        assert all(figure["milliseconds"] > 0 for figure in figures.values())
    assert torch.get_num_threads() == threads


def test_table_names_units_and_machine(eligibility: Command) -> None:
    arguments = ("--sizes", "8x5", "--rounds", "1", "--no-compile", "--linear", "16x40x8")
    status, output, _ = eligibility("bench", *arguments)
    assert status == 0
    assert "float32 16 × 40 × 8, with 0.01 · entropy" in output
    assert "eligibility linear_reinforce_loss" in output
    assert "GB/s copied" in output
    assert "float32 8 × 5, with 0.01 · entropy" in output
    assert "log_softmax + gather" in output
    assert "1 thread, process time, median of 1 rounds" in output


def test_backends_say_what_serves_and_why(eligibility: Command) -> None:
    status, output, _ = eligibility("bench", "--backends")
    assert status == 0
    assert output.startswith("cpu: ")
    status, as_json, _ = eligibility("bench", "--backends", "--json")
    assert status == 0
    assert [f"{device}: {what}" for device, what in json.loads(as_json).items()] == (
        output.splitlines()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sizes", "256"],
            "error: `--sizes`: got '256', expected rows x categories; write it as 256x1024",
        ),
        (
            ["--sizes", "0x4"],
            "error: `--sizes`: got '0x4', expected rows x categories; write it as 256x1024",
        ),
        (
            ["--sizes", " "],
            "error: `--sizes`: got nothing, expected rows x categories; write it as 256x1024",
        ),
        (
            ["--sizes", "2x2", "--dtype", "int8"],
            "error: `--dtype`: got 'int8', expected float32 or bfloat16; choose one",
        ),
        (
            ["--dtype", "bfloat16"],
            "error: `--dtype`: got no --sizes, expected both; add --sizes, for instance 256x1024",
        ),
        (
            ["--linear", "8x8x8", "--dtype", "int8"],
            "error: `--dtype`: got 'int8', expected float32 or bfloat16; choose one",
        ),
        (
            ["--rounds", "0"],
            "error: `--rounds`: got 0, expected at least 1; pass a larger number",
        ),
        (
            ["--plot", "bars.docx"],
            "error: `--plot`: got 'bars.docx', expected a name that ends in .png, .svg, .pdf; "
            "choose another name",
        ),
    ],
)
def test_bad_input_is_one_line_with_status_2(
    eligibility: Command, arguments: list[str], message: str
) -> None:
    status, output, errors = eligibility("bench", *arguments)
    assert (status, output) == (2, "")
    assert errors.splitlines() == [message]


def test_a_picture_without_matplotlib_says_what_is_missing(
    eligibility: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, output, errors = eligibility("bench", "--plot", "bars.png")
    assert (status, output) == (2, "")
    assert errors == (
        "error: the package `matplotlib`: got no such package, expected eligibility with its train "
        'extra; pip install "eligibility[train]"\n'
    )
