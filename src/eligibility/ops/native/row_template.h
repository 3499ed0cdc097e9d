/* The row function for vectors of BYTES bytes, for float32 and bfloat16; included by rows.c. */

#define LANES (BYTES / 4)
#define UNROLL 4
#define BLOCK (64 * LANES) /* summed in float32; the sums of blocks are added in float64 */
#define VECTOR CONCAT(vector, ISA)
#define INTEGERS CONCAT(integers, ISA)
#define HALVES CONCAT(halves, ISA)
#define FLAGS CONCAT(flags, ISA)
#define INLINE static inline __attribute__((always_inline))

typedef float VECTOR __attribute__((vector_size(BYTES)));
typedef int32_t INTEGERS __attribute__((vector_size(BYTES)));
typedef uint16_t HALVES __attribute__((vector_size(BYTES / 2)));
typedef uint8_t FLAGS __attribute__((vector_size(LANES)));

#define LARGER CONCAT(larger, ISA)
#define SELECT CONCAT(select, ISA)
#define SPLAT CONCAT(splat, ISA)
#define FINITE CONCAT(finite, ISA)
#define EXPONENTIAL CONCAT(exponential, ISA)
#define ROUND_HALF CONCAT(round_half, ISA)

INLINE VECTOR SPLAT(float x) { return (VECTOR){0} + x; }

INLINE VECTOR SELECT(INTEGERS condition, VECTOR yes, VECTOR no) {
    return condition ? yes : no;
}

/* The larger of the two; b if either is NaN. */
INLINE VECTOR LARGER(VECTOR a, VECTOR b) {
#if BYTES == 64
    return (VECTOR)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return SELECT(a > b, a, b);
#endif
}

/* −∞ made finite, so that 0 · log 0 = 0: an impossible category contributes nothing. */
INLINE VECTOR FINITE(VECTOR x) { return LARGER(SPLAT(-1e30f), x); }

/* e^x for x <= 0, to about one unit in the last place; −∞ gives 0, NaN stays NaN. */
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

/* float32 to bfloat16, to nearest, ties to even; NaN stays NaN. */
INLINE HALVES ROUND_HALF(VECTOR x) {
    INTEGERS bits = (INTEGERS)x;
    INTEGERS rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    INTEGERS is_nan = x != x;
    return __builtin_convertvector((is_nan & 0x7fc0) | (~is_nan & rounded), HALVES);
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
#undef TYPE
#undef ELEMENT
#undef STREAM_ELEMENTS
#undef LOAD_ELEMENTS
#undef STORE_ELEMENTS

#define TYPE bfloat16
#define ELEMENT uint16_t
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ HALVES v_; memcpy(&v_, (pointer), sizeof v_);                                              \
       (VECTOR)(__builtin_convertvector(v_, INTEGERS) << 16); })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { HALVES v_ = ROUND_HALF(vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector)                                                          \
    _mm256_stream_si256((__m256i *)(pointer), (__m256i)ROUND_HALF(vector))
#else
#define STREAM_ELEMENTS(pointer, vector) STORE_ELEMENTS(pointer, vector)
#endif
#include "row_function.h"
#undef TYPE
#undef ELEMENT
#undef STREAM_ELEMENTS
#undef LOAD_ELEMENTS
#undef STORE_ELEMENTS

#undef LANES
#undef UNROLL
#undef BLOCK
#undef VECTOR
#undef INTEGERS
#undef HALVES
#undef FLAGS
#undef INLINE
#undef LARGER
#undef SELECT
#undef SPLAT
#undef EXPONENTIAL
#undef FINITE
#undef ROUND_HALF
