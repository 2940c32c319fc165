/* Interleaving 16 rows into a tile with AVX-512: what tile.c does byte by byte.
 *
 * Everything but the scales is a transposition of dwords. Sixteen bytes of each row are put into four vectors, row
 * 4 * l + k into lane l of vector k; transposing 4 x 4 dwords within the lanes then gives four dword columns. */
#include "compute/kernels/avx512.h"

typedef struct {
    __m512i columns[4];
} four_columns;

LV_INLINE __m512i gather_rows(const uint8_t *const rows[LV_TILE_ROWS], size_t first, size_t offset) {
    __m512i lanes = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(rows[first] + offset)));
    lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00f0,
                                        _mm_loadu_si128((const __m128i *)(const void *)(rows[first + 4] + offset)));
    lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0f00,
                                        _mm_loadu_si128((const __m128i *)(const void *)(rows[first + 8] + offset)));
    return _mm512_mask_broadcast_i32x4(lanes, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(const void *)(rows[first + 12] + offset)));
}

/* The dword columns of 16 bytes of every row. */
LV_INLINE four_columns transpose(const uint8_t *const rows[LV_TILE_ROWS], size_t offset) {
    const __m512i a = gather_rows(rows, 0, offset), b = gather_rows(rows, 1, offset);
    const __m512i c = gather_rows(rows, 2, offset), d = gather_rows(rows, 3, offset);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    return (four_columns){{_mm512_unpacklo_epi64(ab_low, cd_low), _mm512_unpackhi_epi64(ab_low, cd_low),
                           _mm512_unpacklo_epi64(ab_high, cd_high), _mm512_unpackhi_epi64(ab_high, cd_high)}};
}

LV_INLINE void copy_columns(const uint8_t *const rows[LV_TILE_ROWS], size_t offset, uint8_t flip, uint8_t *target) {
    const four_columns four = transpose(rows, offset);
    LV_UNROLL
    for (size_t i = 0; i < 4; i++)
        _mm512_storeu_si512(target + LV_DWORD_COLUMN * i,
                            flip != 0 ? _mm512_xor_si512(four.columns[i], _mm512_set1_epi8((char)flip))
                                      : four.columns[i]);
}

LV_INLINE void copy_scales(const uint8_t *const rows[LV_TILE_ROWS], size_t offset, uint8_t *target) {
    LV_UNROLL
    for (size_t r = 0; r < LV_TILE_ROWS; r++) memcpy(target + 2 * r, rows[r] + offset, 2);
}

/* Bit 4 * i + b of each dword to byte b, where the bits stand in the order i = 0 2 4 6 1 3 5 7 (tile.h): two exchanges
 * of bits, those of a mask with those 14 and then 7 above. */
LV_INLINE __m512i spread_high_bits(__m512i x) {
    enum { XOR_AND = 0x28, XOR_XOR = 0x96 }; /* (a ^ b) & c and a ^ b ^ c */
    __m512i moved = _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, 14), x, _mm512_set1_epi32(0xcccc), XOR_AND);
    x = _mm512_ternarylogic_epi32(x, moved, _mm512_slli_epi32(moved, 14), XOR_XOR);
    moved = _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, 7), x, _mm512_set1_epi32(0xaa00aa), XOR_AND);
    return _mm512_ternarylogic_epi32(x, moved, _mm512_slli_epi32(moved, 7), XOR_XOR);
}

/* The dword column of four bytes of every row. */
LV_INLINE __m512i one_column(const uint8_t *const rows[LV_TILE_ROWS], size_t offset) {
    uint32_t dwords[LV_TILE_ROWS];
    LV_UNROLL
    for (size_t r = 0; r < LV_TILE_ROWS; r++) dwords[r] = lv_load_u32(rows[r] + offset);
    return _mm512_loadu_si512(dwords);
}

void lv_interleave_q4_0_avx512(const uint8_t *const rows[LV_TILE_ROWS], size_t groups_count, uint8_t *tile) {
    for (size_t offset = 0; offset < groups_count * LV_Q4_0_BYTES; offset += LV_Q4_0_BYTES) {
        copy_scales(rows, offset, tile);
        copy_columns(rows, offset + 2, 0, tile + 32);
        tile += LV_Q4_0_BYTES * LV_TILE_ROWS;
    }
}

void lv_interleave_q5_0_avx512(const uint8_t *const rows[LV_TILE_ROWS], size_t groups_count, uint8_t *tile) {
    for (size_t offset = 0; offset < groups_count * LV_Q5_0_BYTES; offset += LV_Q5_0_BYTES) {
        copy_scales(rows, offset, tile);
        _mm512_storeu_si512(tile + 32, spread_high_bits(one_column(rows, offset + 2)));
        copy_columns(rows, offset + 6, 0, tile + 96);
        tile += LV_Q5_0_BYTES * LV_TILE_ROWS;
    }
}

void lv_interleave_q8_0_avx512(const uint8_t *const rows[LV_TILE_ROWS], size_t groups_count, uint8_t *tile) {
    for (size_t offset = 0; offset < groups_count * LV_Q8_0_BYTES; offset += LV_Q8_0_BYTES) {
        copy_scales(rows, offset, tile);
        copy_columns(rows, offset + 2, 0x80, tile + 32);
        copy_columns(rows, offset + 18, 0x80, tile + 32 + 4 * LV_DWORD_COLUMN);
        tile += LV_Q8_0_BYTES * LV_TILE_ROWS;
    }
}

void lv_interleave_q4_k_avx512(const uint8_t *const rows[LV_TILE_ROWS], size_t groups_count, uint8_t *tile) {
    for (size_t offset = 0; offset < groups_count * LV_Q4_K_BYTES; offset += 16, tile += 4 * LV_DWORD_COLUMN)
        copy_columns(rows, offset, 0, tile);
}

void lv_interleave_q6_k_avx512(const uint8_t *const rows[LV_TILE_ROWS], size_t groups_count, uint8_t *tile) {
    for (size_t g = 0; g < groups_count; g++) {
        const size_t offset = g * LV_Q6_K_BYTES;
        for (size_t i = 0; i < 208; i += 16, tile += 4 * LV_DWORD_COLUMN) copy_columns(rows, offset + i, 0, tile);
        copy_scales(rows, offset + 208, tile);
        tile += 2 * LV_TILE_ROWS;
    }
}
