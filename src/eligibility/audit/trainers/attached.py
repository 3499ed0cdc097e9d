"""Whether a policy's loss reaches parameters by another way than the logits, as a critic's values.

A loss of a policy and one of a critic are a sum, so the gradient at the logits does not depend on
what the critic computes with a gradient. In an advantage that is not detached they are a product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from eligibility.audit.interception.graph import nodes_below

Slopes = Sequence[Tensor | None]


def share_beside_logits(loss: Tensor, logits: Sequence[Tensor]) -> float:
    """How much of the slope of the gradient at the logits does not go through them.

    Parameters of one number are left out: the weight of a term may be learned with it.
    """
    made_from = nodes_below(loss.grad_fn, math.inf) if loss.grad_fn is not None else ()
    leaves = (node.variable for node in made_from if hasattr(node, "variable"))
    parameters = [leaf for leaf in leaves if leaf.numel() > 1]
    if not logits or not parameters:
        return 0.0
    with suppress(RuntimeError):  # something in it has no second derivative
        first = torch.autograd.grad(loss, logits, create_graph=True, allow_unused=True)
        moving = [slope for slope in first if slope is not None and slope.requires_grad]
        if not moving:
            return 0.0
        weighed = sum((_generic(slope) * slope).sum() for slope in moving)
        assert isinstance(weighed, Tensor)
        at_logits = _slopes(weighed, logits)
        pairs = [(z, s) for z, s in zip(logits, at_logits, strict=True) if s is not None]
        whole = _slopes(weighed, parameters)
        through: Slopes = [None] * len(parameters)
        if pairs:
            outputs, given = zip(*pairs, strict=True)
            through = torch.autograd.grad(
                outputs, parameters, given, retain_graph=True, allow_unused=True
            )
        size = _flat(whole, parameters).norm()
        beside = (_flat(whole, parameters) - _flat(through, parameters)).norm()
        return float(beside / size) if size else 0.0
    return 0.0


def _slopes(value: Tensor, by: Sequence[Tensor]) -> Slopes:
    return torch.autograd.grad(value, by, retain_graph=True, allow_unused=True)


def _generic(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 1.0 + torch.rand(like.shape, generator=generator, dtype=like.dtype)


def _flat(slopes: Slopes, parameters: Sequence[Tensor]) -> Tensor:
    pairs = zip(slopes, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if s is None else s).flatten() for s, p in pairs])
