"""The Triton kernels over rows of logits; `_triton` launches them.

A program takes a few rows. Its tile of logits is read once and stays in registers where the row is
short enough (``one_tile``); a longer row is read in a loop that rescales what it has summed, and a
second time, backwards, for the gradient: what was read last is still in the cache. Each lane of
``group`` neighbours sums for itself, so that nothing but registers takes part until the row ends.

Everything is computed in float32; offsets are 64 bits wide. No sum depends on the order in which
programs run. An argument that is None is no argument: what it would do is not compiled.

With m the largest logit of a row, the sums are ``Σ e``, ``Σ e (z − m)`` for ``e = exp(z − m)``, and
with logits r of a reference and their maximum m', ``Σ exp(r − m')`` and ``Σ e (z − m − r + m')``.
"""

import triton
import triton.language as tl

# The rows of `results`.
LOSS = tl.constexpr(0)
LOG_PROB = tl.constexpr(1)
ENTROPY = tl.constexpr(2)
LOG_NORMALIZER = tl.constexpr(3)
KL = tl.constexpr(4)
TOP = tl.constexpr(5)  # m
TOTAL = tl.constexpr(6)  # Σ e
MEAN = tl.constexpr(7)  # Σ π (z − m)
REFERENCE_TOP = tl.constexpr(8)  # m'
REFERENCE_MEAN = tl.constexpr(9)  # Σ π (z − m − r + m')


@triton.jit
def _capped(x):
    """tanh x and its derivative, each to a unit in the last place; −∞ has the derivative 0."""
    e = tl.exp(-2.0 * tl.abs(x))
    far = 1.0 - 2.0 * e / (1.0 + e)
    s = x * x
    near = 0.02063786 - 0.00570404 * s  # least-squares fit of (tanh x / x − 1) / x² for |x| < 0.625
    near = (near * s - 0.05373916) * s + 0.13331432
    near = (near * s - 0.33333281) * s * x + x
    value = tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))
    return value, 4.0 * e / ((1.0 + e) * (1.0 + e))


@triton.jit
def _shaped(raw, temperature, softcap):
    """The logits as they go into the softmax, and their derivative by the raw ones."""
    z = raw
    slope = tl.full(raw.shape, 1.0, tl.float32)
    if softcap is not None:
        cap, slope = _capped(tl.div_rn(raw, softcap))
        z = tl.where(raw == float("-inf"), raw, softcap * cap)
    if temperature is not None:
        z = tl.div_rn(z, temperature)
        slope = tl.div_rn(slope, temperature)
    return z, slope


@triton.jit
def _tile(logits, mask, column, inside, action, own, temperature, softcap):
    """A tile of shaped logits, −∞ outside the row and where forbidden, and their slopes."""
    raw = tl.load(logits[:, None] + column[None, :], mask=inside, other=float("-inf"))
    raw = raw.to(tl.float32)
    if own is not None:
        raw = tl.where(column[None, :] == action[:, None], own[:, None], raw)
    z, slope = _shaped(raw, temperature, softcap)
    if mask is not None:
        legal = tl.load(mask[:, None] + column[None, :], mask=inside, other=0)
        z = tl.where(legal != 0, z, float("-inf"))
    return z, slope


@triton.jit
def _reference_tile(reference, mask, column, inside, temperature, softcap):
    if reference is None:
        return reference
    else:
        r, _ = _tile(reference, mask, column, inside, column, None, temperature, softcap)
        return r


@triton.jit
def _chosen(logits, mask, action, counts, own, temperature, softcap):
    """The shaped logit of each row's action."""
    here = mask
    if mask is not None:
        here = mask + action
    z, _ = _tile(
        logits + action, here, tl.arange(0, 1), counts[:, None], tl.zeros_like(action), own,
        temperature, softcap,
    )  # fmt: skip
    return tl.sum(z, 1)


@triton.jit
def _write(gradient, column, categories, exists, counts, value):
    """A tile of the gradient; rows that do not count get zeros."""
    value = tl.where(counts[:, None], value, 0.0).to(gradient.dtype.element_ty)
    inside = exists[:, None] & (column < categories)[None, :]
    tl.store(gradient[:, None] + column[None, :], value, mask=inside)


@triton.jit
def _finite(x):
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def _sums(z):
    """The sums of whole rows ``[R, B]``."""
    top = tl.max(z, 1)
    d = z - _finite(top)[:, None]
    e = tl.exp(d)
    return top, tl.sum(e, 1), tl.sum(e * tl.where(e == 0, 0.0, d), 1)


@triton.jit
def _difference_sums(z, r, top):
    """The sums over a reference, of whole rows."""
    r_top = tl.max(r, 1)
    d, d_r = z - _finite(top)[:, None], r - _finite(r_top)[:, None]
    e = tl.exp(d)
    return r_top, tl.sum(tl.exp(d_r), 1), tl.sum(e * tl.where(e == 0, 0.0, d - d_r), 1)


@triton.jit
def _absorbed(z, top, total, weighted):
    """The sums of each lane ``[R, L]`` after ``z`` ``[R, L, G]`` has been added."""
    new = tl.maximum(top, tl.max(z, 2))
    shift = _finite(new)
    d = z - shift[:, :, None]
    e = tl.exp(d)
    keep = tl.exp(top - shift)
    moved = tl.where(keep == 0, 0.0, top - shift)
    weighted = keep * (weighted + moved * total) + tl.sum(e * tl.where(e == 0, 0.0, d), 2)
    return new, keep * total + tl.sum(e, 2), weighted


@triton.jit
def _absorbed_difference(z, r, top, total, new_top, r_top, r_total, difference):
    """The sums over a reference, to be taken with ``top`` and ``total`` from before `_absorbed`."""
    r_new = tl.maximum(r_top, tl.max(r, 2))
    shift, r_shift = _finite(new_top), _finite(r_new)
    d = z - shift[:, :, None]
    d_r = r - r_shift[:, :, None]
    e = tl.exp(d)
    keep = tl.exp(top - shift)
    moved = (top - shift) - tl.where(r_top == float("-inf"), 0.0, r_top - r_shift)
    kept = tl.where(keep == 0, 0.0, keep * (difference + moved * total))
    difference = kept + tl.sum(e * tl.where(e == 0, 0.0, d - d_r), 2)
    return r_new, tl.exp(r_top - r_shift) * r_total + tl.sum(tl.exp(d_r), 2), difference


@triton.jit
def _joined(top, total, weighted):
    """The sums of a row ``[R]`` from those of its lanes ``[R, L]``."""
    row = tl.max(top, 1)
    shift = _finite(row)[:, None]
    keep = tl.exp(top - shift)
    moved = tl.where(keep == 0, 0.0, top - shift)
    return row, tl.sum(keep * total, 1), tl.sum(keep * (weighted + moved * total), 1)


@triton.jit
def _joined_difference(top, total, r_top, r_total, difference):
    row, r_row = tl.max(top, 1), tl.max(r_top, 1)
    shift, r_shift = _finite(row)[:, None], _finite(r_row)[:, None]
    keep = tl.exp(top - shift)
    moved = (top - shift) - tl.where(r_top == float("-inf"), 0.0, r_top - r_shift)
    kept = tl.where(keep == 0, 0.0, keep * (difference + moved * total))
    return r_row, tl.sum(tl.exp(r_top - r_shift) * r_total, 1), tl.sum(kept, 1)


@triton.jit
def _surrogate(log_prob, advantage, old_log_prob, clip_low, clip_high):
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
def _estimated_kl(log_prob, ref_log_prob, estimator: tl.constexpr):
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
def _gradient_tile(
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


@triton.jit
def _optional(pointer, row, counts):
    """One number a row, or None as it came."""
    if pointer is None:
        return pointer
    else:
        return tl.load(pointer + row, mask=counts, other=0.0).to(tl.float32)


@triton.jit
def _row_pointers(pointer, row, stride):
    if pointer is None:
        return pointer
    else:
        return pointer + row * stride


@triton.jit
def _store_statistics(results, stride, z_a, top, total, weighted, counts, exists):
    """Statistics from the sums of a row, and what the gradient needs; results as `rows_kernel`."""
    mean = weighted / total
    log_total = tl.log(total)
    log_prob, entropy, log_normalizer = z_a - top - log_total, log_total - mean, top + log_total
    tl.store(results + LOG_PROB * stride, tl.where(counts, log_prob, 0.0), mask=exists)
    tl.store(results + ENTROPY * stride, tl.where(counts, entropy, 0.0), mask=exists)
    tl.store(results + LOG_NORMALIZER * stride, tl.where(counts, log_normalizer, 0.0), mask=exists)
    tl.store(results + TOP * stride, top, mask=exists)
    tl.store(results + TOTAL * stride, total, mask=exists)
    tl.store(results + MEAN * stride, mean, mask=exists)
    return log_prob, entropy, log_normalizer, mean


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
    weight = _optional(factor, row, exists)
    if factor is not None:
        counts = exists & (weight != 0)
    a = tl.load(action + row, mask=counts, other=0)
    tl.device_assert((a >= 0) & (a < categories), "an action is not in [0, K)")
    z_own = _optional(own, row, counts)
    z_rows = logits + row * logits_stride
    m_rows = _row_pointers(mask, row, mask_stride)
    r_rows = _row_pointers(reference, row, reference_stride)

    z_a = _chosen(z_rows, m_rows, a, counts, z_own, temperature, softcap)

    if one_tile:
        column = tl.arange(0, block)
        inside = counts[:, None] & (column < categories)[None, :]
        z, slope = _tile(z_rows, m_rows, column, inside, a, z_own, temperature, softcap)
        r = _reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
        row_top, row_total, row_weighted = _sums(z)
        r_row, r_sum, r_mean = row_top, row_total, row_weighted
        if reference is not None:
            r_row, r_sum, r_mean = _difference_sums(z, r, row_top)
    else:
        lanes: tl.constexpr = block // group
        top = tl.full([block_rows, lanes], float("-inf"), tl.float32)
        total = tl.zeros([block_rows, lanes], tl.float32)
        weighted = tl.zeros([block_rows, lanes], tl.float32)
        r_top, r_total, difference = top, total, weighted
        for start in range(0, categories, block):
            column = start + tl.arange(0, block)
            inside = counts[:, None] & (column < categories)[None, :]
            z, _ = _tile(z_rows, m_rows, column, inside, a, z_own, temperature, softcap)
            z3 = tl.reshape(z, [block_rows, lanes, group])
            new, new_total, weighted = _absorbed(z3, top, total, weighted)
            if reference is not None:
                r = _reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
                r3 = tl.reshape(r, [block_rows, lanes, group])
                r_top, r_total, difference = _absorbed_difference(
                    z3, r3, top, total, new, r_top, r_total, difference
                )
            top, total = new, new_total
        row_top, row_total, row_weighted = _joined(top, total, weighted)
        r_row, r_sum, r_mean = row_top, row_total, row_weighted
        if reference is not None:
            r_row, r_sum, r_mean = _joined_difference(top, total, r_top, r_total, difference)
    stride = rows.to(tl.int64)
    results += row
    log_prob, entropy, log_normalizer, mean = _store_statistics(
        results, stride, z_a, row_top, row_total, row_weighted, counts, exists
    )

    g = _optional(by_log_prob, row, counts)
    h = _optional(by_entropy, row, counts)
    c = _optional(by_log_normalizer, row, counts)
    k = None
    if reference is not None:
        r_mean = r_mean / row_total
        kl = r_mean - tl.log(row_total) + tl.log(r_sum)
        tl.store(results + KL * stride, tl.where(counts, kl, 0.0), mask=exists)
        tl.store(results + REFERENCE_TOP * stride, r_row, mask=exists)
        tl.store(results + REFERENCE_MEAN * stride, r_mean, mask=exists)
    if factor is not None:
        value, by_value = _surrogate(
            log_prob,
            _optional(advantage, row, counts),
            _optional(old_log_prob, row, counts),
            clip_low,
            clip_high,
        )
        loss = -value
        g = -by_value
        if entropy_coef is not None:
            loss -= entropy_coef * entropy
            h = -entropy_coef * weight
        if kl_estimator != 0:
            value, by_value = _estimated_kl(
                log_prob, _optional(ref_log_prob, row, counts), kl_estimator
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
            tile = _gradient_tile(
                z, slope, r, column[None, :] == a[:, None], row_top, row_total, mean, r_row, r_mean,
                g, h, c, k,
            )  # fmt: skip
            _write(g_rows, column, categories, exists, counts, tile)
        else:
            tiles = tl.cdiv(categories, block)
            for backwards in range(tiles):
                column = (tiles - 1 - backwards) * block + tl.arange(0, block)
                inside = counts[:, None] & (column < categories)[None, :]
                z, slope = _tile(z_rows, m_rows, column, inside, a, z_own, temperature, softcap)
                r = _reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
                tile = _gradient_tile(
                    z, slope, r, column[None, :] == a[:, None], row_top, row_total, mean, r_row,
                    r_mean, g, h, c, k,
                )  # fmt: skip
                _write(g_rows, column, categories, exists, counts, tile)


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
    m_rows = _row_pointers(mask, row, mask_stride)
    r_rows = _row_pointers(reference, row, reference_stride)
    z, slope = _tile(z_rows, m_rows, column, inside, a, None, temperature, softcap)
    r = _reference_tile(r_rows, m_rows, column, inside, temperature, softcap)
    value = _gradient_tile(
        z, slope, r, column[None, :] == a[:, None], top, total, mean, r_top, r_mean,
        _optional(by_log_prob, row, exists),
        _optional(by_entropy, row, exists),
        _optional(by_log_normalizer, row, exists),
        _optional(by_kl, row, exists),
    )  # fmt: skip
    _write(gradient + row * gradient_stride, column, categories, exists, exists, value)


@triton.jit
def _uniform(bits):
    """A number in (0, 1) from 32 random bits, and 1 minus it, each to its own full precision."""
    half: tl.constexpr = 2.0**-33
    u = bits.to(tl.float32) * 2.0**-32 + half
    rest = (0xFFFFFFFF - bits).to(tl.float32) * 2.0**-32 + half
    return u, rest


@triton.jit
def _gumbel(bits):
    """``−log(−log u)`` for a uniform u; right also where u is all but 1."""
    u, rest = _uniform(bits)
    near = rest * (1.0 + rest * (0.5 + rest * (0.33333333 + rest * 0.25)))
    return -tl.log(tl.where(rest < 0.01, near, -tl.log(u)))


@triton.jit
def _random_bits(seed, row, quad):
    """32 bits for each of four neighbouring columns ``[R, B / 4, 4]``, by row and column alone."""
    nothing = tl.zeros([row.shape[0], quad.shape[0]], tl.uint32)
    low = (row & 0xFFFFFFFF).to(tl.uint32)[:, None] + nothing
    high = (row >> 32).to(tl.uint32)[:, None] + nothing
    b0, b1, b2, b3 = tl.philox(seed, quad.to(tl.uint32)[None, :] + nothing, low, high, nothing)
    return tl.join(tl.join(b0, b2), tl.join(b1, b3))


@triton.jit(do_not_specialize=["rows"])
def sample_kernel(
    logits, logits_stride, mask, mask_stride, seed, action, results,
    rows, categories, temperature, softcap,
    block_rows: tl.constexpr, block: tl.constexpr, group: tl.constexpr,
):  # fmt: skip
    """Draw ``argmax z + Gumbel noise``, and the statistics of `rows_kernel`: one read.

    The noise of a category is Philox-4x32-10 (Salmon et al. 2011) with the seed as its key and the
    column, divided by 4, and the row as its counter: it depends on nothing else.
    """
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    exists = row < rows
    z_rows = logits + row * logits_stride
    m_rows = _row_pointers(mask, row, mask_stride)
    key = tl.load(seed)
    lanes: tl.constexpr = block // group
    top = tl.full([block_rows, lanes], float("-inf"), tl.float32)
    total = tl.zeros([block_rows, lanes], tl.float32)
    weighted = tl.zeros([block_rows, lanes], tl.float32)
    best, chosen = top, tl.zeros([block_rows, lanes], tl.int32)
    nobody = tl.zeros([block_rows], tl.int32)
    for start in range(0, categories, block):
        column = start + tl.arange(0, block)
        inside = exists[:, None] & (column < categories)[None, :]
        z, _ = _tile(z_rows, m_rows, column, inside, nobody, None, temperature, softcap)
        z3 = tl.reshape(z, [block_rows, lanes, group])
        top, total, weighted = _absorbed(z3, top, total, weighted)
        bits = _random_bits(key, row, start // 4 + tl.arange(0, block // 4))
        noisy = z + _gumbel(tl.reshape(bits, [block_rows, block]))
        found, index = tl.max(tl.reshape(noisy, [block_rows, lanes, group]), 2, return_indices=True)
        index += start + (tl.arange(0, lanes) * group)[None, :]
        better = found > best
        best, chosen = tl.where(better, found, best), tl.where(better, index, chosen)
    row_best = tl.max(best, 1)
    # Of equals the first; a row without anything possible gives 0.
    a = tl.min(tl.where(best == row_best[:, None], chosen, categories - 1), 1)
    tl.store(action + row, a.to(tl.int64), mask=exists)
    z_a = _chosen(z_rows, m_rows, a, exists, None, temperature, softcap)
    sums = _joined(top, total, weighted)
    _store_statistics(
        results + row, rows.to(tl.int64), z_a, sums[0], sums[1], sums[2], exists, exists
    )


@triton.jit(do_not_specialize=["count"])
def scale_kernel(tensor, factor, count, block: tl.constexpr):
    """``tensor *= factor``; a factor of 1 is read, and nothing else."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(tensor + at, mask=at < count, other=0.0).to(tl.float32)
        tl.store(tensor + at, (value * by).to(tensor.dtype.element_ty), mask=at < count)


@triton.jit
def gumbel_kernel(bits, out, count: tl.constexpr):
    """The noise alone, for tests of its tails."""
    at = tl.arange(0, count)
    tl.store(out + at, _gumbel(tl.load(bits + at).to(tl.uint32, bitcast=True)))
