/* Products of Q4_0, Q5_0 and Q8_0 tiles with AVX-512 VNNI.
 *
 * One vector holds four neighbouring bytes of 16 rows, an activation row's four bytes are broadcast from memory, and
 * vpdpbusd multiplies and adds 64 pairs. A group of 32 is eight such steps a column; the weights are unpacked once for
 * up to COLUMNS_MAX columns, whose sums take turns, which hides the latency of each. */
#include "compute/kernels/avx512.h"

enum { COLUMNS_MAX = 6 };

/* Group g of column c. */
LV_INLINE const lv_group_32 *group_at(const uint8_t *activations, size_t stride, size_t c, size_t g) {
    return (const lv_group_32 *)(const void *)(activations + c * stride) + g;
}

/* What undoes that weights are taken as unsigned. */
LV_INLINE int32_t seed_of(lv_kernel_type type, const lv_group_32 *group) {
    return type == LV_Q4_0 ? group->seed_8 : type == LV_Q5_0 ? group->seed_16 : group->seed_128;
}

/* Moves the high bits of step i to bit 4 of every byte (what else is in the byte is masked off afterwards). */
LV_INLINE __m512i high_bits_to_4(__m512i bits, size_t i) {
    switch (i) { /* the counts are literal, because compilers disagree about their type */
    case 0:
        return _mm512_slli_epi16(bits, 4);
    case 1:
        return bits;
    case 2:
        return _mm512_slli_epi16(bits, 3);
    case 3:
        return _mm512_srli_epi16(bits, 1);
    case 4:
        return _mm512_slli_epi16(bits, 2);
    case 5:
        return _mm512_srli_epi16(bits, 2);
    case 6:
        return _mm512_slli_epi16(bits, 1);
    default:
        return _mm512_srli_epi16(bits, 3);
    }
}

/* Elements 4 * i to 4 * i + 3 of the 16 rows of a tile's group. */
LV_INLINE __m512i weights_of(lv_kernel_type type, const uint8_t *group, size_t i) {
    if (type == LV_Q8_0) return _mm512_loadu_si512(group + 32 + 64 * i);
    const uint8_t *quants = group + (type == LV_Q4_0 ? 32 : 96);
    const __m512i bytes = _mm512_loadu_si512(quants + 64 * (i & 3));
    const __m512i nibbles = i < 4 ? bytes : _mm512_srli_epi16(bytes, 4);
    if (type == LV_Q4_0) return _mm512_and_si512(nibbles, _mm512_set1_epi8(15));

    const __m512i bits = _mm512_loadu_si512(group + 32);
    const __m512i high_bit = _mm512_and_si512(high_bits_to_4(bits, i), _mm512_set1_epi8(16));
    return _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi8(15), high_bit, 0xea); /* (a & b) | c */
}

/* All groups of a chunk for a block of columns; `type` and `columns` are constants once inlined. */
LV_INLINE void dot_block(lv_kernel_type type, size_t columns, const uint8_t *tile, size_t groups_count,
                         const uint8_t *activations, size_t stride, float *sums, lv_ahead *ahead) {
    const size_t group_bytes = lv_kernel_block_bytes(type) * LV_TILE_ROWS;
    __m512 total[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) total[c] = _mm512_loadu_ps(sums + c * LV_TILE_ROWS);

    /* Few columns leave the multiplier waiting for its own sums: each column then has several. */
    const size_t parts = columns == 1 ? 4 : columns <= 5 ? 2 : 1;
    for (size_t g = 0; g < groups_count; g++, tile += group_bytes) {
        lv_prefetch(ahead, 1);
        __m512i dots[2 * COLUMNS_MAX];
        LV_UNROLL
        for (size_t c = 0; c < columns; c++)
            dots[c] = _mm512_set1_epi32(seed_of(type, group_at(activations, stride, c, g)));
        LV_UNROLL
        for (size_t c = columns; c < columns * parts; c++) dots[c] = _mm512_setzero_si512();
        LV_UNROLL
        for (size_t i = 0; i < 8; i++) {
            const __m512i weights = weights_of(type, tile, i);
            LV_UNROLL
            for (size_t c = 0; c < columns; c++) {
                const lv_group_32 *group = group_at(activations, stride, c, g);
                const size_t d = c + columns * (i % parts);
                dots[d] = lv_dot_quad_avx512(dots[d], weights, group->quants, i);
            }
        }
        LV_UNROLL
        for (size_t c = columns; c < columns * parts; c++)
            dots[c % columns] = _mm512_add_epi32(dots[c % columns], dots[c]);
        const __m512 scales = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)tile));
        LV_UNROLL
        for (size_t c = 0; c < columns; c++) {
            const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(group_at(activations, stride, c, g)->scale));
            total[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c]), scale, total[c]);
        }
    }

    LV_UNROLL
    for (size_t c = 0; c < columns; c++) _mm512_storeu_ps(sums + c * LV_TILE_ROWS, total[c]);
}

LV_DEFINE_DOT(lv_dot_q4_0_avx512, LV_Q4_0, LV_BLOCKS_OF_6)
LV_DEFINE_DOT(lv_dot_q5_0_avx512, LV_Q5_0, LV_BLOCKS_OF_6)
LV_DEFINE_DOT(lv_dot_q8_0_avx512, LV_Q8_0, LV_BLOCKS_OF_6)
