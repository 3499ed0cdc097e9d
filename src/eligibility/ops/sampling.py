"""Drawing categories from weights by inverting their cumulative sum, in float64."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_ONE = torch.Size()


def draw_categories(
    weights: Float[Tensor, "*batch K"],
    sample_shape: torch.Size = _ONE,
    generator: torch.Generator | None = None,
) -> Int[Tensor, ...]:
    r"""Draw indices with probabilities ``w/Σw``; never one whose weight is 0.

    The smallest k with ``w_0 + … + w_k > u Σw``, for u uniform in [0, 1). As u >= 0, a category
    without weight in front of all others is passed over; one behind them is out of reach, because
    u < 1 and ``u Σw`` rounded is less than Σw too: the spacing of the numbers below Σw is at most
    twice that of those below 1, relative to it.

    Args:
        weights: w >= 0 with a positive sum, shape ``[*batch, K]``. Not differentiated.
        sample_shape: How many to draw for each row.
        generator: The source of randomness; default: torch's own.

    Returns:
        Indices in [0, K), shape ``[*sample_shape, *batch]``.

    Notes:
        Probabilities of down to 2⁻⁵³ are resolved, also for weights in lower precision.

    Example:
        >>> draw_categories(torch.tensor([0.0, 1.0, 0.0]), torch.Size([4]))
        tensor([1, 1, 1, 1])
    """
    batch, categories = weights.shape[:-1], weights.shape[-1]
    rows, samples, device = batch.numel(), sample_shape.numel(), weights.device
    wide = torch.float32 if device.type == "mps" else torch.float64  # that device has no float64
    table = weights.detach().reshape(rows, categories)
    steps = table.cumsum(-1, dtype=wide)
    if device.type != "cpu":
        # A parallel sum may round two equal steps apart; a category without weight has none.
        steps = torch.where(table > 0, steps, 0.0).cummax(-1).values
    threshold = torch.rand(rows, samples, dtype=wide, device=device, generator=generator)
    threshold.mul_(steps.narrow(-1, categories - 1, 1))
    drawn = torch.searchsorted(steps, threshold, right=True)
    return (drawn if samples == 1 else drawn.T).reshape(sample_shape + batch)
