/* Vectors of BYTES bytes of the number type REAL (WIDE: double), and their mathematics; included by
 * row_template.h. */

#define INLINE static inline __attribute__((always_inline))
#define VECTOR VECTOR_NAME(vector)
#define INTEGERS VECTOR_NAME(integers)
#define FLAGS VECTOR_NAME(flags)
#define LARGER VECTOR_NAME(larger)
#define SELECT VECTOR_NAME(select)
#define SPLAT VECTOR_NAME(splat)
#define FINITE VECTOR_NAME(finite)
#define EXPONENTIAL VECTOR_NAME(exponential)
#define LARGEST_OF VECTOR_NAME(largest_of)
#define SUM_OF VECTOR_NAME(sum_of)
#define TANGENT VECTOR_NAME(tangent)
#define DOUBLE(stem) CONCAT(CONCAT(stem, wide), ISA) /* of vectors of double, also if REAL is float */
#define DOUBLE_LANES (BYTES / 8)

#if WIDE
#define VECTOR_NAME(stem) CONCAT(CONCAT(stem, wide), ISA)
#define REAL double
#define INTEGER int64_t
#define LANES (BYTES / 8)
#define LARGEST 1e300
#else
#define VECTOR_NAME(stem) CONCAT(stem, ISA)
#define REAL float
#define INTEGER int32_t
#define LANES (BYTES / 4)
#define LARGEST 1e30f
#endif

typedef REAL VECTOR __attribute__((vector_size(BYTES)));
typedef INTEGER INTEGERS __attribute__((vector_size(BYTES)));
typedef uint8_t FLAGS __attribute__((vector_size(LANES)));

INLINE VECTOR SPLAT(REAL x) { return (VECTOR){0} + x; }

INLINE VECTOR SELECT(INTEGERS condition, VECTOR yes, VECTOR no) {
    return condition ? yes : no;
}

INLINE VECTOR VECTOR_NAME(read)(const REAL *from) {
    VECTOR x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void VECTOR_NAME(write)(REAL *to, VECTOR x) { memcpy(to, &x, sizeof x); }

#if BYTES == 64 && WIDE
#define BLEND(lanes, yes, no) ((VECTOR)_mm512_mask_blend_pd((lanes), (__m512d)(no), (__m512d)(yes)))
#elif BYTES == 64
#define BLEND(lanes, yes, no) ((VECTOR)_mm512_mask_blend_ps((lanes), (__m512)(no), (__m512)(yes)))
#endif

/* The larger of the two; b if either is NaN. */
INLINE VECTOR LARGER(VECTOR a, VECTOR b) {
#if BYTES == 64 && WIDE
    return (VECTOR)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif BYTES == 64
    return (VECTOR)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return SELECT(a > b, a, b);
#endif
}

/* −∞ made finite, so that 0 · log 0 = 0: an impossible category contributes nothing. */
INLINE VECTOR FINITE(VECTOR x) { return LARGER(SPLAT(-LARGEST), x); }

/* The largest lane; if the last vector had a NaN, that may be lost: see `sums`. */
INLINE REAL LARGEST_OF(VECTOR x) {
#if BYTES == 64 && WIDE
    return _mm512_reduce_max_pd((__m512d)x);
#elif BYTES == 64
    return _mm512_reduce_max_ps((__m512)x);
#else
    REAL result = -INFINITY;
    for (int lane = 0; lane < LANES; lane++)
        if (x[lane] > result) result = x[lane];
    return result;
#endif
}

/* The sum of the lanes, in float64. */
INLINE double SUM_OF(VECTOR x) {
#if BYTES == 64 && WIDE
    return _mm512_reduce_add_pd((__m512d)x);
#elif BYTES == 64
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
#else
    double result = 0.0;
    for (int lane = 0; lane < LANES; lane++) result += x[lane];
    return result;
#endif
}

/* e^x for x <= 88, to about one unit in the last place; −∞ gives 0, NaN stays NaN. */
#if WIDE
#define EXPONENTIAL_LESS_1 DOUBLE(exponential_less_1)
#define LOGARITHM DOUBLE(logarithm)

/* e^x; *less_1 is e^x − 1 without cancellation. */
INLINE VECTOR EXPONENTIAL_LESS_1(VECTOR x, VECTOR *less_1) {
    INTEGERS vanishes = x < -746.0; /* where e^x is 0 in float64: results beyond are slow */
    VECTOR y = SELECT(vanishes, SPLAT(0.0), x);
    const VECTOR magic = SPLAT(6755399441055744.0); /* 1.5 · 2^52: adding it rounds to a whole number */
    VECTOR shifted = y * 1.4426950408889634074 + magic;
    VECTOR n = shifted - magic;
    VECTOR r = y - n * 6.93147180369123816490e-01; /* ln 2 in two parts: this product is exact */
    r = r - n * 1.90821492927058770002e-10;
    VECTOR p = SPLAT(1.0 / 6227020800.0); /* the series of (e^r − 1 − r)/r², |r| <= 0.347 */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * (r * r) + r;
    /* 2^n in two factors, so that results below the smallest normal number come out right. */
    INTEGERS whole = (INTEGERS)shifted - (INTEGERS)magic;
    INTEGERS half = whole >> 1;
    VECTOR first = (VECTOR)((half + 1023) << 52), second = (VECTOR)((whole - half + 1023) << 52);
    *less_1 = SELECT(vanishes, SPLAT(-1.0), p * first * second + (first * second - 1.0));
    return SELECT(vanishes, SPLAT(0.0), (p + 1.0) * first * second);
}

INLINE VECTOR EXPONENTIAL(VECTOR x) {
    VECTOR less_1;
    return EXPONENTIAL_LESS_1(x, &less_1);
}

/* ln x for finite x >= 2^-1022, to about two units in the last place; NaN stays NaN. */
INLINE VECTOR LOGARITHM(VECTOR x) {
    INTEGERS bits = (INTEGERS)x, beyond = bits - 0x3fe6a09e667f3bcd; /* those of sqrt(1/2) */
    INTEGERS exponent = beyond >> 52;
    VECTOR f = (VECTOR)(bits - (exponent << 52)) - 1.0; /* x = (1 + f) 2^exponent, 0.7 < 1 + f < 1.42 */
    VECTOR s = f / (f + 2.0), z = s * s; /* ln(1 + f) = 2 artanh s = 2s (1 + z/3 + z²/5 + …) */
    VECTOR p = SPLAT(1.0 / 23.0);
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    VECTOR n = __builtin_convertvector(exponent, VECTOR), twice = s + s;
    VECTOR small = twice * z * p + n * 1.90821492927058770002e-10;
    VECTOR result = n * 6.93147180369123816490e-01 + (twice + small);
    return SELECT(x == x, result, x);
}
#else
INLINE VECTOR EXPONENTIAL(VECTOR x) {
#if BYTES == 64
    __mmask16 remains = _mm512_cmp_ps_mask((__m512)x, (__m512)SPLAT(-104.0f), _CMP_NLT_UQ);
    VECTOR y = x;
#else
    INTEGERS vanishes = x < -104.0f; /* where e^x is 0 in float32: results beyond are slow */
    VECTOR y = SELECT(vanishes, SPLAT(0.0f), x);
#endif
    const VECTOR magic = SPLAT(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number */
    VECTOR shifted = y * 1.44269504088896341f + magic;
    VECTOR n = shifted - magic;
#if BYTES > 16 /* the product is fused with the difference: only log₂e itself is rounded */
    VECTOR r = y * 1.44269504088896341f - n; /* e^y = 2^n 2^r, |r| <= 1/2 */
    VECTOR p = SPLAT(EXP2_6);
    p = p * r + EXP2_5;
    p = p * r + EXP2_4;
    p = p * r + EXP2_3;
    p = p * r + EXP2_2;
    p = p * r + EXP2_1;
    p = p * r + 1.0f;
#else
    VECTOR r = y - n * 0.693359375f;
    r = r + n * 2.12194440e-4f; /* ln 2 in two parts: the first product is exact */
    VECTOR p = SPLAT(0.0013933733571320772f); /* least-squares fit of (e^r − 1 − r)/r² */
    p = p * r + 0.008363235741853714f;
    p = p * r + 0.041666463017463684f;
    p = p * r + 0.16666576266288757f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
#endif
#if BYTES == 64
    return (VECTOR)_mm512_maskz_scalef_ps(remains, (__m512)p, (__m512)n);
#else
    /* 2^n in two factors, so that results below the smallest normal number come out right. */
    INTEGERS whole = (INTEGERS)shifted - (INTEGERS)magic;
    INTEGERS first = whole >> 1;
    VECTOR result = p * (VECTOR)((first + 127) << 23) * (VECTOR)((whole - first + 127) << 23);
    return SELECT(vanishes, SPLAT(0.0f), result);
#endif
}
#endif

/* tanh x; with a relative error of a few units also near 0. */
INLINE VECTOR TANGENT(VECTOR x) {
#if WIDE
    for (int lane = 0; lane < LANES; lane++) x[lane] = tanh(x[lane]);
    return x;
#else
    VECTOR size = SELECT(x < 0, -x, x), square = x * x;
    VECTOR p = SPLAT(TANH_5); /* least-squares fit of (tanh x − x)/x³, |x| <= 0.625 */
    p = p * square + TANH_4;
    p = p * square + TANH_3;
    p = p * square + TANH_2;
    p = p * square + TANH_1;
    p = p * square + TANH_0;
    VECTOR near = p * square * x + x;
    VECTOR clipped = SELECT(size > 20, SPLAT(20), size);
    VECTOR far = 1 - 2 / (EXPONENTIAL(2 * clipped) + 1);
    VECTOR result = SELECT(size < 0.625f, near, SELECT(x < 0, -far, far));
    return SELECT(x == x, result, x);
#endif
}
