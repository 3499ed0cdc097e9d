/* The policy gradient over rows of logits, one row at a time, so that a row is read from memory once.
 *
 * For every row:   log_prob = z_a − lse,   entropy = −Σ π log π,   and if asked for
 *                  gradient = g (y − n π) − h π (log π + H) + q π,
 * with y the one-hot action or n counts, and g, h, q the derivatives of the objective with respect to
 * log_prob, entropy and lse. ops/backends/plain.py defines the same in torch; the tests compare the two.
 *
 * This file depends on neither Python nor torch. The row function is written once, in GCC's vector
 * extensions (row_template.h), and compiled for each instruction set; the widest that the processor
 * has is chosen when it is called.
 */
#include "rows.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MANY_INSTRUCTION_SETS 1
#include <immintrin.h>
#endif

using std::isfinite;

/* So many rows are measured before what follows from their sums is computed, side by side. */
#define ROWS_AT_ONCE 64
#define SCRATCH 4096 /* numbers e^d that are kept in the nearest cache */
#define SHORT_ROW 31 /* categories up to which LANES rows are taken at a time */
#define ALIGNMENT 64
#define NONE -1
#define REFUSED -2

#define CONCAT_(a, b) a##_##b
#define CONCAT(a, b) CONCAT_(a, b)

/* Fit of (2^r − 1)/r, |r| <= 1/2: the largest relative error of 2^r is 4e-9. */
#define EXP2_1 0.6931471824645996f
#define EXP2_2 0.24022643268108368f
#define EXP2_3 0.055503588169813156f
#define EXP2_4 0.009619002230465412f
#define EXP2_5 0.0013391304528340697f
#define EXP2_6 0.00015196693129837513f

/* Least-squares fit of (tanh x − x)/x³ in x², |x| <= 0.625. */
#define TANH_0 -0.3333333134651184f
#define TANH_1 0.1333320289850235f
#define TANH_2 -0.05394629389047623f
#define TANH_3 0.02169780433177948f
#define TANH_4 -0.008169565349817276f
#define TANH_5 0.0021352656185626984f

#define BYTES 16
#define ISA portable
#define WIDE 1
#include "row_template.h"
#undef WIDE
#define WIDE 0
#include "row_template.h"
#undef WIDE
#undef BYTES
#undef ISA

#ifdef MANY_INSTRUCTION_SETS
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define BYTES 32
#define ISA avx2
#define WIDE 1
#include "row_template.h"
#undef WIDE
#define WIDE 0
#include "row_template.h"
#undef WIDE
#undef BYTES
#undef ISA
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prefer-vector-width=512")
#define BYTES 64
#define ISA avx512
#define WIDE 1
#include "row_template.h"
#undef WIDE
#define WIDE 0
#include "row_template.h"
#undef WIDE
#undef BYTES
#undef ISA
#pragma GCC pop_options
#endif

typedef bool (*row_function)(const row_task *, int64_t, int64_t, row_report *);

static const char *const NAMES[] = {"portable", "avx2", "avx512"};
static const row_function FUNCTIONS[][4] = {
    /* float32, bfloat16, float16, float64 */
    {rows_float32_portable, rows_bfloat16_portable, rows_float16_portable, rows_float64_portable},
#ifdef MANY_INSTRUCTION_SETS
    {rows_float32_avx2, rows_bfloat16_avx2, rows_float16_avx2, rows_float64_avx2},
    {rows_float32_avx512, rows_bfloat16_avx512, rows_float16_avx512, rows_float64_avx512},
#endif
};

int eligibility_instruction_sets(void) {
#ifdef MANY_INSTRUCTION_SETS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        return 2;
#endif
    return 1;
}

const char *eligibility_instruction_set_name(int index) { return NAMES[index]; }

bool eligibility_rows(const row_task *task, int dtype, int instruction_set, int64_t start,
                      int64_t stop, row_report *report) {
    *report = {0.0, -1, -1};
    return FUNCTIONS[instruction_set][dtype](task, start, stop, report);
}
