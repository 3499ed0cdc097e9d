"""Drawing categories from weights by inverting their cumulative sum, in float64."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def draw_categories(
    weights: Float[Tensor, "*batch K"],
    samples: int,
    generator: torch.Generator | None = None,
) -> Int[Tensor, " S *batch"]:
    r"""Draw indices with probabilities ``w/Σw``; never one whose weight is 0.

    The smallest k with ``w_0 + … + w_k >= u Σw``, for u uniform in (0, 1]: as u > 0, a category
    without weight in front is passed over, and as u <= 1 the sum is reached at the last category
    that has weight.

    Args:
        weights: w >= 0 with a positive sum, shape ``[*batch, K]``. Not differentiated.
        samples: How many to draw for each row.
        generator: The source of randomness; default: torch's own.

    Returns:
        Indices in [0, K), shape ``[samples, *batch]``.

    Notes:
        Probabilities of down to 2⁻⁵³ are resolved, also for weights in lower precision.

    Example:
        >>> draw_categories(torch.tensor([0.0, 1.0, 0.0]), 4)
        tensor([1, 1, 1, 1])
    """
    batch, categories = weights.shape[:-1], weights.shape[-1]
    device = weights.device
    wide = torch.float32 if device.type == "mps" else torch.float64  # that device has no float64
    rows = weights.detach().reshape(batch.numel(), categories)
    steps = rows.cumsum(-1, dtype=wide)
    if device.type != "cpu":
        # A parallel sum may round two equal steps apart; a category without weight has none.
        steps = torch.where(rows > 0, steps, 0.0).cummax(-1).values
    uniform = torch.rand((rows.shape[0], samples), dtype=wide, device=device, generator=generator)
    threshold = (1 - uniform).mul_(steps[:, -1:])
    return torch.searchsorted(steps, threshold).T.reshape(samples, *batch)
