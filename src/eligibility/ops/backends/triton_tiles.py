"""How a tile of logits is read, shaped and written; every function is for a Triton kernel.

An argument that is None counts as absent: what it would do is not compiled.
"""

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
