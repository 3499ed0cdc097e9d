/* Short rows of float32 in a plain task, LANES at a time and a row in each lane: no lane idles, and
 * nothing is reduced across lanes. Included by row_function.h. */

/* Column j of `rows` <= LANES rows at `columns` + j LANES. Lanes beyond repeat the first row. */
INLINE void NAME(transpose)(const REAL *x, int64_t stride, int64_t rows, int64_t n, REAL *columns) {
#if BYTES == 64 && !WIDE
    if (stride <= INT32_MAX / LANES) {
        INTEGERS from;
        for (int32_t lane = 0; lane < LANES; lane++) from[lane] = lane < rows ? lane * (int32_t)stride : 0;
        for (int64_t j = 0; j < n; j++)
            VECTOR_NAME(write)(columns + j * LANES,
                               (VECTOR)_mm512_i32gather_ps((__m512i)from, x + j, sizeof(REAL)));
        return;
    }
#endif
    for (int64_t lane = 0; lane < LANES; lane++) {
        const REAL *row = x + (lane < rows ? lane : 0) * stride;
        for (int64_t j = 0; j < n; j++) columns[j * LANES + lane] = row[j];
    }
}

/* Adds each lane to its sum, in float64. */
INLINE void NAME(add_lanes)(VECTOR x, double *sums) {
    typedef REAL PART __attribute__((vector_size(DOUBLE_LANES * sizeof(REAL))));
    for (int lane = 0; lane < LANES; lane += DOUBLE_LANES) {
        PART part;
        memcpy(&part, (const char *)&x + lane * sizeof(REAL), sizeof part);
        DOUBLE(write)(sums + lane, DOUBLE(read)(sums + lane) + __builtin_convertvector(part, DOUBLE(vector)));
    }
}

/* As `measure`, of `rows` <= LANES rows. What is kept of a row: e^d, and d in `stored`. */
INLINE void NAME(measure_columns)(const struct NAME(run) *run, struct NAME(block) *block, int64_t i,
                                  int64_t at, int64_t rows) {
    const struct row_task *task = run->task;
    const int64_t n = task->categories, stride = task->logits_stride;
    const REAL *x = (const REAL *)task->logits + i * stride;
    REAL *kept = run->kept + at * run->room, *stored = run->stored + at * run->room;
    NAME(transpose)(x, stride, rows, n, stored);
    VECTOR top = SPLAT(-INFINITY);
    double mass[LANES] = {0}, moment[LANES] = {0};
    for (int64_t j = 0; j < n; j++) top = LARGER(VECTOR_NAME(read)(stored + j * LANES), top);
    for (int64_t j = 0; j < n; j++) {
        VECTOR d = VECTOR_NAME(read)(stored + j * LANES) - top, e = EXPONENTIAL(d);
        VECTOR_NAME(write)(kept + j * LANES, e);
        NAME(add_lanes)(e, mass);
        if (!run->with_entropy) continue;
        d = FINITE(d);
        VECTOR_NAME(write)(stored + j * LANES, d);
        NAME(add_lanes)(e * d, moment);
    }
    for (int64_t lane = 0; lane < rows; lane++, at++, i++, x += stride) {
        const int64_t own = task->action[i];
        const bool fits = own >= 0 && own < n;
        if (!fits && run->report->refused < 0) run->report->refused = i;
        block->own[at] = fits ? own : REFUSED;
        block->top[at] = top[lane], block->mass[at] = mass[lane], block->moment[at] = moment[lane];
        block->total[at] = 1, block->tallied[at] = fits ? (double)x[own] - top[lane] : 0;
    }
}

/* As `emit`, of the rows that `measure_columns` measured. */
INLINE void NAME(emit_columns)(const struct NAME(run) *run, const struct NAME(block) *block,
                               int64_t i, int64_t at, int64_t rows) {
    const struct row_task *task = run->task;
    const int64_t n = task->categories;
    REAL *kept = run->kept + at * run->room, *stored = run->stored + at * run->room;
    VECTOR c = SPLAT(0), k = SPLAT(0);
    for (int64_t lane = 0; lane < rows; lane++)
        c[lane] = (REAL)block->c[at + lane], k[lane] = (REAL)block->k[at + lane];
    for (int64_t j = 0; j < n; j++) {
        VECTOR factor = c;
        if (run->with_entropy) factor += VECTOR_NAME(read)(stored + j * LANES) * k;
        VECTOR_NAME(write)(kept + j * LANES, VECTOR_NAME(read)(kept + j * LANES) * factor + 0);
    }
    REAL *out = (REAL *)task->gradient + i * task->gradient_stride;
    for (int64_t lane = 0; lane < rows; lane++, at++, out += task->gradient_stride) {
        const int64_t own = block->own[at];
        if (own == REFUSED) continue;
        for (int64_t j = 0; j < n; j++) out[j] = kept[j * LANES + lane];
        out[own] = (REAL)block->at_own[at];
    }
}
