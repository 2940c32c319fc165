/* avx2.h - what dot_avx2.c and dot_k_avx2.c share.
 *
 * Without VNNI a product of bytes is vpmaddubsw, whose sums of two have 16 bits and saturate. They do not here, because
 * weights are split into small unsigned numbers: with quants of at most 127 in size, a sum of n products of weights up
 * to w stays below n * w * 127, and is widened before that reaches 32768. */
#ifndef LV_COMPUTE_KERNELS_AVX2_H
#define LV_COMPUTE_KERNELS_AVX2_H

#include "compute/kernels/x86.h"

/* A dword column is two vectors, of eight rows each: half 0 and half 1. */
enum { LV_HALF_ROWS = 8 };

LV_INLINE __m256i lv_half_column(const uint8_t *columns, size_t i, size_t half) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(columns + LV_DWORD_COLUMN * i + 32 * half));
}

/* Adds to two 16-bit sums of each row the products of its four unsigned weights with quants 4 * i to 4 * i + 3. */
LV_INLINE __m256i lv_dot_quad_avx2(__m256i sums, __m256i weights, const int8_t *quants, size_t i) {
    const __m256i quad = _mm256_set1_epi32((int32_t)lv_load_u32(quants + 4 * i));
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, quad));
}

/* The scales of eight rows, from halves. */
LV_INLINE __m256 lv_half_scales(const uint8_t *scales, size_t half) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(scales + 16 * half)));
}

#endif
