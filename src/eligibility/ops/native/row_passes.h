/* The passes over one row: its largest logit, the sums of e^d, a draw, the gradient; included by
 * row_function.h. `plain` is known to the compiler: no mask, no soft-cap, no temperature, one action. */

/* The logits of one row, as they go into the softmax. */
struct NAME(row) {
    const ELEMENT *x;
    const uint8_t *mask; /* NULL: all legal */
    REAL *stored;        /* scratch: what was computed of them once; NULL: they are taken as they are */
    REAL temperature, softcap, scale; /* scale = softcap / temperature */
};

/* `count` >= 1 logits from `x`, −∞ where the mask forbids and beyond the end. */
INLINE VECTOR NAME(load)(const ELEMENT *x, const uint8_t *mask, int64_t count) {
#if BYTES == 64
    if (count >= LANES && !mask) return LOAD_ELEMENTS(x);
    uint32_t lanes = count >= LANES ? (1u << LANES) - 1 : (1u << count) - 1;
    VECTOR z = LOAD_SOME(x, lanes);
    if (mask) {
        __m128i legal = _mm_maskz_loadu_epi8(lanes, mask);
        lanes = _mm_test_epi8_mask(legal, legal);
    }
    return BLEND(lanes, z, SPLAT(-INFINITY));
#else
    VECTOR z;
    if (count >= LANES) {
        z = LOAD_ELEMENTS(x);
        if (mask) {
            FLAGS legal;
            memcpy(&legal, mask, sizeof legal);
            z = SELECT(__builtin_convertvector(legal, INTEGERS) != 0, z, SPLAT(-INFINITY));
        }
        return z;
    }
    ELEMENT padded[LANES] = {0};
    for (int lane = 0; lane < count; lane++) padded[lane] = x[lane];
    z = LOAD_ELEMENTS(padded);
    for (int lane = 0; lane < LANES; lane++)
        if (lane >= count || (mask && !mask[lane])) z[lane] = -INFINITY;
    return z;
#endif
}

INLINE void NAME(store)(ELEMENT *out, VECTOR value, int64_t count) {
    if (count >= LANES) {
        STORE_ELEMENTS(out, value);
        return;
    }
#if BYTES == 64
    STORE_SOME(out, (1u << count) - 1, value);
#else
    ELEMENT padded[LANES];
    STORE_ELEMENTS(padded, value);
    for (int lane = 0; lane < count; lane++) out[lane] = padded[lane];
#endif
}

/* z from what was stored: tanh, with −2 for what is forbidden, or z itself. */
INLINE VECTOR NAME(from_stored)(const struct NAME(row) *row, VECTOR kept) {
    if (row->softcap == 0) return kept;
    return SELECT(kept < -1.5, SPLAT(-INFINITY), kept * row->scale);
}

/* z at j, the first time. */
INLINE VECTOR NAME(first)(const struct NAME(row) *row, int64_t j, int64_t count, const bool plain) {
    VECTOR z = NAME(load)(row->x + j, plain || !row->mask ? nullptr : row->mask + j, count);
    if (plain || !row->stored) return z;
    if (row->softcap != 0) {
        VECTOR t = TANGENT(z / row->softcap);
        z = SELECT(z == -INFINITY, SPLAT(-2), t);
    } else {
        z = z / row->temperature;
    }
    memcpy(row->stored + j, &z, sizeof z);
    return NAME(from_stored)(row, z);
}

/* z at j, once more. */
INLINE VECTOR NAME(again)(const struct NAME(row) *row, int64_t j, int64_t count, const bool plain) {
    if (plain || !row->stored)
        return NAME(load)(row->x + j, plain || !row->mask ? nullptr : row->mask + j, count);
    VECTOR kept;
    memcpy(&kept, row->stored + j, sizeof kept);
    return NAME(from_stored)(row, kept);
}

INLINE REAL NAME(maximum)(const struct NAME(row) *row, int64_t n, const bool plain) {
    VECTOR top[UNROLL];
    for (int i = 0; i < UNROLL; i++) top[i] = SPLAT(-INFINITY);
    int64_t j = 0;
    for (; j + UNROLL * LANES <= n; j += UNROLL * LANES)
        for (int i = 0; i < UNROLL; i++)
            top[i] = LARGER(NAME(first)(row, j + i * LANES, LANES, plain), top[i]);
    for (; j < n; j += LANES) top[0] = LARGER(NAME(first)(row, j, n - j, plain), top[0]);
    for (int i = 1; i < UNROLL; i++) top[0] = LARGER(top[i], top[0]);
    return LARGEST_OF(top[0]);
}

/* Adds e^d to s and, for the entropy, e^d d to t, with d = z − top of the `count` logits at j. */
INLINE void NAME(add)(const struct NAME(row) *row, int64_t j, int64_t count, REAL top,
                      const bool with_entropy, REAL *kept, VECTOR *s, VECTOR *t, const bool plain) {
    VECTOR d = NAME(again)(row, j, count, plain) - top;
    VECTOR e = EXPONENTIAL(d);
    memcpy(kept + j, &e, sizeof e);
    *s += e;
    if (with_entropy) *t += e * FINITE(d);
}

/* Σ e^d and Σ e^d d; keeps the e^d in `kept` and fetches the row `next`, if there is one. */
INLINE void NAME(sums)(const struct NAME(row) *row, int64_t n, REAL top, const bool with_entropy,
                       REAL *kept, const ELEMENT *next, double *mass, double *moment,
                       const bool plain) {
    *mass = *moment = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t j = start, end = start + BLOCK < n ? start + BLOCK : n;
        VECTOR s[UNROLL], t[UNROLL];
        for (int i = 0; i < UNROLL; i++) s[i] = t[i] = SPLAT(0);
        for (; j + UNROLL * LANES <= end; j += UNROLL * LANES) {
            for (int i = 0; i < UNROLL; i++)
                NAME(add)(row, j + i * LANES, LANES, top, with_entropy, kept, &s[i], &t[i], plain);
            for (size_t i = 0; next && i < UNROLL * LANES; i += 64 / sizeof(ELEMENT))
                __builtin_prefetch(next + j + i, 0, 2);
        }
        for (; j < end; j += LANES)
            NAME(add)(row, j, end - j, top, with_entropy, kept, &s[0], &t[0], plain);
        for (int i = 1; i < UNROLL; i++) s[0] += s[i], t[0] += t[i];
        *mass += SUM_OF(s[0]);
        if (with_entropy) *moment += SUM_OF(t[0]);
    }
}

/* Σ y and Σ y d of counts y, 0 · −∞ being 0; whether none is negative or NaN. */
INLINE bool NAME(tally)(const struct NAME(row) *row, const REAL *counts, int64_t n, REAL top,
                        double *total, double *moment) {
    *total = *moment = 0.0;
    bool fits = true;
    for (int64_t j = 0; j < n; j += LANES) {
        VECTOR y = SPLAT(0), d = NAME(again)(row, j, n - j, false) - top;
        memcpy(&y, counts + j, (n - j < LANES ? n - j : LANES) * sizeof(REAL));
        VECTOR product = SELECT(y == 0, SPLAT(0), y * d);
        for (int lane = 0; lane < LANES; lane++) {
            fits = fits && y[lane] >= 0;
            *total += y[lane], *moment += product[lane];
        }
    }
    return fits;
}

/* Draws the actions of row i, each the smallest k with e_0 + … + e_k > u Σ e. `prefix` has room for
 * a number for each vector; the sums of a vector and those before it are the same for every sample.
 *
 * A category without weight is out of reach: the sum up to it is not larger than that before it. As
 * u < 1, u Σ e is less than Σ e, so that one is found, but for a row without a distribution. */
INLINE void NAME(draw)(const struct row_task *task, int64_t i, const REAL *kept, double *prefix) {
    const int64_t n = task->categories, vectors = (n + LANES - 1) / LANES;
    double total = 0.0;
    for (int64_t j = 0; j < vectors; j++) prefix[j] = total += SUM_OF(VECTOR_NAME(read)(kept + j * LANES));
    for (int64_t s = 0; s < task->samples; s++) {
        const double target = task->uniform[i * task->samples + s] * total;
        int64_t low = 0, high = vectors - 1; /* the first vector whose prefix is larger */
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (prefix[middle] > target)
                high = middle;
            else
                low = middle + 1;
        }
        double sum = low ? prefix[low - 1] : 0.0;
        int64_t drawn = low * LANES;
        for (int64_t k = drawn; k < n && k < (low + 1) * LANES; k++) {
            if (kept[k] > 0) drawn = k; /* the last with weight, if rounding leaves none larger */
            if ((sum += kept[k]) > target) break;
        }
        task->action[s * task->sample_stride + i] = drawn;
    }
}

/* How the gradient of a row follows from its e^d: e^d (c + k d) + f y. */
struct NAME(mixture) {
    REAL top, c, k, f;
    const REAL *y; /* NULL: none */
};

/* The gradient at j, times the derivative of the soft-cap. */
INLINE VECTOR NAME(mixed)(const struct NAME(row) *row, const struct NAME(mixture) *mixture,
                          const REAL *kept, int64_t j, int64_t count, const bool with_entropy,
                          const bool plain) {
    VECTOR value;
    memcpy(&value, kept + j, sizeof value);
    if (with_entropy) {
        VECTOR d = NAME(again)(row, j, count, plain) - mixture->top;
        value = value * (FINITE(d) * mixture->k + mixture->c) + 0;
    } else {
        value = value * mixture->c + 0; /* what is impossible receives 0, not −0 */
    }
    if (!plain && mixture->y) {
        VECTOR chosen = SPLAT(0);
        memcpy(&chosen, mixture->y + j, (count < LANES ? count : LANES) * sizeof(REAL));
        value += chosen * mixture->f;
    }
    if (!plain && row->softcap != 0) {
        VECTOR t;
        memcpy(&t, row->stored + j, sizeof t);
        value *= SELECT(t < -1.5, SPLAT(0), 1 - t * t);
    }
    return value;
}

INLINE void NAME(spread)(const struct NAME(row) *row, const struct NAME(mixture) *mixture,
                         const REAL *kept, int64_t n, ELEMENT *out, const bool stream,
                         const bool with_entropy, const bool plain) {
    int64_t j = 0;
    if (stream) { /* aligned after the first step */
        const int64_t line = LANES * sizeof(ELEMENT), beyond = (int64_t)((uintptr_t)out % line);
        j = beyond ? (line - beyond) / sizeof(ELEMENT) : 0;
        if (j > n) j = n;
        if (j) NAME(store)(out, NAME(mixed)(row, mixture, kept, 0, n, with_entropy, plain), j);
        for (; j + LANES <= n; j += LANES)
            STREAM_ELEMENTS(out + j, NAME(mixed)(row, mixture, kept, j, n - j, with_entropy, plain));
    }
    for (; j + LANES <= n; j += LANES)
        STORE_ELEMENTS(out + j, NAME(mixed)(row, mixture, kept, j, LANES, with_entropy, plain));
    if (j < n)
        NAME(store)(out + j, NAME(mixed)(row, mixture, kept, j, n - j, with_entropy, plain), n - j);
}
