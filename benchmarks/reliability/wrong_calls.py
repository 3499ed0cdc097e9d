"""Every public callable, called wrongly: one clear error in our words answers each.

Each argument of each callable takes each kind of nonsense, the others being right: numbers out of
range, NaN and text, tensors of another kind, dtype, layout, device and shape, words that are no
choice. To these come calls whose arguments contradict each other. All run in one process, so that a
signal would be seen; an error is clear if it says what, got, expected and remedy in one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of

TITLE = "Wrong calls"
ROOT = Path(__file__).parents[2]


def run() -> Iterator[Row]:
    """A row for the arguments that are walked, and one for what is written out."""
    command = [sys.executable, "-m", "tests.wrong_calls"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        last = (result.stderr.splitlines() or ["nothing was said"])[-1]
        yield row_of("all", "an end", [f"status {result.returncode} after {last}"])
        return
    found = json.loads(result.stdout.splitlines()[-1])
    for attack, names in found["names"].items():
        wrong = found["wrong"]
        outcomes = [f"{name}: {wrong[name]}" if name in wrong else "" for name in names]
        yield row_of(attack, "one line: what, got, expected, remedy", outcomes)
