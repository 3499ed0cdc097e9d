"""Random losses and their gradients against float64.

Function, shapes, dtype, layout in memory, samples, counts, mask, weights, ignored rows, entropy,
clip, KL, z-loss, temperature, soft-cap and reduction are drawn; the value and the gradient for an
upstream gradient other than 1 are compared with the definition in float64, written down once more.
Allowed are 256 roundings of what is computed in, of the largest number that enters, and four of a
half-precision result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reliability.row import Row, row_of

TITLE = "Random losses"
LOSSES = 5000
ROOT = Path(__file__).parents[2]


def run() -> Iterator[Row]:
    """A row for each function."""
    command = [sys.executable, "-m", "tests.ops.random_losses", str(LOSSES)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        last = (result.stderr.splitlines() or ["nothing was said"])[-1]
        yield row_of("all", "an end", [f"status {result.returncode} after {last}"])
        return
    for function, found in json.loads(result.stdout.splitlines()[-1]).items():
        outcomes = [f"seed {seed}" for seed in found["wrong"]]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found["kinds"].items()))
        yield row_of(
            f"`{function}`",
            "loss and gradient as exact as allowed",
            outcomes + [""] * (found["losses"] - len(outcomes)),
            f"largest error {100 * found['largest']:.0f} % of what is allowed; {kinds}",
        )
