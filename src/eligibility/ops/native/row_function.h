/* The row function for one element type; included by row_template.h, which defines the vectors.
 *
 * `plain` is known to the compiler: no mask, no soft-cap, no temperature, one action a row. */

#define NAME(stem) CONCAT(CONCAT(stem, TYPE), ISA)
#define COLUMN(name, index) (((const REAL *)task->name)[index])

/* The logits of one row, as they go into the softmax. */
struct NAME(row) {
    const ELEMENT *x;
    const uint8_t *mask; /* NULL: all legal */
    REAL *stored;        /* scratch: what was computed of them once; NULL: they are taken as they are */
    REAL temperature, softcap, scale; /* scale = softcap / temperature */
};

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
    REAL result = -INFINITY;
    for (int lane = 0; lane < LANES; lane++)
        if (top[0][lane] > result) result = top[0][lane];
    return result;
}

/* Adds e^d to s and, for the entropy, e^d d to t, with d = z − top of the `count` logits at j. */
INLINE void NAME(add)(const struct NAME(row) *row, int64_t j, int64_t count, REAL top,
                      const bool with_entropy, REAL *kept, VECTOR *s, VECTOR *t, const bool plain) {
    VECTOR d = NAME(again)(row, j, count, plain) - top;
    VECTOR e = EXPONENTIAL(d);
    if (kept) memcpy(kept + j, &e, sizeof e);
    *s += e;
    if (with_entropy) *t += e * FINITE(d);
}

/* Σ e^d and Σ e^d d; keeps the e^d in `kept` and fetches the row `next`, if those are given. */
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
        for (int lane = 0; lane < LANES; lane++) *mass += s[0][lane], *moment += t[0][lane];
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

/* out = e^d (c + k d) + f y, times the derivative of the soft-cap. */
INLINE void NAME(spread)(const struct NAME(row) *row, int64_t n, REAL top, const REAL *kept, REAL c,
                         REAL k, const REAL *y, REAL f, ELEMENT *out, const bool stream,
                         const bool plain) {
    const int64_t line = LANES * sizeof(ELEMENT);
    int64_t beyond = (int64_t)((uintptr_t)out % line);
    int64_t j = 0, count = stream && beyond ? (line - beyond) / sizeof(ELEMENT) : LANES;
    for (; j < n; j += count, count = LANES) { /* aligned after the first step, if that matters */
        if (count > n - j) count = n - j;
        VECTOR value;
        memcpy(&value, kept + j, sizeof value);
        if (k != 0)
            value = value * (FINITE(NAME(again)(row, j, n - j, plain) - top) * k + c) + 0;
        else
            value = value * c + 0; /* what is impossible receives 0, not −0 */
        if (!plain && y) {
            VECTOR chosen = SPLAT(0);
            memcpy(&chosen, y + j, (n - j < LANES ? n - j : LANES) * sizeof(REAL));
            value += chosen * f;
        }
        if (!plain && row->softcap != 0) {
            VECTOR t;
            memcpy(&t, row->stored + j, sizeof t);
            value *= SELECT(t < -1.5, SPLAT(0), 1 - t * t);
        }
        if (stream && count == LANES)
            STREAM_ELEMENTS(out + j, value);
        else
            NAME(store)(out + j, value, count);
    }
}

/* What the objective of a row is, and its derivatives. */
struct NAME(slopes) {
    double value, log_prob, entropy, log_normalizer;
};

/* Adds what one sample contributes to the objective; its slope in log π(a) is returned. */
INLINE double NAME(sample)(const struct row_task *task, int64_t at, double log_prob,
                           double entropy, double log_normalizer, struct NAME(slopes) *sum) {
    double weight = task->weight ? (double)COLUMN(weight, at) : 1.0, slope = 0.0;
    if (weight == 0.0) return 0.0;
    if (task->advantage) {
        double advantage = COLUMN(advantage, at), scale = task->scale_advantage * weight;
        if (task->old) {
            double ratio = exp(log_prob - COLUMN(old, at));
            double bounded = ratio < task->clip_low    ? task->clip_low
                             : ratio > task->clip_high ? task->clip_high
                                                       : ratio;
            bool is_free = ratio * advantage <= bounded * advantage;
            slope = is_free ? scale * ratio * advantage : 0.0;
            sum->value += scale * (is_free ? ratio : bounded) * advantage;
        } else if (advantage != 0.0) {
            slope = scale * advantage;
            sum->value += slope * log_prob;
        }
    }
    if (task->reference) {
        double d = log_prob - COLUMN(reference, at), scale = task->scale_reference * weight;
        double kl = task->kl_estimator == 1 ? d : task->kl_estimator == 2 ? d * d / 2 : expm1(-d) + d;
        double by = task->kl_estimator == 1 ? 1.0 : task->kl_estimator == 2 ? d : -expm1(-d);
        sum->value += scale * kl;
        slope += scale * by;
    }
    if (task->scale_bonus != 0.0) {
        sum->value += task->scale_bonus * weight * entropy;
        sum->entropy += task->scale_bonus * weight;
    }
    if (task->scale_square != 0.0) {
        double square = task->scale_square * weight;
        sum->value += square * log_normalizer * log_normalizer;
        sum->log_normalizer += 2.0 * square * log_normalizer;
    }
    sum->log_prob += slope;
    return slope;
}

/* Whether all actions of a row are in range. */
INLINE bool NAME(is_in_range)(const struct row_task *task, int64_t i) {
    if (!task->action) return true;
    for (int64_t s = 0; s < task->samples; s++) {
        int64_t a = task->action[s * task->sample_stride + i];
        if (a < 0 || a >= task->categories) return false;
    }
    return true;
}

INLINE void NAME(one_row)(const struct row_task *task, int64_t i, bool is_last, REAL *scratch,
                          struct row_report *report, const bool plain) {
    const bool with_entropy = task->entropy || task->bonus || task->scale_bonus != 0.0;
    const int64_t n = task->categories, room = (n + LANES - 1) / LANES * LANES + LANES;
    const bool transforms = !plain && (task->softcap != 0 || task->temperature != 1);
    REAL *kept = task->gradient ? scratch : nullptr, *chosen = scratch + 2 * room;
    const ELEMENT *x = (const ELEMENT *)task->logits + i * task->logits_stride;
    struct NAME(row) row = {
        x,
        task->mask ? task->mask + i * task->mask_stride : nullptr,
        transforms ? scratch + room : nullptr,
        (REAL)task->temperature,
        (REAL)task->softcap,
        (REAL)(task->softcap / task->temperature),
    };
    if (!NAME(is_in_range)(task, i)) {
        if (report->refused < 0) report->refused = i;
        return;
    }
    const double cooling = plain ? 1.0 : 1.0 / task->temperature;
    double mass, moment, total = 1.0, tallied = 0.0;
    REAL top = NAME(maximum)(&row, n, plain);
    int64_t own = !plain && (!task->action || task->samples != 1) ? -1 : task->action[i];
    REAL own_logit = own < 0 ? 0 : NAME(again)(&row, own, 1, plain)[0];
    const REAL *counts = !plain && task->counts
                             ? (const REAL *)task->counts + i * task->counts_stride
                             : nullptr;
    const ELEMENT *next = is_last ? nullptr : x + task->logits_stride;
    if (with_entropy)
        NAME(sums)(&row, n, top, true, kept, next, &mass, &moment, plain);
    else
        NAME(sums)(&row, n, top, false, kept, next, &mass, &moment, plain);
    double log_mass = log(mass), entropy = with_entropy ? log_mass - moment / mass : 0.0;
    double log_normalizer = top + log_mass;
    if (counts && !NAME(tally)(&row, counts, n, top, &total, &tallied)) {
        if (report->refused < 0) report->refused = i;
        return;
    }
    struct NAME(slopes) slopes = {0, 0, 0, 0};
    double own_slope = 0.0, own_log_prob = 0.0;
    for (int64_t s = 0; s < task->samples; s++) {
        int64_t at = s * task->sample_stride + i;
        double log_prob = 0.0;
        if (counts) {
            log_prob = tallied - total * log_mass;
        } else {
            REAL z = own >= 0 ? own_logit : NAME(again)(&row, task->action[at], 1, plain)[0];
            log_prob = (double)z - top - log_mass;
        }
        if (!isfinite(log_prob) && report->impossible < 0) report->impossible = i;
        if (task->log_prob) ((REAL *)task->log_prob)[at] = (REAL)log_prob;
        own_slope = NAME(sample)(task, at, log_prob, entropy, log_normalizer, &slopes);
        own_log_prob = log_prob;
        if (kept && own < 0 && !counts) chosen[task->action[at]] += (REAL)own_slope;
    }
    if (task->bonus) {
        slopes.entropy += COLUMN(bonus, i);
        slopes.value += COLUMN(bonus, i) * entropy;
    }
    if (task->normalizer) {
        slopes.log_normalizer += COLUMN(normalizer, i);
        slopes.value += COLUMN(normalizer, i) * log_normalizer;
    }
    report->value += slopes.value;
    if (task->loss) ((REAL *)task->loss)[i] = (REAL)slopes.value;
    if (task->entropy) ((REAL *)task->entropy)[i] = (REAL)entropy;
    if (task->log_normalizer) ((REAL *)task->log_normalizer)[i] = (REAL)log_normalizer;
    if (!kept) return;
    /* π (−n g − h (H + log π) + q), with log π = d − log_mass and π = e^d / mass */
    ELEMENT *out = (ELEMENT *)task->gradient + i * task->gradient_stride;
    double g = slopes.log_prob * cooling, h = slopes.entropy * cooling;
    double q = slopes.log_normalizer * cooling;
    double c = q - total * g - h * (entropy - log_mass);
    const REAL *y = counts ? counts : own < 0 ? chosen : nullptr;
    REAL f = (REAL)(counts ? g : cooling);
    REAL derivative = 1; /* of the soft-cap at the action */
    if (own >= 0 && transforms && task->softcap != 0)
        derivative = row.stored[own] < -1.5 ? 0 : 1 - row.stored[own] * row.stored[own];
    NAME(spread)(&row, n, top, kept, (REAL)(c / mass), (REAL)(-h / mass), y, f, out,
                 task->stream != 0, plain);
    if (own >= 0) {
        double pi = exp(own_log_prob), surprise = pi > 0.0 ? own_log_prob + entropy : 0.0;
        double value = q * pi - h * pi * surprise; /* 1 − π_a without cancellation: */
        value -= g == 0.0 ? 0.0 : g * expm1(own_log_prob);
        NAME(store)(out + own, SPLAT((REAL)(value * derivative)), 1);
    } else if (!counts) {
        for (int64_t s = 0; s < task->samples; s++)
            chosen[task->action[s * task->sample_stride + i]] = 0;
    }
}

/* Rows [start, stop). False if there is no memory for the scratch of one row. */
static bool NAME(rows)(const struct row_task *task, int64_t start, int64_t stop,
                       struct row_report *report) {
    const int64_t room = (task->categories + LANES - 1) / LANES * LANES + LANES;
    const bool plain = !task->mask && task->softcap == 0 && task->temperature == 1 &&
                       task->samples == 1 && !task->counts;
    REAL *scratch = (REAL *)calloc((plain ? 1 : 3) * room, sizeof(REAL));
    if (!scratch) return false;
    for (int64_t i = start; i < stop; i++)
#if BYTES > 16 && !WIDE /* for the others the compiler need not work twice */
        if (plain)
            NAME(one_row)(task, i, i + 1 == stop, scratch, report, true);
        else
#endif
            NAME(one_row)(task, i, i + 1 == stop, scratch, report, false);
#if BYTES == 64
    if (task->stream) _mm_sfence();
#endif
    free(scratch);
    return true;
}

#undef NAME
#undef COLUMN
#undef TYPE
#undef ELEMENT
#undef LOAD_ELEMENTS
#undef STORE_ELEMENTS
#undef STREAM_ELEMENTS
