/* The row function for one element type; included by row_template.h, which defines the vectors. */

#define NAME(stem) CONCAT(CONCAT(stem, TYPE), ISA)

/* `count` <= LANES logits from `x`, −∞ where the mask forbids and beyond the end. */
INLINE VECTOR NAME(load)(const ELEMENT *x, const uint8_t *mask, int64_t count) {
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
}

INLINE void NAME(store)(ELEMENT *out, VECTOR value, int64_t count) {
    if (count >= LANES) {
        STORE_ELEMENTS(out, value);
    } else {
        ELEMENT padded[LANES];
        STORE_ELEMENTS(padded, value);
        for (int lane = 0; lane < count; lane++) out[lane] = padded[lane];
    }
}

INLINE float NAME(maximum)(const ELEMENT *x, const uint8_t *mask, int64_t n) {
    VECTOR top[UNROLL];
    for (int i = 0; i < UNROLL; i++) top[i] = SPLAT(-INFINITY);
    int64_t j = 0;
    for (; j + UNROLL * LANES <= n; j += UNROLL * LANES)
        for (int i = 0; i < UNROLL; i++) {
            int64_t k = j + i * LANES;
            top[i] = LARGER(NAME(load)(x + k, mask ? mask + k : nullptr, LANES), top[i]);
        }
    for (; j < n; j += LANES)
        top[0] = LARGER(NAME(load)(x + j, mask ? mask + j : nullptr, n - j), top[0]);
    for (int i = 1; i < UNROLL; i++) top[0] = LARGER(top[i], top[0]);
    float result = -INFINITY;
    for (int lane = 0; lane < LANES; lane++)
        if (top[0][lane] > result) result = top[0][lane];
    return result;
}

/* Adds e^d to s and, for the entropy, e^d d to t, with d = z − top of the `count` logits at x. */
INLINE void NAME(add)(const ELEMENT *x, const uint8_t *mask, int64_t count, float top,
                      bool with_entropy, float *kept, VECTOR *s, VECTOR *t) {
    VECTOR d = NAME(load)(x, mask, count) - top;
    VECTOR e = EXPONENTIAL(d);
    if (kept) memcpy(kept, &e, sizeof e);
    *s += e;
    if (with_entropy) *t += e * FINITE(d);
}

/* Σ e^d and Σ e^d d; keeps the e^d in `kept` and fetches the row `next`, if those are given. */
INLINE void NAME(sums)(const ELEMENT *x, const uint8_t *mask, int64_t n, float top, bool with_entropy,
                       float *kept, const ELEMENT *next, double *mass, double *moment) {
    *mass = *moment = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t j = start, end = start + BLOCK < n ? start + BLOCK : n;
        VECTOR s[UNROLL], t[UNROLL];
        for (int i = 0; i < UNROLL; i++) s[i] = t[i] = SPLAT(0);
        for (; j + UNROLL * LANES <= end; j += UNROLL * LANES) {
            for (int i = 0; i < UNROLL; i++) {
                int64_t k = j + i * LANES;
                NAME(add)(x + k, mask ? mask + k : nullptr, LANES, top, with_entropy,
                          kept ? kept + k : nullptr, &s[i], &t[i]);
            }
            for (size_t i = 0; next && i < UNROLL * LANES; i += 64 / sizeof(ELEMENT))
                __builtin_prefetch(next + j + i, 0, 2);
        }
        for (; j < end; j += LANES)
            NAME(add)(x + j, mask ? mask + j : nullptr, end - j, top, with_entropy,
                      kept ? kept + j : nullptr, &s[0], &t[0]);
        for (int i = 1; i < UNROLL; i++) s[0] += s[i], t[0] += t[i];
        for (int lane = 0; lane < LANES; lane++) *mass += s[0][lane], *moment += t[0][lane];
    }
}

/* out = e^d (c + k d): the gradient everywhere but at the action. */
INLINE void NAME(spread)(const ELEMENT *x, const uint8_t *mask, int64_t n, float top,
                         const float *kept, float c, float k, ELEMENT *out, bool stream) {
    const int64_t line = LANES * sizeof(ELEMENT);
    int64_t beyond = (int64_t)((uintptr_t)out % line);
    int64_t j = 0, count = stream && beyond ? (line - beyond) / sizeof(ELEMENT) : LANES;
    for (; j < n; j += count, count = LANES) { /* aligned after the first step, if that matters */
        if (count > n - j) count = n - j;
        VECTOR value;
        memcpy(&value, kept + j, sizeof value);
        if (k != 0.0f) {
            VECTOR d = NAME(load)(x + j, mask ? mask + j : nullptr, n - j) - top;
            value *= FINITE(d) * k + c;
        } else {
            value *= c;
        }
        if (stream && count == LANES)
            STREAM_ELEMENTS(out + j, value);
        else
            NAME(store)(out + j, value, count);
    }
}

/* The first row whose action is out of range (it is left out), −1 if none is, −2 out of memory. */
static int64_t NAME(rows)(const row_task *task) {
    int64_t n = task->categories, refused = -1;
    float *kept = task->gradient ? (float *)malloc((n + LANES) * sizeof(float)) : nullptr;
    if (task->gradient && !kept) return -2;
    for (int64_t i = 0; i < task->rows; i++) {
        const ELEMENT *x = (const ELEMENT *)task->logits + i * task->logits_stride;
        const uint8_t *mask = task->mask ? task->mask + i * task->mask_stride : nullptr;
        int64_t a = task->action[i];
        if (a < 0 || a >= n) {
            refused = refused < 0 ? i : refused;
            continue;
        }
        const ELEMENT *next = i + 1 < task->rows ? x + task->logits_stride : nullptr;
        float chosen = NAME(load)(x + a, mask ? mask + a : nullptr, 1)[0];
        float top = NAME(maximum)(x, mask, n);
        double mass, moment;
        if (task->entropy)
            NAME(sums)(x, mask, n, top, true, kept, next, &mass, &moment);
        else
            NAME(sums)(x, mask, n, top, false, kept, next, &mass, &moment);
        double log_mass = log(mass);
        float log_prob = (float)((double)chosen - top - log_mass);
        float entropy = (float)(log_mass - moment / mass);
        task->log_prob[i] = log_prob;
        if (task->entropy) task->entropy[i] = entropy;
        if (!task->gradient) continue;
        ELEMENT *out = (ELEMENT *)task->gradient + i * task->gradient_stride;
        float g = task->grad_log_prob ? task->grad_log_prob[i] : 0.0f;
        float h = task->grad_entropy ? task->grad_entropy[i] : 0.0f;
        /* π (−g − h H − h log π), with log π = d − log_mass and π = e^d / mass */
        double c = -g - h * (entropy - log_mass);
        NAME(spread)(x, mask, n, top, kept, (float)(c / mass), (float)(-h / mass), out,
                     task->stream != 0);
        float pi = expf(log_prob), surprise = pi > 0.0f ? log_prob + entropy : 0.0f;
        float own = -g * expm1f(log_prob) - h * pi * surprise; /* 1 − π_a without cancellation */
        NAME(store)(out + a, SPLAT(own), 1);
    }
#if BYTES == 64
    if (task->stream) _mm_sfence();
#endif
    free(kept);
    return refused;
}

#undef NAME
