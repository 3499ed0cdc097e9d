"""The Triton kernel that draws an action for each row of logits; `triton` launches it."""

import triton
import triton.language as tl

from eligibility.ops.backends.triton_rows import (
    absorbed,
    chosen_logits,
    joined,
    logits_tile,
    row_pointers,
    store_statistics,
)


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
    m_rows = row_pointers(mask, row, mask_stride)
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
        z, _ = logits_tile(z_rows, m_rows, column, inside, nobody, None, temperature, softcap)
        z3 = tl.reshape(z, [block_rows, lanes, group])
        top, total, weighted = absorbed(z3, top, total, weighted)
        bits = _random_bits(key, row, start // 4 + tl.arange(0, block // 4))
        noisy = z + _gumbel(tl.reshape(bits, [block_rows, block]))
        found, index = tl.max(tl.reshape(noisy, [block_rows, lanes, group]), 2, return_indices=True)
        index += start + (tl.arange(0, lanes) * group)[None, :]
        better = found > best
        best, chosen = tl.where(better, found, best), tl.where(better, index, chosen)
    row_best = tl.max(best, 1)
    # The first of equals; a row in which nothing is possible gives 0.
    a = tl.min(tl.where(best == row_best[:, None], chosen, categories - 1), 1)
    tl.store(action + row, a.to(tl.int64), mask=exists)
    z_a = chosen_logits(z_rows, m_rows, a, exists, None, temperature, softcap)
    sums = joined(top, total, weighted)
    store_statistics(
        results + row, rows.to(tl.int64), z_a, sums[0], sums[1], sums[2], exists, exists
    )


@triton.jit
def gumbel_kernel(bits, out, count: tl.constexpr):
    """The noise alone, for tests of its tails."""
    at = tl.arange(0, count)
    tl.store(out + at, _gumbel(tl.load(bits + at).to(tl.uint32, bitcast=True)))
