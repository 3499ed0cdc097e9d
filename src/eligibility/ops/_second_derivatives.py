"""What a node does where autograd asks for more than its closed form gives: the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def by_definition(
    inputs: Sequence[Tensor | None],
    outputs: Callable[[], Sequence[Tensor]],
    upstream: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """The gradients at ``inputs``, themselves part of the graph; None where none is wanted.

    ``outputs`` is the definition, in operations that torch differentiates to any order.
    """
    wanted = [part for part in inputs if part is not None and part.requires_grad]
    with torch.enable_grad():
        pairs = [
            (output, gradient.to(output.dtype))
            for output, gradient in zip(outputs(), upstream, strict=True)
            if gradient is not None
        ]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in pairs],
                wanted,
                [gradient for _, gradient in pairs],
                create_graph=True,
            )
        )
    return tuple(next(found) if p is not None and p.requires_grad else None for p in inputs)
