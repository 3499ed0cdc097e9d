"""What the tests of the Triton kernels share: where they run, how rows are cut, and problems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from eligibility.ops.backends import cpu, triton

pytest.importorskip("triton", reason="there is no triton for this system")
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if IS_INTERPRETED else "cuda")


@contextmanager
def kernels(looped: bool = False, rows: int = 8, block: int = 16) -> Iterator[None]:
    """Within it the kernels serve, and every result that they do not write shows as NaN.

    ``looped`` cuts rows into tiles of ``block``, each lane with 8 of them; else a row is one tile.
    """

    def tiling(categories: int, *_: object) -> triton._Tiling:
        width = max(4, 1 << (categories - 1).bit_length())
        if looped:
            return triton._Tiling(rows, block, 8, False)
        return triton._Tiling(rows, width, width, True)

    with (
        mock.patch.multiple(torch, empty=_poisoned(torch.empty)),
        mock.patch.multiple(torch, empty_like=_poisoned(torch.empty_like)),
        mock.patch.object(triton, "_tiling", tiling),
        mock.patch.object(cpu, "knows", return_value=False),
        np.errstate(all="ignore"),
    ):
        if IS_INTERPRETED:
            with triton.interpreted():
                yield
        else:
            yield


def _poisoned(empty: Any) -> Any:
    def new(*arguments: Any, **options: Any) -> Tensor:
        result: Tensor = empty(*arguments, **options)
        return result.fill_(torch.nan) if result.is_floating_point() else result

    return new


def problem(
    rows: int, categories: int, dtype: torch.dtype, seed: int = 0, scale: float = 4.0
) -> dict[str, Tensor]:
    """Logits and a reference with some −∞, a mask, legal actions, and numbers for each row."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    logits, reference = scale * normal(rows, categories), normal(rows, categories)
    mask = torch.rand((rows, categories), generator=generator) < 0.7
    action = torch.randint(categories, (rows,), generator=generator)
    everyone = torch.arange(rows)
    forbidden = torch.rand((rows, categories), generator=generator) < 0.1
    forbidden[everyone, action], mask[everyone, action] = False, True
    logits[forbidden] = -torch.inf  # the reference stays finite, so that KL does
    own = logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
    found = {
        "logits": logits.to(dtype),
        "ref_logits": reference.to(dtype),
        "mask": mask,
        "action": action,
        "advantage": normal(rows),
        "old_log_prob": own + 0.4 * normal(rows),
        "ref_log_prob": own + 0.8 * normal(rows),
        "weight": normal(rows).abs() * (torch.rand(rows, generator=generator) < 0.8),
        "upstream": normal(4, rows),
    }
    return {name: tensor.to(DEVICE) for name, tensor in found.items()}


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact.double()).abs().max()) if exact.numel() else 0.0


def grain(exact: Tensor, dtype: torch.dtype) -> float:
    """A few roundings of the largest number; granted where plain torch is luckily exact."""
    return 3 * torch.finfo(dtype).eps * max(1.0, float(exact.abs().max())) if exact.numel() else 0.0
