/* The row function for one element type; included by row_template.h, which defines the vectors.
 *
 * `plain` is known to the compiler: no mask, no soft-cap, no temperature, one action a row. */

#define NAME(stem) CONCAT(CONCAT(stem, TYPE), ISA)
#define COLUMN(name, index) (((const REAL *)task->name)[index])

#include "row_passes.h"

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

/* What is known of some rows, one number for each. */
struct NAME(block) {
    int64_t own[ROWS_AT_ONCE]; /* the action; NONE: counts, or many samples; REFUSED: it does not fit */
    REAL top[ROWS_AT_ONCE];
    double mass[ROWS_AT_ONCE], moment[ROWS_AT_ONCE];
    double total[ROWS_AT_ONCE], tallied[ROWS_AT_ONCE]; /* of what was chosen: Σ y and Σ y d */
    double log_mass[ROWS_AT_ONCE], log_prob[ROWS_AT_ONCE], entropy[ROWS_AT_ONCE];
    double g[ROWS_AT_ONCE], h[ROWS_AT_ONCE], q[ROWS_AT_ONCE];
    double c[ROWS_AT_ONCE], k[ROWS_AT_ONCE], at_own[ROWS_AT_ONCE];
};

/* What a run over rows works with. */
struct NAME(run) {
    const struct row_task *task;
    struct row_report *report;
    REAL *kept, *stored, *chosen; /* scratch, `room` numbers for each row of a block; chosen: zeros */
    double *prefix; /* as many as a row has vectors, if actions are drawn */
    int64_t room;
    bool with_entropy, by_columns;
};

INLINE struct NAME(row) NAME(row_at)(const struct NAME(run) *run, int64_t i, int64_t at,
                                     const bool plain) {
    const struct row_task *task = run->task;
    const bool transforms = !plain && (task->softcap != 0 || task->temperature != 1);
    return (struct NAME(row)){
        (const ELEMENT *)task->logits + i * task->logits_stride,
        !plain && task->mask ? task->mask + i * task->mask_stride : nullptr,
        transforms ? run->stored + at * run->room : nullptr,
        (REAL)task->temperature,
        (REAL)task->softcap,
        (REAL)(task->softcap / task->temperature),
    };
}

INLINE const REAL *NAME(counts_at)(const struct NAME(run) *run, int64_t i) {
    const struct row_task *task = run->task;
    return task->counts ? (const REAL *)task->counts + i * task->counts_stride : nullptr;
}

/* Row i, the first time: what its logits add up to. */
INLINE void NAME(measure)(const struct NAME(run) *run, struct NAME(block) *block, int64_t i,
                          int64_t at, bool is_last, const bool plain) {
    const struct row_task *task = run->task;
    const int64_t n = task->categories;
    struct NAME(row) row = NAME(row_at)(run, i, at, plain);
    REAL *kept = run->kept + at * run->room;
    block->own[at] = REFUSED;
    block->mass[at] = 1;
    if (!task->uniform && !NAME(is_in_range)(task, i)) {
        if (run->report->refused < 0) run->report->refused = i;
        return;
    }
    const REAL top = NAME(maximum)(&row, n, plain);
    const ELEMENT *next = is_last ? nullptr : row.x + task->logits_stride;
    const REAL *counts = plain ? nullptr : NAME(counts_at)(run, i);
    double mass, moment, total = 1, tallied = 0;
    if (run->with_entropy)
        NAME(sums)(&row, n, top, true, kept, next, &mass, &moment, plain);
    else
        NAME(sums)(&row, n, top, false, kept, next, &mass, &moment, plain);
    if (task->uniform) NAME(draw)(task, i, kept, run->prefix);
    block->own[at] = NONE;
    if (counts && !NAME(tally)(&row, counts, n, top, &total, &tallied)) {
        if (run->report->refused < 0) run->report->refused = i;
        block->own[at] = REFUSED;
    } else if (plain || (task->action && task->samples == 1)) {
        block->own[at] = task->action[i];
        tallied = (double)NAME(again)(&row, task->action[i], 1, plain)[0] - top;
    }
    block->top[at] = top, block->mass[at] = mass, block->moment[at] = moment;
    block->total[at] = total, block->tallied[at] = tallied;
}

/* log π of what was chosen, and the entropy, of all rows of a block. */
INLINE void NAME(conclude)(struct NAME(block) *block, int64_t rows, bool with_entropy) {
    for (int64_t at = 0; at < rows; at += DOUBLE_LANES) {
        DOUBLE(vector) mass = DOUBLE(read)(block->mass + at), log_mass = DOUBLE(logarithm)(mass);
        DOUBLE(vector) total = DOUBLE(read)(block->total + at);
        DOUBLE(write)(block->log_mass + at, log_mass);
        DOUBLE(write)(block->log_prob + at, DOUBLE(read)(block->tallied + at) - total * log_mass);
        if (with_entropy)
            DOUBLE(write)(block->entropy + at, log_mass - DOUBLE(read)(block->moment + at) / mass);
    }
}

/* The objective of row i, its derivatives, and what is known of the row, where it is wanted. */
INLINE void NAME(value)(const struct NAME(run) *run, struct NAME(block) *block, int64_t i,
                        int64_t at, const bool plain) {
    const struct row_task *task = run->task;
    const int64_t own = block->own[at];
    if (own == REFUSED) return;
    const REAL *counts = plain ? nullptr : NAME(counts_at)(run, i);
    REAL *chosen = run->chosen + at * run->room;
    struct NAME(row) row = NAME(row_at)(run, i, at, plain);
    const double log_mass = block->log_mass[at];
    const double entropy = run->with_entropy ? block->entropy[at] : 0.0;
    const double log_normalizer = block->top[at] + log_mass;
    const double cooling = plain ? 1.0 : 1.0 / task->temperature;
    struct NAME(slopes) slopes = {0, 0, 0, 0};
    for (int64_t s = 0; s < (plain ? 1 : task->samples); s++) {
        int64_t index = s * task->sample_stride + i;
        double log_prob = block->log_prob[at];
        if (!plain && own == NONE && !counts) {
            REAL z = NAME(again)(&row, task->action[index], 1, plain)[0];
            log_prob = (double)z - block->top[at] - log_mass;
        }
        if (!isfinite(log_prob) && run->report->impossible < 0) run->report->impossible = i;
        if (task->log_prob) ((REAL *)task->log_prob)[index] = (REAL)log_prob;
        double slope = NAME(sample)(task, index, log_prob, entropy, log_normalizer, &slopes);
        if (!plain && own == NONE && !counts) chosen[task->action[index]] += (REAL)slope;
    }
    if (task->bonus) {
        slopes.entropy += COLUMN(bonus, i);
        slopes.value += COLUMN(bonus, i) * entropy;
    }
    if (task->normalizer) {
        slopes.log_normalizer += COLUMN(normalizer, i);
        slopes.value += COLUMN(normalizer, i) * log_normalizer;
    }
    run->report->value += slopes.value;
    if (task->loss) ((REAL *)task->loss)[i] = (REAL)slopes.value;
    if (task->entropy) ((REAL *)task->entropy)[i] = (REAL)entropy;
    if (task->log_normalizer) ((REAL *)task->log_normalizer)[i] = (REAL)log_normalizer;
    block->g[at] = slopes.log_prob * cooling;
    block->h[at] = slopes.entropy * cooling;
    block->q[at] = slopes.log_normalizer * cooling;
}

/* π (−n g − h (H + log π) + q), with log π = d − log_mass and π = e^d / mass, of all rows of a
 * block; and at the action, where g is added, from 1 − π without cancellation. */
INLINE void NAME(derive)(struct NAME(block) *block, int64_t rows, bool with_entropy) {
    const DOUBLE(vector) nothing = DOUBLE(splat)(0.0);
    for (int64_t at = 0; at < rows; at += DOUBLE_LANES) {
        DOUBLE(vector) g = DOUBLE(read)(block->g + at), q = DOUBLE(read)(block->q + at);
        DOUBLE(vector) mass = DOUBLE(read)(block->mass + at), less_1;
        DOUBLE(vector) log_prob = DOUBLE(read)(block->log_prob + at);
        DOUBLE(vector) pi = DOUBLE(exponential_less_1)(log_prob, &less_1);
        DOUBLE(vector) c = q - DOUBLE(read)(block->total + at) * g, k = nothing;
        DOUBLE(vector) own = q * pi - DOUBLE(select)(g == 0.0, nothing, g * less_1);
        if (with_entropy) {
            DOUBLE(vector) h = DOUBLE(read)(block->h + at);
            DOUBLE(vector) entropy = DOUBLE(read)(block->entropy + at);
            c -= h * (entropy - DOUBLE(read)(block->log_mass + at));
            k = -h / mass;
            own -= h * pi * DOUBLE(select)(pi > 0.0, log_prob + entropy, nothing);
        }
        DOUBLE(write)(block->c + at, c / mass);
        DOUBLE(write)(block->k + at, k);
        DOUBLE(write)(block->at_own + at, own);
    }
}

/* Row i, the second time: its gradient. */
INLINE void NAME(emit)(const struct NAME(run) *run, struct NAME(block) *block, int64_t i,
                       int64_t at, const bool plain) {
    const struct row_task *task = run->task;
    const int64_t own = block->own[at];
    if (own == REFUSED) return;
    const REAL *counts = plain ? nullptr : NAME(counts_at)(run, i);
    const REAL *kept = run->kept + at * run->room;
    REAL *chosen = run->chosen + at * run->room;
    struct NAME(row) row = NAME(row_at)(run, i, at, plain);
    const struct NAME(mixture) mixture = {
        block->top[at],
        (REAL)block->c[at],
        (REAL)block->k[at],
        (REAL)(counts ? block->g[at] : 1.0 / task->temperature),
        counts ? counts : own == NONE ? chosen : nullptr,
    };
    ELEMENT *out = (ELEMENT *)task->gradient + i * task->gradient_stride;
    const int64_t n = task->categories;
    REAL derivative = 1; /* of the soft-cap at the action; read before `out` is written: one memory */
    if (!plain && own >= 0 && row.stored && row.softcap != 0)
        derivative = row.stored[own] < -1.5 ? 0 : 1 - row.stored[own] * row.stored[own];
    if (run->with_entropy)
        NAME(spread)(&row, &mixture, kept, n, out, task->stream != 0, true, plain);
    else
        NAME(spread)(&row, &mixture, kept, n, out, task->stream != 0, false, plain);
    if (own >= 0)
        NAME(store)(out + own, SPLAT((REAL)(block->at_own[at] * derivative)), 1);
    else if (!counts && task->action)
        for (int64_t s = 0; s < task->samples; s++)
            chosen[task->action[s * task->sample_stride + i]] = 0;
}

#include "row_columns.h"

INLINE void NAME(blocks)(const struct NAME(run) *run, int64_t start, int64_t stop, int64_t size,
                         const bool plain) {
    struct NAME(block) block;
    const bool by_columns = plain && run->by_columns;
    const int64_t group = by_columns ? LANES : 1;
    for (int64_t begin = start; begin < stop; begin += size) {
        const int64_t rows = begin + size < stop ? size : stop - begin;
        for (int64_t at = 0; at < rows; at += group)
            if (by_columns)
                NAME(measure_columns)(run, &block, begin + at, at, rows - at < group ? rows - at : group);
            else
                NAME(measure)(run, &block, begin + at, at, begin + at + 1 == stop, plain);
        for (int64_t at = rows; at % DOUBLE_LANES; at++) /* what fills up the last vectors */
            block.mass[at] = 1, block.moment[at] = block.total[at] = block.tallied[at] = 0,
            block.g[at] = block.h[at] = block.q[at] = 0;
        NAME(conclude)(&block, rows, run->with_entropy);
        for (int64_t at = 0; at < rows; at++) NAME(value)(run, &block, begin + at, at, plain);
        if (!run->task->gradient) continue;
        NAME(derive)(&block, rows, run->with_entropy);
        for (int64_t at = 0; at < rows; at += group)
            if (by_columns)
                NAME(emit_columns)(run, &block, begin + at, at, rows - at < group ? rows - at : group);
            else
                NAME(emit)(run, &block, begin + at, at, plain);
    }
}

/* Rows [start, stop). False if there is no memory for the scratch of one row. */
static bool NAME(rows)(const struct row_task *task, int64_t start, int64_t stop,
                       struct row_report *report) {
    const int64_t room = (task->categories + LANES - 1) / LANES * LANES + LANES;
    const bool plain = !task->mask && task->softcap == 0 && task->temperature == 1 &&
                       task->samples == 1 && !task->counts;
    int64_t size = SCRATCH / room;
    size = size < 1 ? 1 : size > ROWS_AT_ONCE ? ROWS_AT_ONCE : size;
    const int64_t part = size * room, parts = plain ? 2 : 3;
    const int64_t prefixes = task->uniform ? room / LANES : 0;
    void *scratch = malloc(parts * part * sizeof(REAL) + prefixes * sizeof(double) + ALIGNMENT);
    if (!scratch) return false;
    REAL *kept = (REAL *)(((uintptr_t)scratch + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!plain) memset(kept + 2 * part, 0, part * sizeof(REAL));
    const struct NAME(run) run = {
        task, report, kept, kept + part, kept + 2 * part, (double *)(kept + parts * part), room,
        task->entropy || task->bonus || task->scale_bonus != 0.0,
        sizeof(ELEMENT) == sizeof(REAL) && !task->uniform && task->categories <= SHORT_ROW,
    };
#if !WIDE /* for float64 the compiler need not work twice */
    if (plain)
        NAME(blocks)(&run, start, stop, size, true);
    else
#endif
        NAME(blocks)(&run, start, stop, size, false);
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
#undef LOAD_SOME
#undef STORE_SOME
