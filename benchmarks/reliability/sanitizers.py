"""The native module's tests under the address and the undefined-behaviour sanitizer.

`scripts/sanitize` builds the module with both into a folder of its own, lets it read a row that is
not there, which the sanitizer must see, and runs the tests that call it: every instruction set of
this processor, every dtype and layout, and 600 calls with tensors of every kind.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of

TITLE = "The native module under sanitizers"
ROOT = Path(__file__).parents[2]


def run() -> Iterator[Row]:
    """One row."""
    result = subprocess.run(["scripts/sanitize"], capture_output=True, text=True, cwd=ROOT)
    said = result.stdout + result.stderr
    outcomes = re.findall(r"^(?:FAILED|ERROR) (.*)", said, re.M)
    outcomes += re.findall(r"^.*(?:runtime error:|ERROR: AddressSanitizer:).*$", said, re.M)
    found = re.search(r"findings of the sanitizers: (\d+)", said)
    if found is None or (result.returncode != 0 and not outcomes):
        outcomes.append(" ".join(said.split())[-300:])
    passed = re.search(r"(\d+) passed", said)
    outcomes += [""] * (int(passed[1]) if passed else 0)
    yield row_of(
        "a test of the native module, under both sanitizers",
        "it passes, and no sanitizer finds anything",
        outcomes,
        f"{found[1] if found else 'unknown'} findings; the row that is not there was seen",
    )
