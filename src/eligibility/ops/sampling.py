"""Drawing categories and counts from weights, in float64; never what has no weight."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from eligibility.arguments import check_generator, check_sizes
from eligibility.ops.backends import fused_rows, plain, selection
from eligibility.ops.rows.categorical_call import CategoricalCall, check_logits_arguments
from eligibility.ops.rows.sample_node import native_sample, small_sample
from eligibility.shapes import (
    are_values_readable,
    check_logits,
    check_mask_rows,
    double_precision,
)

_ONE = torch.Size()


def categorical_sample(
    logits: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    sample_shape: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Draw actions from ``softmax(z)`` together with their log-probabilities.

    Each is the smallest k with ``π_0 + … + π_k > u``, for u uniform in [0, 1) with 53 bits.

    Args:
        logits, mask, temperature, softcap: As `eligibility.categorical_log_prob`.
        sample_shape: How many to draw for each row; default: one.
        generator: The source of randomness; default: torch's own.

    Returns:
        The actions, int64 ``[*sample_shape, *batch]``, and log π(action), of the same shape, which
        is differentiable and that of `eligibility.categorical_log_prob`.

    Raises:
        ShapeError, InvalidTypeError: The arguments do not fit together.
        InvalidValueError: A row has a NaN, or allows nothing.

    Notes:
        Where the native kernel serves, one pass over the logits gives both; it takes the uniform
        numbers that the plain way takes, so that both draw the same.

    Example:
        >>> action, log_prob = categorical_sample(torch.tensor([[0.0, 9.0], [9.0, float("-inf")]]),
        ...                                       mask=torch.tensor([True, False]))
        >>> action, log_prob
        (tensor([0, 0]), tensor([0., 0.]))
    """
    is_bare = mask is None and type(temperature) is float and temperature == 1.0
    if is_bare and softcap is None and type(sample_shape) is tuple and not sample_shape:
        drawn = small_sample(logits, generator)
        if drawn is not None:
            return drawn
    check_logits_arguments(logits, mask, temperature, softcap)
    check_generator(generator, logits.device)
    shape = check_sizes(sample_shape, "sample_shape")
    is_readable = are_values_readable(logits)
    if is_readable and mask is not None:
        check_mask_rows(mask)
    call = CategoricalCall(logits, None, None, mask, None, temperature, softcap)
    if call.is_fusable and not shape:
        drawn = fused_rows.sampled(call.kernel_rows(), generator)
        action, log_prob = (column.reshape(logits.shape[:-1]) for column in drawn)
        if not bool(log_prob.detach().isfinite().all()):
            check_logits(plain.masked(logits.detach(), mask))
        return action, log_prob
    if selection.pays(logits, one_pass=True) and call.is_native() and shape.numel() > 0:
        return native_sample(call, shape, generator)
    log_probs = plain.log_pmf(call.logits, mask)
    fixed = log_probs.detach()
    # A row without a distribution has a NaN after the softmax; nothing else has, so one sum tells.
    if is_readable and bool(fixed.sum().isnan()):
        check_logits(plain.masked(logits.detach(), mask))
    action = draw_categories(fixed.exp(), shape, generator)
    return action, plain.at_action(log_probs.expand(*action.shape, log_probs.shape[-1]), action)


def draw_categories(
    weights: Float[Tensor, "*batch K"],
    sample_shape: torch.Size = _ONE,
    generator: torch.Generator | None = None,
) -> Int[Tensor, ...]:
    r"""Draw indices ``[*sample_shape, *batch]`` with probabilities ``w/Σw``; never one of weight 0.

    The smallest k with ``w_0 + … + w_k > u Σw``, for u uniform in [0, 1). As u >= 0, a category
    without weight in front of all others is passed over; one behind them is out of reach, because u
    < 1 and ``u Σw`` rounded is less than Σw too: the spacing of the numbers below Σw is at most
    twice that of those below 1, relative to it. Probabilities of down to 2⁻⁵³ are resolved, also
    for weights in lower precision.

    Example:
        >>> draw_categories(torch.tensor([0.0, 1.0, 0.0]), torch.Size([4]))
        tensor([1, 1, 1, 1])
    """
    batch, categories = weights.shape[:-1], weights.shape[-1]
    rows, samples, device = batch.numel(), sample_shape.numel(), weights.device
    wide = double_precision(device)
    table = weights.detach().reshape(rows, categories)
    steps = table.cumsum(-1, dtype=wide)
    if device.type != "cpu":
        # A parallel sum may round two equal steps apart; a category without weight has none.
        steps = torch.where(table > 0, steps, 0.0).cummax(-1).values
    threshold = torch.rand(rows, samples, dtype=wide, device=device, generator=generator)
    threshold.mul_(steps.narrow(-1, categories - 1, 1))
    drawn = torch.searchsorted(steps, threshold, right=True)
    return (drawn if samples == 1 else drawn.T).reshape(sample_shape + batch)


def draw_counts(
    weights: Float[Tensor, "*batch K"],
    total_count: Shaped[Tensor, "*batch"],
    sample_shape: torch.Size = _ONE,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ...]:
    r"""Draw counts ``[*sample_shape, *batch, K]``: of n draws, how many fall on each category.

    Either draw by draw, or category by category, ``y_k ~ Binomial(n − Σ_{j<k} y_j, w_k / Σ_{j>=k}
    w_j)``: whichever takes fewer steps. They are float64 where the device has it.

    Example:
        >>> draw_counts(torch.tensor([0.0, 1.0]), torch.tensor(5))
        tensor([0., 5.], dtype=torch.float64)
    """
    draws = int(total_count.max()) if total_count.numel() else 0
    wide = weights.detach().to(double_precision(weights.device))
    shape = sample_shape + weights.shape
    if draws > weights.shape[-1]:
        return _draw_each_category(wide, total_count.to(wide.dtype).expand(shape[:-1]), generator)
    result = torch.zeros(shape, dtype=wide.dtype, device=wide.device)
    for draw in range(draws):
        index = draw_categories(wide, sample_shape, generator)
        taken = (draw < total_count).to(wide.dtype).expand(index.shape)
        result.scatter_add_(-1, index.unsqueeze(-1), taken.unsqueeze(-1))
    return result


def _draw_each_category(weights: Tensor, left: Tensor, generator: torch.Generator | None) -> Tensor:
    positive = weights > 0
    tail = weights.flip(-1).cumsum(-1).flip(-1)
    chance = torch.where(positive, weights / tail, 0.0)
    # The last category that has weight takes what is left, however the sum was rounded.
    is_last = positive & (positive.flip(-1).cumsum(-1).flip(-1) == 1)
    chance = torch.where(is_last, 1.0, chance).clamp(max=1.0)
    counts = []
    for column in chance.unbind(-1):
        drawn = torch.binomial(left, column.expand(left.shape), generator=generator)
        counts.append(drawn)
        left = left - drawn
    return torch.stack(counts, -1)
