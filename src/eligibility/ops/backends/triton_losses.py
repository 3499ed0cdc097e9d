"""The loss of a row, its slopes, and the gradient they give; for a Triton kernel."""

import triton
import triton.language as tl


@triton.jit
def surrogate(log_prob, advantage, old_log_prob, clip_low, clip_high):
    """The surrogate of a row, and its derivative by log_prob."""
    if old_log_prob is None:
        # 0 · −∞ has no value: an impossible action without an advantage contributes nothing.
        vain = (advantage == 0) & (log_prob == float("-inf"))
        return tl.where(vain, 0.0, advantage * log_prob), advantage
    else:
        ratio = tl.exp(log_prob - old_log_prob)
        free = ratio * advantage
        bound = tl.minimum(tl.maximum(ratio, 1.0 - clip_low), 1.0 + clip_high) * advantage
        return tl.where(free > bound, bound, free), tl.where(free <= bound, free, 0.0)


@triton.jit
def estimated_kl(log_prob, ref_log_prob, estimator: tl.constexpr):
    """The estimate k1, k2 or k3 from one sample, and its derivative by log_prob."""
    d = log_prob - ref_log_prob
    if estimator == 1:
        return d, tl.full(d.shape, 1.0, tl.float32)
    elif estimator == 2:
        return 0.5 * d * d, d
    else:
        # exp(−d) − 1 + d; where |d| is small its series, in which nothing cancels
        p = 1 / 362880 - d * (1 / 3628800)
        p = 1 / 720 - d * (1 / 5040 - d * (1 / 40320 - d * p))
        p = 1 / 2 - d * (1 / 6 - d * (1 / 24 - d * (1 / 120 - d * p)))
        falling = tl.exp(-d)
        near = tl.abs(d) < 1.0
        value = tl.where(near, d * d * p, falling - 1.0 + d)
        return value, tl.where(near, d - value, 1.0 - falling)


@triton.jit
def gradient_tile(
    z, slope, r, chosen, top, total, mean, r_top, r_mean,
    by_log_prob, by_entropy, by_log_normalizer, by_kl,
):  # fmt: skip
    """``g (y − π) − h π (log π + H) + c π + k π (log π − log π_ref − KL)``, by the raw logits."""
    d = z - top[:, None]
    e = tl.exp(d)
    level = -by_log_prob
    if by_log_normalizer is not None:
        level += by_log_normalizer
    level = level[:, None]
    if by_entropy is not None:  # log π + H is how far z is above its mean
        level = level - by_entropy[:, None] * (tl.where(e == 0, 0.0, d) - mean[:, None])
    if by_kl is not None:
        above = tl.where(e == 0, 0.0, d - (r - r_top[:, None]))
        level = level + by_kl[:, None] * (above - r_mean[:, None])
    value = tl.where(e == 0, 0.0, e * (1.0 / total)[:, None] * level)  # not −0, nor 0 · ∞
    return (value + tl.where(chosen, by_log_prob[:, None], 0.0)) * slope
