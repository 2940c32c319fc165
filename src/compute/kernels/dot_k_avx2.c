/* Products of Q4_K and Q6_K tiles with AVX2.
 *
 * As in dot_k_avx512.c with vectors of eight rows. What widens the 16-bit sums of a sub-block is the multiplication
 * with its integer scale (vpmaddwd), so that the scale costs nothing. Q4_K's weights are below 16: all eight steps of a
 * sub-block fit into 16 bits; Q6_K's are below 64: two steps do. */
#include "compute/kernels/avx2.h"

enum { COLUMNS_MAX = 4 };

LV_INLINE const lv_group_256 *group_at(const uint8_t *activations, size_t stride, size_t c, size_t g) {
    return (const lv_group_256 *)(const void *)(activations + c * stride) + g;
}

/* totals += float(sums) * (scales * the activations' scale), for one column. */
LV_INLINE void add_scaled(float *totals, __m256i sums, __m256 scales, const lv_group_256 *group) {
    const __m256 factor = _mm256_mul_ps(scales, _mm256_set1_ps(group->scale));
    _mm256_storeu_ps(totals, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), factor, _mm256_loadu_ps(totals)));
}

/* --- Q4_K --------------------------------------------------------------------------------------------------------- */

/* Sub-scales and sub-minima as bytes: [0] those of sub-blocks 0 to 3 in each row's dword, [1] those of 4 to 7. */
typedef struct {
    __m256i scales[2], minima[2];
} q4_k_bytes;

LV_INLINE q4_k_bytes unpack_q4_k_bytes(const uint8_t *group, size_t half) {
    const __m256i first = lv_half_column(group, 1, half), second = lv_half_column(group, 2, half);
    const __m256i third = lv_half_column(group, 3, half);
    const __m256i six = _mm256_set1_epi8(63), four = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);
    q4_k_bytes bytes;
    bytes.scales[0] = _mm256_and_si256(first, six);
    bytes.minima[0] = _mm256_and_si256(second, six);
    bytes.scales[1] =
        _mm256_or_si256(_mm256_and_si256(third, four), _mm256_and_si256(_mm256_srli_epi16(first, 2), top));
    bytes.minima[1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(third, 4), four),
                                      _mm256_and_si256(_mm256_srli_epi16(second, 2), top));
    return bytes;
}

/* Byte j % 4 of each dword, in both 16-bit halves of it. */
LV_INLINE __m256i twice_byte(__m256i dwords, size_t j) {
    const char k = (char)(j % 4), none = -128;
    const __m256i order = _mm256_setr_epi8(k, none, k, none, (char)(k + 4), none, (char)(k + 4), none, (char)(k + 8),
                                           none, (char)(k + 8), none, (char)(k + 12), none, (char)(k + 12), none, k,
                                           none, k, none, (char)(k + 4), none, (char)(k + 4), none, (char)(k + 8), none,
                                           (char)(k + 8), none, (char)(k + 12), none, (char)(k + 12), none);
    return _mm256_shuffle_epi8(dwords, order);
}

/* The minima in the pairs in which lv_group_256.sums_32 has the sums: 0 2, 1 3, 4 6, 5 7. */
LV_INLINE __m256i minima_pair(const __m256i halves[2], size_t pair) {
    const __m256i dwords = halves[pair / 2];
    return _mm256_and_si256(pair % 2 == 0 ? dwords : _mm256_srli_epi16(dwords, 8), _mm256_set1_epi16(255));
}

/* The minima are subtracted: added with the scale's sign turned, which changes nothing else. */
LV_INLINE void add_minima(size_t columns, const uint8_t *group, size_t half, const __m256i minima[2],
                          const uint8_t *activations, size_t stride, size_t g, float *totals) {
    __m256i sums[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm256_setzero_si256();
    LV_UNROLL
    for (size_t pair = 0; pair < 4; pair++) {
        const __m256i pairs = minima_pair(minima, pair);
        LV_UNROLL
        for (size_t c = 0; c < columns; c++) {
            const int16_t *sums_32 = group_at(activations, stride, c, g)->sums_32;
            const __m256i two = _mm256_set1_epi32((int32_t)lv_load_u32(sums_32 + 2 * pair));
            sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs, two));
        }
    }
    const __m256i halves = _mm256_srli_epi32(lv_half_column(group, 0, half), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0xd8);
    const __m256 scales = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    const __m256 minus = _mm256_xor_ps(scales, _mm256_set1_ps(-0.0f));
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], minus, group_at(activations, stride, c, g));
}

LV_INLINE void add_q4_k(size_t columns, const uint8_t *group, size_t half, const uint8_t *activations, size_t stride,
                        size_t g, float *totals) {
    const q4_k_bytes bytes = unpack_q4_k_bytes(group, half);
    __m256i scales_of[8];
    LV_UNROLL
    for (size_t j = 0; j < 8; j++) scales_of[j] = twice_byte(bytes.scales[j / 4], j);
    __m256i sums[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm256_setzero_si256();

    LV_NO_UNROLL
    for (size_t pair = 0; pair < 4; pair++) {
        LV_UNROLL
        for (size_t odd = 0; odd < 2; odd++) {
            lv_forget_loads();
            __m256i dots[COLUMNS_MAX];
            LV_UNROLL
            for (size_t c = 0; c < columns; c++) dots[c] = _mm256_setzero_si256();
            LV_UNROLL
            for (size_t i = 0; i < 8; i++) {
                const __m256i packed = lv_half_column(group, 4 + 8 * pair + i, half);
                const __m256i weights =
                    _mm256_and_si256(odd == 0 ? packed : _mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
                LV_UNROLL
                for (size_t c = 0; c < columns; c++) {
                    const int8_t *quants = group_at(activations, stride, c, g)->quants + 64 * pair;
                    dots[c] = lv_dot_quad_avx2(dots[c], weights, quants, 8 * odd + i);
                }
            }
            LV_UNROLL
            for (size_t c = 0; c < columns; c++)
                sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(dots[c], scales_of[2 * pair + odd]));
        }
    }

    const __m256i halves = _mm256_and_si256(lv_half_column(group, 0, half), _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0xd8);
    const __m256 scales = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], scales, group_at(activations, stride, c, g));
    add_minima(columns, group, half, bytes.minima, activations, stride, g, totals);
}

/* --- Q6_K --------------------------------------------------------------------------------------------------------- */

/* Step i (0 to 3) of sub-block t of the quarter at `quants`: eight times four numbers from 0 to 63. */
LV_INLINE __m256i weights_q6_k(const uint8_t *quants, size_t half, size_t t, size_t i) {
    const __m256i packed = lv_half_column(quants, 4 * (t % 2) + i, half);
    const __m256i tops = lv_half_column(quants, 8 + i, half);
    const __m256i nibbles = _mm256_and_si256(t < 2 ? packed : _mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
    const __m256i moved = t == 0   ? _mm256_slli_epi16(tops, 4)
                          : t == 1 ? _mm256_slli_epi16(tops, 2)
                          : t == 2 ? tops
                                   : _mm256_srli_epi16(tops, 2);
    return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(48)));
}

/* Signed byte j of the sub-scales, as a dword. */
LV_INLINE __m256i sub_scale_q6_k(const uint8_t *group, size_t half, size_t j) {
    const __m256i dwords = lv_half_column(group + 32, j / 4, half);
    switch (j % 4) {
    case 0:
        return _mm256_srai_epi32(_mm256_slli_epi32(dwords, 24), 24);
    case 1:
        return _mm256_srai_epi32(_mm256_slli_epi32(dwords, 16), 24);
    case 2:
        return _mm256_srai_epi32(_mm256_slli_epi32(dwords, 8), 24);
    default:
        return _mm256_srai_epi32(dwords, 24);
    }
}

LV_INLINE void add_q6_k(size_t columns, const uint8_t *group, size_t half, const uint8_t *activations, size_t stride,
                        size_t g, float *totals) {
    __m256i scales_of[16];
    LV_UNROLL
    for (size_t j = 0; j < 16; j++) scales_of[j] = sub_scale_q6_k(group, half, j);
    __m256i sums[COLUMNS_MAX];
    LV_UNROLL
    for (size_t c = 0; c < columns; c++) sums[c] = _mm256_setzero_si256();

    LV_NO_UNROLL
    for (size_t first = 0; first < 10; first += first == 1 ? 7 : 1) { /* sub-blocks 0, 1, 8, 9 and 2 * t above */
        const uint8_t *quants = group + LV_Q6_K_QUANTS + LV_Q6_K_QUARTER * (first / 4 + first % 2);
        LV_UNROLL
        for (size_t t = 0; t < 4; t++) {
            lv_forget_loads();
            const __m256i scale = scales_of[first + 2 * t];
            /* The same 16-bit number in both halves, for pairs of sums. */
            const __m256i twice =
                _mm256_or_si256(_mm256_slli_epi32(scale, 16), _mm256_and_si256(scale, _mm256_set1_epi32(0xffff)));
            LV_UNROLL
            for (size_t c = 0; c < columns; c++) {
                const int32_t *seeds = group_at(activations, stride, c, g)->seeds_16 + first;
                sums[c] = _mm256_add_epi32(sums[c], _mm256_mullo_epi32(scale, _mm256_set1_epi32(seeds[2 * t])));
            }
            LV_UNROLL
            for (size_t i = 0; i < 4; i += 2) {
                const __m256i even = weights_q6_k(quants, half, t, i), odd = weights_q6_k(quants, half, t, i + 1);
                LV_UNROLL
                for (size_t c = 0; c < columns; c++) {
                    const int8_t *a = group_at(activations, stride, c, g)->quants + 16 * first;
                    __m256i dots = lv_dot_quad_avx2(_mm256_setzero_si256(), even, a, 8 * t + i);
                    dots = lv_dot_quad_avx2(dots, odd, a, 8 * t + i + 1);
                    sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(dots, twice));
                }
            }
        }
    }

    const __m256 scales = lv_half_scales(group, half);
    LV_UNROLL
    for (size_t c = 0; c < columns; c++)
        add_scaled(totals + c * LV_TILE_ROWS, sums[c], scales, group_at(activations, stride, c, g));
}

/* --- Blocks of columns -------------------------------------------------------------------------------------------- */

LV_INLINE void dot_block(lv_kernel_type type, size_t columns, const uint8_t *tile, size_t groups_count,
                         const uint8_t *activations, size_t stride, float *sums, lv_ahead *ahead) {
    for (size_t g = 0; g < groups_count; g++) {
        LV_NO_UNROLL
        for (size_t half = 0; half < 2; half++) {
            lv_prefetch(ahead, 2);
            if (type == LV_Q4_K)
                add_q4_k(columns, tile, half, activations, stride, g, sums + half * LV_HALF_ROWS);
            else
                add_q6_k(columns, tile, half, activations, stride, g, sums + half * LV_HALF_ROWS);
        }
        tile += lv_kernel_block_bytes(type) * LV_TILE_ROWS;
    }
}

LV_DEFINE_DOT(lv_dot_q4_k_avx2, LV_Q4_K, LV_BLOCKS_OF_4)
LV_DEFINE_DOT(lv_dot_q6_k_avx2, LV_Q6_K, LV_BLOCKS_OF_4)
