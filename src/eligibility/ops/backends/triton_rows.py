"""How a tile of logits is read, shaped, summed and written: functions for the Triton kernels."""

from __future__ import annotations

import triton
import triton.language as tl


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
def logits_tile(logits, mask, column, inside, action, own, temperature, softcap):
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
def reference_tile(reference, mask, column, inside, temperature, softcap):
    if reference is None:
        return reference
    else:
        r, _ = logits_tile(reference, mask, column, inside, column, None, temperature, softcap)
        return r


@triton.jit
def chosen_logits(logits, mask, action, counts, own, temperature, softcap):
    """The shaped logit of each row's action."""
    here = mask
    if mask is not None:
        here = mask + action
    z, _ = logits_tile(
        logits + action, here, tl.arange(0, 1), counts[:, None], tl.zeros_like(action), own,
        temperature, softcap,
    )  # fmt: skip
    return tl.sum(z, 1)


@triton.jit
def write_tile(gradient, column, categories, exists, counts, value):
    """A tile of the gradient; rows that do not count get zeros."""
    value = tl.where(counts[:, None], value, 0.0).to(gradient.dtype.element_ty)
    inside = exists[:, None] & (column < categories)[None, :]
    tl.store(gradient[:, None] + column[None, :], value, mask=inside)


@triton.jit
def optional(pointer, row, counts):
    """One number a row, or None as it came."""
    if pointer is None:
        return pointer
    else:
        return tl.load(pointer + row, mask=counts, other=0.0).to(tl.float32)


@triton.jit
def row_pointers(pointer, row, stride):
    if pointer is None:
        return pointer
    else:
        return pointer + row * stride


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
    """The sums over a reference, to be taken with ``top`` and ``total`` from before `absorbed`."""
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
