/* One call of the row functions: what to read, what to write. */
#pragma once
#include <cstdint>

/* The columns hold numbers of the type that is computed in: double for float64 logits, else float.
 * Columns marked [samples, rows] are that, `sample_stride` elements from one sample to the next. */
struct row_task {
    const void *logits;      /* [rows, categories], rows `logits_stride` elements apart */
    int64_t *action;         /* [samples, rows]; NULL: counts are given, or samples is 0 */
    const double *uniform;   /* [rows, samples], in [0, 1): the actions are drawn by them; NULL */
    const void *counts;      /* [rows, categories], rows `counts_stride` apart; then samples is 1 */
    const uint8_t *mask;     /* nonzero = legal; rows `mask_stride` apart; NULL: all legal */
    const void *advantage;   /* [samples, rows]; NULL: 0 */
    const void *weight;      /* [samples, rows]; NULL: 1; where it is 0, a sample does not count */
    const void *bonus;       /* [rows], derivative of the objective by the entropy; NULL: 0 */
    const void *normalizer;  /* [rows], derivative of the objective by log Σ exp z; NULL: 0 */
    const void *old;         /* [samples, rows], log π_old(a): clip the surrogate; NULL: do not */
    const void *reference;   /* [samples, rows], log π_ref(a), for the estimate of a KL; NULL */
    void *log_prob;          /* [samples, rows]; NULL: not wanted */
    void *entropy;           /* [rows]; NULL: not wanted */
    void *log_normalizer;    /* [rows]; NULL: not wanted */
    void *loss;              /* [rows], the objective of a row; NULL: not wanted */
    void *gradient;          /* [rows, categories], may be `logits`; NULL: not wanted */
    double scale_advantage;  /* of weight · advantage · log π(a) */
    double scale_bonus;      /* of weight · entropy */
    double scale_square;     /* of weight · (log Σ exp z)² */
    double scale_reference;  /* of weight · KL estimate */
    double clip_low, clip_high; /* bounds of the ratio π/π_old */
    double temperature, softcap; /* softcap 0: none */
    int64_t rows, categories, samples, sample_stride;
    int64_t logits_stride, counts_stride, mask_stride, gradient_stride;
    int64_t kl_estimator;    /* 1, 2, 3: k1, k2, k3 */
    int64_t stream;          /* nonzero: write the gradient past the caches */
};

/* What became of it. */
struct row_report {
    double value;       /* the objective: the sum of the losses */
    int64_t refused;    /* the first row whose action is out of range; −1: none is */
    int64_t impossible; /* the first row that counts and has no finite log π(a); −1: none */
};
