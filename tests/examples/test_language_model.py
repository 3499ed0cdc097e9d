"""The language-model example: learns a two-letter task, and both ways give the same gradients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the example needs the extra 'examples'")

FOLDER = Path(__file__).parents[2] / "examples" / "language_model"
TINY = [
    *("--symbols", "2", "--length", "2", "--vocabulary", "5", "--width", "16", "--layers", "1"),
    *("--prompts", "8", "--samples", "8", "--learning-rate", "1e-2"),
]


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=200, cwd=FOLDER
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def rewards(folder: Path) -> list[float]:
    lines = (folder / "curve.csv").read_text().splitlines()
    assert lines[0] == "step,seconds,reward,right"
    return [float(line.split(",")[2]) for line in lines[1:]]


def test_it_learns_to_sort_two_letters_and_agrees_with_plain_logits(tmp_path: Path) -> None:
    learn, compare = [*TINY, "--steps", "60", "--out", str(tmp_path)], [*TINY, "--compare"]
    output = run("-c", f"import train; train.main({learn!r}); train.main({compare!r})")
    found = rewards(tmp_path)
    assert len(found) == 60
    assert sum(found[-5:]) / 5 > sum(found[:5]) / 5 + 0.5
    assert "of 1000 fresh prompts" in output
    assert (tmp_path / "curve.png").stat().st_size > 1000
    largest_difference = float(output.split()[-1])
    assert largest_difference < 1e-5


def test_two_processes_share_a_batch(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run(*launcher, "train.py", *TINY, "--steps", "3", "--out", str(tmp_path))
    assert len(rewards(tmp_path)) == 3
