/* The policy gradient over rows of logits, one row at a time, so that a row is read from memory once.
 *
 * For every row:   log_prob = z_a − lse,   entropy = −Σ π log π,   and if asked for
 *                  gradient = g (y − π) − h π (log π + H),
 * with y the one-hot action and g, h the derivatives of the objective with respect to the two.
 * ops/_plain.py defines the same in torch; the tests compare the two.
 *
 * This file depends on neither Python nor torch. The row function is written once, in GCC's vector
 * extensions (row_template.h), and compiled for each instruction set; the widest that the processor
 * has is chosen when it is called.
 */
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MANY_INSTRUCTION_SETS 1
#include <immintrin.h>
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

struct row_task {
    const void *logits;           /* [rows, categories], rows `logits_stride` elements apart */
    const int64_t *action;        /* [rows] */
    const uint8_t *mask;          /* nonzero = legal; rows `mask_stride` apart; NULL: all legal */
    const float *grad_log_prob;   /* g [rows]; NULL: 0 */
    const float *grad_entropy;    /* h [rows]; NULL: 0 */
    float *log_prob;              /* [rows] */
    float *entropy;               /* [rows]; NULL: not wanted */
    void *gradient;               /* [rows, categories], may be `logits`; NULL: not wanted */
    int64_t rows, categories, logits_stride, mask_stride, gradient_stride;
    int64_t stream;               /* nonzero: write the gradient past the caches */
};

#define CONCAT_(a, b) a##_##b
#define CONCAT(a, b) CONCAT_(a, b)

#define BYTES 16
#define ISA portable
#include "row_template.h"
#undef BYTES
#undef ISA

#ifdef MANY_INSTRUCTION_SETS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define BYTES 32
#define ISA avx2
#include "row_template.h"
#undef BYTES
#undef ISA
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#define BYTES 64
#define ISA avx512
#include "row_template.h"
#undef BYTES
#undef ISA
#pragma GCC pop_options
#endif

typedef int64_t (*row_function)(const row_task *);

static const char *const NAMES[] = {"portable", "avx2", "avx512"};
static const row_function FLOAT32[] = {
    rows_float32_portable,
#ifdef MANY_INSTRUCTION_SETS
    rows_float32_avx2, rows_float32_avx512,
#endif
};
static const row_function BFLOAT16[] = {
    rows_bfloat16_portable,
#ifdef MANY_INSTRUCTION_SETS
    rows_bfloat16_avx2, rows_bfloat16_avx512,
#endif
};

/* Grows when this interface changes: a library that was built before is not called then. */
EXPORT int eligibility_interface(void) { return 3; }

/* How many of NAMES this processor can run; the last of them is the fastest. */
EXPORT int eligibility_instruction_sets(void) {
#ifdef MANY_INSTRUCTION_SETS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 2;
#endif
    return 1;
}

EXPORT const char *eligibility_instruction_set_name(int index) { return NAMES[index]; }

/* The first row whose action is not in [0, categories): nothing is written for such rows. −1 if there
 * is none, −2 if there is no memory for one row. */
EXPORT int64_t eligibility_rows(const row_task *task, int is_bfloat16, int instruction_set) {
    return (is_bfloat16 ? BFLOAT16 : FLOAT32)[instruction_set](task);
}

/* value = Σ g log π(a) + h H; an impossible action with g = 0 contributes 0. */
EXPORT void eligibility_objective(int64_t rows, const float *g, const float *log_prob,
                                  const float *h, const float *entropy, float *value) {
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        if (g[i] != 0.0f) sum += (double)g[i] * log_prob[i];
        if (h) sum += (double)h[i] * entropy[i];
    }
    *value = (float)sum;
}
