"""How large the probe of a program can be, and what its temperature is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from eligibility.audit.trainers.answers import answers
from eligibility.audit.trainers.tiny import LENGTH

MOST = 230  # outcomes of one policy


def longest(prompts: int, group: int) -> int:
    """The longest answers with which there are few enough outcomes; 0: there are too many."""
    for length in (LENGTH, LENGTH - 1):
        count = len(answers(length))
        if math.comb(count + group - 1, group) ** prompts <= MOST:
            return length
    return 0


def temperature_of(logits: Any, drawn: Any) -> float:
    """That with which a program draws itself; 1 if no temperature alone does what it does."""
    z, p = torch.tensor(logits), torch.tensor(drawn)
    if not (p > 0).all():
        return 1.0
    ratio = (z[..., 0] - z[..., 1]) / (p[..., 0] / p[..., 1]).log()
    middle = float(ratio.median())
    return middle if float((ratio / middle - 1).abs().max()) < 1e-6 else 1.0


def constants_by_promise(rows: int, listed: list[Any]) -> Iterator[Any]:
    """Whole numbers of a program, those first that can be how many answers it samples."""
    fitting = [tuple(each) for each in listed if each[3] <= rows and rows % each[3] == 0]
    yield from sorted(fitting, key=lambda each: -each[3])
