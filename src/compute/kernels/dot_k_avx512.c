/* Products of Q4_K and Q6_K tiles with AVX-512 VNNI.
 *
 * As in dot_avx512.c, but a group is a super-block of 256 whose sub-blocks (of 32 or of 16 elements) have integer
 * scales: each sub-block's dot product is multiplied by its scale and added up in integers, and only the super-block's
 * sum becomes a float. Minima are multiplied with the sums of the activations, two at a time. */
#include "compute/kernels/avx512.h"

enum { COLUMNS_MAX = 8 };

LV_INLINE const lv_group_256 *group_at(const uint8_t *activations, size_t stride, size_t c, size_t g) {
    return (const lv_group_256 *)(const void *)(activations + c * stride) + g;
}

LV_INLINE __m512i dword_column(const uint8_t *group, size_t i) {
    return _mm512_loadu_si512(group + LV_DWORD_COLUMN * i);
}

/* totals += float(sums) * (scales * the activations' scale), for one column. The totals stay in memory: they are needed
 * once a super-block, and registers are short. */
LV_INLINE void add_scaled(float *totals, __m512i sums, __m512 scales, const lv_group_256 *group) {
    const __m512 factor = _mm512_mul_ps(scales, _mm512_set1_ps(group->scale));
    _mm512_storeu_ps(totals, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), factor, _mm512_loadu_ps(totals)));
}

/* --- Q4_K --------------------------------------------------------------------------------------------------------- */

/* Sub-scales and sub-minima as bytes: [0] those of sub-blocks 0 to 3 in each row's dword, [1] those of 4 to 7. */
typedef struct {
    __m512i scales[2], minima[2];
} q4_k_bytes;

LV_INLINE q4_k_bytes unpack_q4_k_bytes(const uint8_t *group) {
    const __m512i first = dword_column(group, 1), second = dword_column(group, 2), third = dword_column(group, 3);
    const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);
    q4_k_bytes bytes;
    bytes.scales[0] = _mm512_and_si512(first, six);
    bytes.minima[0] = _mm512_and_si512(second, six);
    bytes.scales[1] =
        _mm512_or_si512(_mm512_and_si512(third, four), _mm512_and_si512(_mm512_srli_epi16(first, 2), top));
    bytes.minima[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(third, 4), four),
                                      _mm512_and_si512(_mm512_srli_epi16(second, 2), top));
    return bytes;
}

/* Byte j % 4 of each dword, as an integer. */
LV_INLINE __m512i unsigned_byte(const __m512i halves[2], size_t j) {
    const __m512i dwords = halves[j / 4];
    switch (j % 4) {
    case 0:
        return _mm512_and_si512(dwords, _mm512_set1_epi32(255));
    case 1:
        return _mm512_and_si512(_mm512_srli_epi32(dwords, 8), _mm512_set1_epi32(255));
    case 2:
        return _mm512_and_si512(_mm512_srli_epi32(dwords, 16), _mm512_set1_epi32(255));
    default:
        return _mm512_srli_epi32(dwords, 24);
    }
}

/* The four pairs in which lv_group_256.sums_32 has the sums: 0 2, 1 3, 4 6, 5 7. */
LV_INLINE __m512i minima_pair(const __m512i halves[2], size_t pair) {
    const __m512i dwords = halves[pair / 2];
    return _mm512_and_si512(pair % 2 == 0 ? dwords : _mm512_srli_epi16(dwords, 8), _mm512_set1_epi16(255));
}

LV_INLINE void add_q4_k(size_t columns, const uint8_t *tile, const uint8_t *activations, size_t stride, size_t g,
                        float *totals, lv_ahead *ahead) {
    const q4_k_bytes bytes = unpack_q4_k_bytes(tile);
    __m512i scales_of[8];
    LV_UNROLL
    for (size_t j = 0; j < 8; j++) scales_of[j] = unsigned_byte(bytes.scales, j);
    __m512i sums[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm512_setzero_si512();

    LV_UNROLL
    for (size_t pair = 0; pair < 4; pair++) {
        lv_prefetch(ahead, 4);
        LV_UNROLL
        for (size_t odd = 0; odd < 2; odd++) {
            lv_forget_loads();
            __m512i dots[COLUMNS_MAX];
            LV_UNROLL
            for (size_t c = 0; c < columns; c++) dots[c] = _mm512_setzero_si512();
            LV_UNROLL
            for (size_t i = 0; i < 8; i++) {
                const __m512i packed = dword_column(tile, 4 + 8 * pair + i);
                const __m512i weights =
                    _mm512_and_si512(odd == 0 ? packed : _mm512_srli_epi16(packed, 4), _mm512_set1_epi8(15));
                LV_UNROLL
                for (size_t c = 0; c < columns; c++) {
                    const lv_group_256 *group = group_at(activations, stride, c, g);
                    dots[c] = lv_dot_quad_avx512(dots[c], weights, group->quants, 16 * pair + 8 * odd + i);
                }
            }
            LV_UNROLL
            for (size_t c = 0; c < columns; c++)
                sums[c] = lv_settle(_mm512_add_epi32(sums[c], _mm512_mullo_epi32(dots[c], scales_of[2 * pair + odd])));
        }
    }

    const __m512i halves = dword_column(tile, 0);
    const __m512 scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], scales, group_at(activations, stride, c, g));

    /* The minima are subtracted: added with the scale's sign turned, which changes nothing else. */
    const __m512i minus = _mm512_xor_si512(_mm512_srli_epi32(halves, 16), _mm512_set1_epi32(0x8000));
    const __m512 minima_scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(minus));
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm512_setzero_si512();
    LV_UNROLL
    for (size_t pair = 0; pair < 4; pair++) {
        const __m512i minima = minima_pair(bytes.minima, pair);
        LV_UNROLL
        for (size_t c = 0; c < columns; c++) {
            const int16_t *sums_32 = group_at(activations, stride, c, g)->sums_32;
            sums[c] = _mm512_dpwssd_epi32(sums[c], minima, _mm512_set1_epi32((int32_t)lv_load_u32(sums_32 + 2 * pair)));
        }
    }
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], minima_scales, group_at(activations, stride, c, g));
}

/* --- Q6_K --------------------------------------------------------------------------------------------------------- */

/* Step i (0 to 3) of sub-block t of the quarter at `quants`: 16 times four numbers from 0 to 63. */
LV_INLINE __m512i weights_q6_k(const uint8_t *quants, size_t t, size_t i) {
    const __m512i packed = dword_column(quants, 4 * (t % 2) + i);
    const __m512i tops = dword_column(quants, 8 + i);
    const __m512i nibbles = t < 2 ? packed : _mm512_srli_epi16(packed, 4);
    const __m512i moved = t == 0   ? _mm512_slli_epi16(tops, 4)
                          : t == 1 ? _mm512_slli_epi16(tops, 2)
                          : t == 2 ? tops
                                   : _mm512_srli_epi16(tops, 2);
    const __m512i top = _mm512_and_si512(moved, _mm512_set1_epi8(48));
    return _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi8(15), top, 0xea); /* (a & b) | c */
}

/* Signed byte j of the sub-scales. */
LV_INLINE __m512i sub_scale_q6_k(const uint8_t *tile, size_t j) {
    const __m512i dwords = dword_column(tile + 32, j / 4);
    switch (j % 4) {
    case 0:
        return _mm512_srai_epi32(_mm512_slli_epi32(dwords, 24), 24);
    case 1:
        return _mm512_srai_epi32(_mm512_slli_epi32(dwords, 16), 24);
    case 2:
        return _mm512_srai_epi32(_mm512_slli_epi32(dwords, 8), 24);
    default:
        return _mm512_srai_epi32(dwords, 24);
    }
}

LV_INLINE void add_q6_k(size_t columns, const uint8_t *tile, const uint8_t *activations, size_t stride, size_t g,
                        float *totals, lv_ahead *ahead) {
    __m512i scales_of[16];
    LV_UNROLL
    for (size_t j = 0; j < 16; j++) scales_of[j] = sub_scale_q6_k(tile, j);
    __m512i sums[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm512_setzero_si512();

    LV_UNROLL
    for (size_t quarter = 0; quarter < 4; quarter++) {
        const size_t first = 8 * (quarter / 2) + quarter % 2; /* of its sub-blocks */
        lv_prefetch(ahead, 4);
        const uint8_t *quants = tile + LV_Q6_K_QUANTS + LV_Q6_K_QUARTER * quarter;
        LV_UNROLL
        for (size_t t = 0; t < 4; t++) {
            lv_forget_loads();
            __m512i dots[COLUMNS_MAX];
            LV_UNROLL
            for (size_t c = 0; c < columns; c++)
                dots[c] = _mm512_set1_epi32(group_at(activations, stride, c, g)->seeds_16[first + 2 * t]);
            LV_UNROLL
            for (size_t i = 0; i < 4; i++) {
                const __m512i weights = weights_q6_k(quants, t, i);
                LV_UNROLL
                for (size_t c = 0; c < columns; c++) {
                    const lv_group_256 *group = group_at(activations, stride, c, g);
                    dots[c] = lv_dot_quad_avx512(dots[c], weights, group->quants, 4 * (first + 2 * t) + i);
                }
            }
            LV_UNROLL
            for (size_t c = 0; c < columns; c++)
                sums[c] = lv_settle(_mm512_add_epi32(sums[c], _mm512_mullo_epi32(dots[c], scales_of[first + 2 * t])));
        }
    }

    const __m512 scales = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)tile));
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], scales, group_at(activations, stride, c, g));
}

/* --- Blocks of columns
 * -------------------------------------------------------------------------------------------- */

LV_INLINE void dot_block(lv_kernel_type type, size_t columns, const uint8_t *tile, size_t groups_count,
                         const uint8_t *activations, size_t stride, float *sums, lv_ahead *ahead) {
    for (size_t g = 0; g < groups_count; g++) {
        if (type == LV_Q4_K)
            add_q4_k(columns, tile, activations, stride, g, sums, ahead);
        else
            add_q6_k(columns, tile, activations, stride, g, sums, ahead);
        tile += lv_kernel_block_bytes(type) * LV_TILE_ROWS;
    }
}

LV_DEFINE_DOT(lv_dot_q4_k_avx512, LV_Q4_K, LV_BLOCKS_OF_8)
LV_DEFINE_DOT(lv_dot_q6_k_avx512, LV_Q6_K, LV_BLOCKS_OF_8)
