/* One call of the row functions: what to read, what to write. */
#pragma once
#include <cstdint>

/* The fields of a task, once for the struct, for what reads it from Python (module.cpp), and for the
 * check that Python means the same (FIELDS, `Task` in backends/row_task.py). The columns hold numbers of the type
 * that is computed in: double for float64 logits, else float. Columns marked [samples, rows] are
 * that, `sample_stride` elements from one sample to the next. */
#define ROW_POINTERS(FIELD)                                                                       \
    FIELD(const void, logits)      /* [rows, categories], rows `logits_stride` elements apart */  \
    FIELD(int64_t, action)         /* [samples, rows]; NULL: counts are given, or samples is 0 */ \
    FIELD(const double, uniform)   /* [rows, samples], in [0, 1): actions are drawn by them; NULL */ \
    FIELD(const void, counts)      /* [rows, categories], `counts_stride` apart; samples is 1 */  \
    FIELD(const uint8_t, mask)     /* nonzero = legal; rows `mask_stride` apart; NULL: all */     \
    FIELD(const void, advantage)   /* [samples, rows]; NULL: 0 */                                 \
    FIELD(const void, weight)      /* [samples, rows]; NULL: 1; where 0, it does not count */     \
    FIELD(const void, bonus)       /* [rows], derivative by the entropy; NULL: 0 */               \
    FIELD(const void, normalizer)  /* [rows], derivative by log Σ exp z; NULL: 0 */               \
    FIELD(const void, old)         /* [samples, rows], log π_old(a): clip the surrogate; NULL */  \
    FIELD(const void, reference)   /* [samples, rows], log π_ref(a), to estimate a KL; NULL */    \
    FIELD(void, log_prob)          /* [samples, rows]; NULL: not wanted */                        \
    FIELD(void, entropy)           /* [rows]; NULL: not wanted */                                 \
    FIELD(void, log_normalizer)    /* [rows]; NULL: not wanted */                                 \
    FIELD(void, loss)              /* [rows], the objective of a row; NULL: not wanted */         \
    FIELD(void, gradient)          /* [rows, categories], may be `logits`; NULL: not wanted */
#define ROW_NUMBERS(FIELD)                                                                        \
    FIELD(double, scale_advantage) /* of weight · advantage · log π(a) */                         \
    FIELD(double, scale_bonus)     /* of weight · entropy */                                      \
    FIELD(double, scale_square)    /* of weight · (log Σ exp z)² */                               \
    FIELD(double, scale_reference) /* of weight · KL estimate */                                  \
    FIELD(double, clip_low)        /* bounds of the ratio π/π_old */                              \
    FIELD(double, clip_high)                                                                      \
    FIELD(double, temperature)                                                                    \
    FIELD(double, softcap)         /* 0: none */
#define ROW_INTEGERS(FIELD)                                                                       \
    FIELD(int64_t, rows)                                                                          \
    FIELD(int64_t, categories)                                                                    \
    FIELD(int64_t, samples)                                                                       \
    FIELD(int64_t, sample_stride)                                                                 \
    FIELD(int64_t, logits_stride)                                                                 \
    FIELD(int64_t, counts_stride)                                                                 \
    FIELD(int64_t, mask_stride)                                                                   \
    FIELD(int64_t, gradient_stride)                                                               \
    FIELD(int64_t, kl_estimator)   /* 1, 2, 3: k1, k2, k3 */                                      \
    FIELD(int64_t, stream)         /* nonzero: write the gradient past the caches */

#define ROW_POINTER(type, name) type *name;
#define ROW_VALUE(type, name) type name;
struct row_task {
    ROW_POINTERS(ROW_POINTER)
    ROW_NUMBERS(ROW_VALUE)
    ROW_INTEGERS(ROW_VALUE)
};

/* What became of it. */
struct row_report {
    double value;       /* the objective: the sum of the losses */
    int64_t refused;    /* the first row whose action is out of range; −1: none is */
    int64_t impossible; /* the first row that counts and has no finite log π(a); −1: none */
};
