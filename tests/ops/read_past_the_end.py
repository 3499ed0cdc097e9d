"""Has the native module read a row that is not there, so that a sanitizer must end this process:

python -m tests.ops.read_past_the_end FOLDER

FOLDER is where the package must have been loaded from.
"""

from __future__ import annotations

import sys

import torch

import eligibility
from eligibility.ops.backends import cpu


def read_past_the_end(folder: str) -> None:
    """One row more is asked for than the logits have."""
    assert eligibility.__file__.startswith(folder), eligibility.__file__
    assert cpu._library is not None
    rows = 65
    logits, action = torch.zeros(rows - 1, 5), torch.zeros(rows, dtype=torch.long)
    value, advantage, gradient = torch.zeros(()), torch.zeros(rows), torch.zeros(rows, 5)
    cpu._library.loss(0, 0, value, logits, action, advantage, gradient, rows, 5, 1.0, 0.0)


if __name__ == "__main__":
    read_past_the_end(sys.argv[1])
