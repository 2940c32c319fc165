/* Products of Q4_0, Q5_0 and Q8_0 tiles with AVX2.
 *
 * As in dot_avx512.c with vectors of eight rows, and the split of weights that avx2.h explains: Q4_0's are below 16, so
 * that all eight steps of a group fit into 16 bits; Q5_0's are below 32, four steps; Q8_0's are two numbers below 16.
 */
#include "compute/kernels/avx2.h"

enum { COLUMNS_MAX = 4 };

LV_INLINE const lv_group_32 *group_at(const uint8_t *activations, size_t stride, size_t c, size_t g) {
    return (const lv_group_32 *)(const void *)(activations + c * stride) + g;
}

LV_INLINE __m256i low_nibbles(__m256i bytes) {
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

LV_INLINE __m256i high_nibbles(__m256i bytes) {
    return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/* Bit 4 of each weight of step i, from the column of high bits (tile.h has their order). */
LV_INLINE __m256i high_bits(__m256i bits, size_t i) {
    const __m256i mask = _mm256_set1_epi8(16);
    switch (i) { /* the counts are literal, because compilers disagree about their type */
    case 0:
        return _mm256_and_si256(_mm256_slli_epi16(bits, 4), mask);
    case 1:
        return _mm256_and_si256(bits, mask);
    case 2:
        return _mm256_and_si256(_mm256_slli_epi16(bits, 3), mask);
    case 3:
        return _mm256_and_si256(_mm256_srli_epi16(bits, 1), mask);
    case 4:
        return _mm256_and_si256(_mm256_slli_epi16(bits, 2), mask);
    case 5:
        return _mm256_and_si256(_mm256_srli_epi16(bits, 2), mask);
    case 6:
        return _mm256_and_si256(_mm256_slli_epi16(bits, 1), mask);
    default:
        return _mm256_and_si256(_mm256_srli_epi16(bits, 3), mask);
    }
}

/* Steps first to first + 3 of a group for all columns, as 16-bit sums. `shifted` picks Q8_0's upper halves. */
LV_INLINE void four_steps(lv_kernel_type type, size_t columns, const uint8_t *group, size_t half, size_t first,
                          bool shifted, const uint8_t *activations, size_t stride, size_t g, __m256i *sums) {
    LV_UNROLL
    for (size_t i = first; i < first + 4; i++) {
        const uint8_t *quants = group + (type == LV_Q5_0 ? 96 : 32);
        const __m256i bytes = lv_half_column(quants, type == LV_Q8_0 ? i : i - first, half);
        const bool high = type == LV_Q8_0 ? shifted : first == 4;
        __m256i weights = high ? high_nibbles(bytes) : low_nibbles(bytes);
        if (type == LV_Q5_0) weights = _mm256_or_si256(weights, high_bits(lv_half_column(group + 32, 0, half), i));
        LV_UNROLL
        for (size_t c = 0; c < columns; c++)
            sums[c] = lv_dot_quad_avx2(sums[c], weights, group_at(activations, stride, c, g)->quants, i);
    }
}

/* The integer dot products of one group, with what undoes that weights are taken as unsigned. */
LV_INLINE void dot_group(lv_kernel_type type, size_t columns, const uint8_t *group, size_t half,
                         const uint8_t *activations, size_t stride, size_t g, __m256i *dots) {
    const __m256i ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) {
        const lv_group_32 *a = group_at(activations, stride, c, g);
        dots[c] = _mm256_set1_epi32(type == LV_Q4_0 ? a->seed_8 : type == LV_Q5_0 ? a->seed_16 : a->seed_128);
    }
    const size_t parts_count = type == LV_Q4_0 ? 1 : 2;
    LV_UNROLL
    for (size_t part = 0; part < parts_count; part++) {
        __m256i sums[COLUMNS_MAX];
        LV_UNROLL
        for (size_t c = 0; c < columns; c++) sums[c] = _mm256_setzero_si256();
        const bool shifted = part == 1;
        if (type != LV_Q5_0 || part == 0)
            four_steps(type, columns, group, half, 0, shifted, activations, stride, g, sums);
        if (type != LV_Q5_0 || part == 1)
            four_steps(type, columns, group, half, 4, shifted, activations, stride, g, sums);
        const __m256i factor = type == LV_Q8_0 && shifted ? sixteens : ones;
        LV_UNROLL
        for (size_t c = 0; c < columns; c++) dots[c] = _mm256_add_epi32(dots[c], _mm256_madd_epi16(sums[c], factor));
    }
}

LV_INLINE void dot_block(lv_kernel_type type, size_t columns, const uint8_t *tile, size_t groups_count,
                         const uint8_t *activations, size_t stride, float *sums, lv_ahead *ahead) {
    for (size_t g = 0; g < groups_count; g++) {
        lv_prefetch(ahead, 1);
        const uint8_t *group = tile + g * lv_kernel_block_bytes(type) * LV_TILE_ROWS;
        LV_NO_UNROLL
        for (size_t half = 0; half < 2; half++) {
            __m256i dots[COLUMNS_MAX];
            dot_group(type, columns, group, half, activations, stride, g, dots);
            const __m256 scales = lv_half_scales(group, half);
            LV_UNROLL
            for (size_t c = 0; c < columns; c++) {
                float *total = sums + c * LV_TILE_ROWS + half * LV_HALF_ROWS;
                const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(group_at(activations, stride, c, g)->scale));
                _mm256_storeu_ps(total, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[c]), scale, _mm256_loadu_ps(total)));
            }
        }
    }
}

LV_DEFINE_DOT(lv_dot_q4_0_avx2, LV_Q4_0, LV_BLOCKS_OF_4)
LV_DEFINE_DOT(lv_dot_q5_0_avx2, LV_Q5_0, LV_BLOCKS_OF_4)
LV_DEFINE_DOT(lv_dot_q8_0_avx2, LV_Q8_0, LV_BLOCKS_OF_4)
