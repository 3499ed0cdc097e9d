"""Has the native module read a row that is not there, so that a sanitizer must end this process:

python -m tests.ops.read_past_the_end FOLDER

FOLDER is where the package must have been loaded from.
"""

from __future__ import annotations

import sys

import torch

import eligibility
from eligibility.ops import _cpu

assert eligibility.__file__.startswith(sys.argv[1]), eligibility.__file__
assert _cpu._library is not None
logits, action, advantage = torch.zeros(64, 5), torch.zeros(65, dtype=torch.long), torch.zeros(65)
value, gradient = torch.zeros(()), torch.zeros(65, 5)
_cpu._library.loss(0, 0, value, logits, action, advantage, gradient, 65, 5, 1.0, 0.0)
