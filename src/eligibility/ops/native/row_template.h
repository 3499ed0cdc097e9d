/* Vectors of BYTES bytes of the number type REAL (WIDE: double), and the row functions on them;
 * included by rows.cpp for every instruction set. */

#define INLINE static inline __attribute__((always_inline))
#define VECTOR VECTOR_NAME(vector)
#define INTEGERS VECTOR_NAME(integers)
#define FLAGS VECTOR_NAME(flags)
#define LARGER VECTOR_NAME(larger)
#define SELECT VECTOR_NAME(select)
#define SPLAT VECTOR_NAME(splat)
#define FINITE VECTOR_NAME(finite)
#define EXPONENTIAL VECTOR_NAME(exponential)
#define QUOTIENT VECTOR_NAME(quotient)
#define TANGENT VECTOR_NAME(tangent)
#define UNROLL 4
#define BLOCK (64 * LANES) /* summed in vectors; the sums of blocks are added in float64 */

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

/* e^x for x <= 88, to about one unit in the last place; −∞ gives 0, NaN stays NaN. */
#if WIDE
INLINE VECTOR EXPONENTIAL(VECTOR x) {
    VECTOR y = LARGER(SPLAT(-760.0), x); /* e^-760 is 0 in float64 */
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
    p = p * (r * r) + r + 1.0;
    /* 2^n in two factors, so that results below the smallest normal number come out right. */
    INTEGERS whole = (INTEGERS)shifted - (INTEGERS)magic;
    INTEGERS first = whole >> 1;
    return p * (VECTOR)((first + 1023) << 52) * (VECTOR)((whole - first + 1023) << 52);
}
#else
INLINE VECTOR EXPONENTIAL(VECTOR x) {
    VECTOR y = LARGER(SPLAT(-110.0f), x); /* e^-110 is 0 in float32 */
#if BYTES == 64
    VECTOR n = (VECTOR)_mm512_roundscale_ps((__m512)(y * 1.44269504088896341f), 8);
#else
    const VECTOR magic = SPLAT(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number */
    VECTOR shifted = y * 1.44269504088896341f + magic;
    VECTOR n = shifted - magic;
#endif
    VECTOR r = y - n * 0.693359375f;
    r = r + n * 2.12194440e-4f; /* ln 2 in two parts: the first product is exact */
    VECTOR p = SPLAT(0.0013933733571320772f); /* least-squares fit of (e^r − 1 − r)/r² */
    p = p * r + 0.008363235741853714f;
    p = p * r + 0.041666463017463684f;
    p = p * r + 0.16666576266288757f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
#if BYTES == 64
    return (VECTOR)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    /* 2^n in two factors, so that results below the smallest normal number come out right. */
    INTEGERS whole = (INTEGERS)shifted - (INTEGERS)magic;
    INTEGERS first = whole >> 1;
    return p * (VECTOR)((first + 127) << 23) * (VECTOR)((whole - first + 127) << 23);
#endif
}
#endif

/* x / divisor, rounded once. */
INLINE VECTOR QUOTIENT(VECTOR x, REAL divisor) { return x / SPLAT(divisor); }

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

#if WIDE

#define TYPE float64
#define ELEMENT double
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ VECTOR v_; memcpy(&v_, (pointer), sizeof v_); v_; })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { VECTOR v_ = (vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector) _mm512_stream_pd((pointer), (__m512d)(vector))
#else
#define STREAM_ELEMENTS(pointer, vector) STORE_ELEMENTS(pointer, vector)
#endif
#include "row_function.h"

#else

#define HALVES VECTOR_NAME(halves)
#define TO_BFLOAT16 VECTOR_NAME(to_bfloat16)
#define TO_FLOAT16 VECTOR_NAME(to_float16)
#define FROM_FLOAT16 VECTOR_NAME(from_float16)
typedef uint16_t HALVES __attribute__((vector_size(BYTES / 2)));

/* float32 to bfloat16, to nearest, ties to even; NaN stays NaN. */
INLINE HALVES TO_BFLOAT16(VECTOR x) {
    INTEGERS bits = (INTEGERS)x;
    INTEGERS rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    INTEGERS is_nan = x != x;
    return __builtin_convertvector((is_nan & 0x7fc0) | (~is_nan & rounded), HALVES);
}

INLINE VECTOR FROM_FLOAT16(HALVES x) {
#if BYTES == 64
    return (VECTOR)_mm512_cvtph_ps((__m256i)x);
#elif BYTES == 32
    return (VECTOR)_mm256_cvtph_ps((__m128i)x);
#else
    INTEGERS bits = __builtin_convertvector(x, INTEGERS);
    VECTOR scale = SPLAT(5.192296858534828e33f); /* 2^112, between the biases of the exponents */
    VECTOR size = (VECTOR)((bits & 0x7fff) << 13) * scale;
    INTEGERS is_special = (bits & 0x7c00) == 0x7c00;
    size = SELECT(is_special, (VECTOR)((INTEGERS)size | 0x7f800000), size);
    return (VECTOR)((INTEGERS)size | ((bits & 0x8000) << 16));
#endif
}

/* float32 to float16, to nearest, ties to even; NaN stays NaN, too large becomes ∞. */
INLINE HALVES TO_FLOAT16(VECTOR x) {
#if BYTES == 64
    return (HALVES)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif BYTES == 32
    return (HALVES)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    INTEGERS bits = (INTEGERS)x, size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    INTEGERS normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    normal = normal > 0x7c00 ? (INTEGERS){0} + 0x7c00 : normal;
    /* Below 2^-14 the spacing is 2^-24, as that of float32 in [0.5, 1). */
    INTEGERS small = (INTEGERS)((VECTOR)size + 0.5f) - 0x3f000000;
    INTEGERS result = size < 0x38800000 ? small : normal;
    result = size > 0x7f800000 ? (INTEGERS){0} + 0x7e00 : result;
    return __builtin_convertvector(result | sign, HALVES);
#endif
}

#define TYPE float32
#define ELEMENT float
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ VECTOR v_; memcpy(&v_, (pointer), sizeof v_); v_; })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { VECTOR v_ = (vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector) _mm512_stream_ps((pointer), (__m512)(vector))
#else
#define STREAM_ELEMENTS(pointer, vector) STORE_ELEMENTS(pointer, vector)
#endif
#include "row_function.h"

#define TYPE bfloat16
#define ELEMENT uint16_t
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ HALVES v_; memcpy(&v_, (pointer), sizeof v_);                                              \
       (VECTOR)(__builtin_convertvector(v_, INTEGERS) << 16); })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { HALVES v_ = TO_BFLOAT16(vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector)                                                          \
    _mm256_stream_si256((__m256i *)(pointer), (__m256i)TO_BFLOAT16(vector))
#else
#define STREAM_ELEMENTS(pointer, vector) STORE_ELEMENTS(pointer, vector)
#endif
#include "row_function.h"

#define TYPE float16
#define ELEMENT uint16_t
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ HALVES v_; memcpy(&v_, (pointer), sizeof v_); FROM_FLOAT16(v_); })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { HALVES v_ = TO_FLOAT16(vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector)                                                          \
    _mm256_stream_si256((__m256i *)(pointer), (__m256i)TO_FLOAT16(vector))
#else
#define STREAM_ELEMENTS(pointer, vector) STORE_ELEMENTS(pointer, vector)
#endif
#include "row_function.h"

#undef HALVES
#undef TO_BFLOAT16
#undef TO_FLOAT16
#undef FROM_FLOAT16

#endif

#undef INLINE
#undef VECTOR
#undef INTEGERS
#undef FLAGS
#undef LARGER
#undef SELECT
#undef SPLAT
#undef FINITE
#undef EXPONENTIAL
#undef QUOTIENT
#undef TANGENT
#undef UNROLL
#undef BLOCK
#undef VECTOR_NAME
#undef REAL
#undef INTEGER
#undef LANES
#undef LARGEST
