/* The row functions for every element type on vectors of BYTES bytes; included by rows.cpp for every
 * instruction set, first with WIDE, for double, then for float, which needs some of those too. */
#include "row_vectors.h"

#define UNROLL 4
#define BLOCK (64 * LANES) /* summed in vectors; the sums of blocks are added in float64 */

#if WIDE

#define TYPE float64
#define ELEMENT double
#define LOAD_ELEMENTS(pointer)                                                                    \
    ({ VECTOR v_; memcpy(&v_, (pointer), sizeof v_); v_; })
#define STORE_ELEMENTS(pointer, vector)                                                           \
    do { VECTOR v_ = (vector); memcpy((pointer), &v_, sizeof v_); } while (0)
#if BYTES == 64
#define STREAM_ELEMENTS(pointer, vector) _mm512_stream_pd((pointer), (__m512d)(vector))
#define LOAD_SOME(pointer, lanes) ((VECTOR)_mm512_maskz_loadu_pd((lanes), (pointer)))
#define STORE_SOME(pointer, lanes, vector)                                                        \
    _mm512_mask_storeu_pd((pointer), (lanes), (__m512d)(vector))
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
#define LOAD_SOME(pointer, lanes) ((VECTOR)_mm512_maskz_loadu_ps((lanes), (pointer)))
#define STORE_SOME(pointer, lanes, vector)                                                        \
    _mm512_mask_storeu_ps((pointer), (lanes), (__m512)(vector))
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
#define LOAD_SOME(pointer, lanes)                                                                 \
    ((VECTOR)(__builtin_convertvector(                                                            \
        (HALVES)_mm256_maskz_loadu_epi16((lanes), (pointer)), INTEGERS) << 16))
#define STORE_SOME(pointer, lanes, vector)                                                        \
    _mm256_mask_storeu_epi16((pointer), (lanes), (__m256i)TO_BFLOAT16(vector))
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
#define LOAD_SOME(pointer, lanes)                                                                 \
    FROM_FLOAT16((HALVES)_mm256_maskz_loadu_epi16((lanes), (pointer)))
#define STORE_SOME(pointer, lanes, vector)                                                        \
    _mm256_mask_storeu_epi16((pointer), (lanes), (__m256i)TO_FLOAT16(vector))
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
#undef BLEND
#undef EXPONENTIAL
#undef EXPONENTIAL_LESS_1
#undef LOGARITHM
#undef LARGEST_OF
#undef SUM_OF
#undef TANGENT
#undef DOUBLE
#undef DOUBLE_LANES
#undef UNROLL
#undef BLOCK
#undef VECTOR_NAME
#undef REAL
#undef INTEGER
#undef LANES
#undef LARGEST
