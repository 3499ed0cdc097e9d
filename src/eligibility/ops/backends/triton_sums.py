"""The sums over a row that its statistics are made of; every function is for a Triton kernel.

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
def finite(x):
    """0 in place of −∞."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def row_sums(z):
    """The sums of whole rows ``[R, B]``."""
    top = tl.max(z, 1)
    d = z - finite(top)[:, None]
    e = tl.exp(d)
    return top, tl.sum(e, 1), tl.sum(e * tl.where(e == 0, 0.0, d), 1)


@triton.jit
def row_difference(z, r, top):
    """The sums over a reference, of whole rows."""
    r_top = tl.max(r, 1)
    d, d_r = z - finite(top)[:, None], r - finite(r_top)[:, None]
    e = tl.exp(d)
    return r_top, tl.sum(tl.exp(d_r), 1), tl.sum(e * tl.where(e == 0, 0.0, d - d_r), 1)


@triton.jit
def absorbed(z, top, total, weighted):
    """The sums of each lane ``[R, L]`` after ``z`` ``[R, L, G]`` has been added."""
    new = tl.maximum(top, tl.max(z, 2))
    shift = finite(new)
    d = z - shift[:, :, None]
    e = tl.exp(d)
    keep = tl.exp(top - shift)
    moved = tl.where(keep == 0, 0.0, top - shift)
    weighted = keep * (weighted + moved * total) + tl.sum(e * tl.where(e == 0, 0.0, d), 2)
    return new, keep * total + tl.sum(e, 2), weighted


@triton.jit
def absorbed_difference(z, r, top, total, new_top, r_top, r_total, difference):
    """The sums over a reference, to be taken with ``top`` and ``total`` from before `_absorbed`."""
    r_new = tl.maximum(r_top, tl.max(r, 2))
    shift, r_shift = finite(new_top), finite(r_new)
    d = z - shift[:, :, None]
    d_r = r - r_shift[:, :, None]
    e = tl.exp(d)
    keep = tl.exp(top - shift)
    moved = (top - shift) - tl.where(r_top == float("-inf"), 0.0, r_top - r_shift)
    kept = tl.where(keep == 0, 0.0, keep * (difference + moved * total))
    difference = kept + tl.sum(e * tl.where(e == 0, 0.0, d - d_r), 2)
    return r_new, tl.exp(r_top - r_shift) * r_total + tl.sum(tl.exp(d_r), 2), difference


@triton.jit
def joined(top, total, weighted):
    """The sums of a row ``[R]`` from those of its lanes ``[R, L]``."""
    row = tl.max(top, 1)
    shift = finite(row)[:, None]
    keep = tl.exp(top - shift)
    moved = tl.where(keep == 0, 0.0, top - shift)
    return row, tl.sum(keep * total, 1), tl.sum(keep * (weighted + moved * total), 1)


@triton.jit
def joined_difference(top, total, r_top, r_total, difference):
    row, r_row = tl.max(top, 1), tl.max(r_top, 1)
    shift, r_shift = finite(row)[:, None], finite(r_row)[:, None]
    keep = tl.exp(top - shift)
    moved = (top - shift) - tl.where(r_top == float("-inf"), 0.0, r_top - r_shift)
    kept = tl.where(keep == 0, 0.0, keep * (difference + moved * total))
    return r_row, tl.sum(tl.exp(r_top - r_shift) * r_total, 1), tl.sum(kept, 1)


@triton.jit
def store_statistics(results, stride, z_a, top, total, weighted, counts, exists):
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
