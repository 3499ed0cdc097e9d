"""The Triton kernels over rows of logits; `triton` launches them.

A program takes a few rows. Its tile of logits is read once and stays in registers where the row is
short enough (``one_tile``); a longer row is read in a loop that rescales what it has summed, and a
second time, backwards, for the gradient: what was read last is still in the cache. Each lane of
``group`` neighbours sums for itself, so that nothing but registers takes part until the row ends.

Everything is computed in float32; offsets are 64 bits wide. No sum depends on the order in which
programs run. An argument that is None counts as absent: what it would do is not compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from eligibility.ops.backends.triton_rows import (
    KL,
    LOSS,
    MEAN,
    REFERENCE_MEAN,
    REFERENCE_TOP,
    TOP,
    TOTAL,
    absorbed,
    absorbed_difference,
    chosen_logits,
    joined,
    joined_difference,
    logits_tile,
    optional,
    reference_tile,
    row_difference,
    row_pointers,
    row_sums,
    store_statistics,
    write_tile,
)


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


@triton.jit(do_not_specialize=["rows"])
def rows_kernel(
    logits, logits_stride, gradient, gradient_stride, reference, reference_stride,
    mask, mask_stride, action, own, results,
    by_log_prob, by_entropy, by_log_normalizer,
    factor, advantage, old_log_prob, ref_log_prob,
    rows, categories, temperature, softcap,
    entropy_coef, clip_low, clip_high, kl_coef, z_loss_coef,
    kl_estimator: tl.constexpr, block_rows: tl.constexpr, block: tl.constexpr,
    group: tl.constexpr, one_tile: tl.constexpr,
):  # fmt: skip
    """The statistics of rows and, with ``gradient``, the gradient of a loss.

    The loss is one of the slopes given, or else, with ``factor``, the policy loss of the other
    arguments times the factor; a row whose factor is 0 is not read.
    """
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    exists = row < rows
    counts = exists
    weight = optional(factor, row, exists)
    if factor is not None:
        counts = exists & (weight != 0)
    a = tl.load(action + row, mask=counts, other=0)
    tl.device_assert((a >= 0) & (a < categories), "an action is not in [0, K)")
    z_own = optional(own, row, counts)
    z_rows = logits + row * logits_stride
    m_rows = row_pointers(mask, row, mask_stride)
    r_rows = row_pointers(reference, row, reference_stride)

    z_a = chosen_logits(z_rows, m_rows, a, counts, z_own, temperature, softcap)

    if one_tile:
        column = tl.arange(0, block)
        inside = counts[:, None] & (column < categories)[None, :]
        z, slope = logits_tile(z_rows, m_rows, column, inside, a, z_own, temperature, softcap)
        r = reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
        row_top, row_total, row_weighted = row_sums(z)
        r_row, r_sum, r_mean = row_top, row_total, row_weighted
        if reference is not None:
            r_row, r_sum, r_mean = row_difference(z, r, row_top)
    else:
        lanes: tl.constexpr = block // group
        top = tl.full([block_rows, lanes], float("-inf"), tl.float32)
        total = tl.zeros([block_rows, lanes], tl.float32)
        weighted = tl.zeros([block_rows, lanes], tl.float32)
        r_top, r_total, difference = top, total, weighted
        for start in range(0, categories, block):
            column = start + tl.arange(0, block)
            inside = counts[:, None] & (column < categories)[None, :]
            z, _ = logits_tile(z_rows, m_rows, column, inside, a, z_own, temperature, softcap)
            z3 = tl.reshape(z, [block_rows, lanes, group])
            new, new_total, weighted = absorbed(z3, top, total, weighted)
            if reference is not None:
                r = reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
                r3 = tl.reshape(r, [block_rows, lanes, group])
                r_top, r_total, difference = absorbed_difference(
                    z3, r3, top, total, new, r_top, r_total, difference
                )
            top, total = new, new_total
        row_top, row_total, row_weighted = joined(top, total, weighted)
        r_row, r_sum, r_mean = row_top, row_total, row_weighted
        if reference is not None:
            r_row, r_sum, r_mean = joined_difference(top, total, r_top, r_total, difference)
    stride = rows.to(tl.int64)
    results += row
    log_prob, entropy, log_normalizer, mean = store_statistics(
        results, stride, z_a, row_top, row_total, row_weighted, counts, exists
    )

    g = optional(by_log_prob, row, counts)
    h = optional(by_entropy, row, counts)
    c = optional(by_log_normalizer, row, counts)
    k = None
    if reference is not None:
        r_mean = r_mean / row_total
        kl = r_mean - tl.log(row_total) + tl.log(r_sum)
        tl.store(results + KL * stride, tl.where(counts, kl, 0.0), mask=exists)
        tl.store(results + REFERENCE_TOP * stride, r_row, mask=exists)
        tl.store(results + REFERENCE_MEAN * stride, r_mean, mask=exists)
    if factor is not None:
        value, by_value = surrogate(
            log_prob,
            optional(advantage, row, counts),
            optional(old_log_prob, row, counts),
            clip_low,
            clip_high,
        )
        loss = -value
        g = -by_value
        if entropy_coef is not None:
            loss -= entropy_coef * entropy
            h = -entropy_coef * weight
        if kl_estimator != 0:
            value, by_value = estimated_kl(
                log_prob, optional(ref_log_prob, row, counts), kl_estimator
            )
            loss += kl_coef * value
            g += kl_coef * by_value
        elif reference is not None:
            loss += kl_coef * kl
            k = kl_coef * weight
        if z_loss_coef is not None:
            loss += z_loss_coef * log_normalizer * log_normalizer
            c = 2.0 * z_loss_coef * log_normalizer * weight
        g = g * weight
        tl.store(results + LOSS * stride, tl.where(counts, loss * weight, 0.0), mask=exists)

    if gradient is not None:
        g_rows = gradient + row * gradient_stride
        if one_tile:
            tile = gradient_tile(
                z, slope, r, column[None, :] == a[:, None], row_top, row_total, mean, r_row, r_mean,
                g, h, c, k,
            )  # fmt: skip
            write_tile(g_rows, column, categories, exists, counts, tile)
        else:
            tiles = tl.cdiv(categories, block)
            for backwards in range(tiles):
                column = (tiles - 1 - backwards) * block + tl.arange(0, block)
                inside = counts[:, None] & (column < categories)[None, :]
                z, slope = logits_tile(
                    z_rows, m_rows, column, inside, a, z_own, temperature, softcap
                )
                r = reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
                tile = gradient_tile(
                    z, slope, r, column[None, :] == a[:, None], row_top, row_total, mean, r_row,
                    r_mean, g, h, c, k,
                )  # fmt: skip
                write_tile(g_rows, column, categories, exists, counts, tile)


@triton.jit(do_not_specialize=["rows"])
def gradient_kernel(
    logits, logits_stride, gradient, gradient_stride, reference, reference_stride,
    mask, mask_stride, action, results,
    by_log_prob, by_entropy, by_log_normalizer, by_kl,
    rows, categories, temperature, softcap,
    block_rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The gradient for given slopes from the results of `rows_kernel`: one read of the logits."""
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    exists = row < rows
    a = tl.load(action + row, mask=exists, other=0)
    stride = rows.to(tl.int64)
    results += row
    top = tl.load(results + TOP * stride, mask=exists, other=0.0)
    total = tl.load(results + TOTAL * stride, mask=exists, other=1.0)
    mean = tl.load(results + MEAN * stride, mask=exists, other=0.0)
    r_top, r_mean = mean, mean
    if reference is not None:
        r_top = tl.load(results + REFERENCE_TOP * stride, mask=exists, other=0.0)
        r_mean = tl.load(results + REFERENCE_MEAN * stride, mask=exists, other=0.0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = exists[:, None] & (column < categories)[None, :]
    z_rows = logits + row * logits_stride
    m_rows = row_pointers(mask, row, mask_stride)
    r_rows = row_pointers(reference, row, reference_stride)
    z, slope = logits_tile(z_rows, m_rows, column, inside, a, None, temperature, softcap)
    r = reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
    value = gradient_tile(
        z, slope, r, column[None, :] == a[:, None], top, total, mean, r_top, r_mean,
        optional(by_log_prob, row, exists),
        optional(by_entropy, row, exists),
        optional(by_log_normalizer, row, exists),
        optional(by_kl, row, exists),
    )  # fmt: skip
    write_tile(gradient + row * gradient_stride, column, categories, exists, exists, value)


@triton.jit(do_not_specialize=["count"])
def scale_kernel(tensor, factor, count, block: tl.constexpr):
    """``tensor *= factor``; a factor of 1 is read, and nothing else."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(tensor + at, mask=at < count, other=0.0).to(tl.float32)
        tl.store(tensor + at, (value * by).to(tensor.dtype.element_ty), mask=at < count)
