/* Interleaving 16 rows into a tile with AVX2: what tile.c does byte by byte. The AVX-512 set uses it too: wider vectors
 * cost more to put together than they save.
 *
 * Everything but the scales is a transposition of dwords. Sixteen bytes of each row are put into lanes of vectors;
 * transposing 4 x 4 dwords within the lanes then gives four dword columns. */
#include "compute/kernels/x86.h"

/* Where the same block of 16 rows begins. Row r is quads[r / 4] + r % 4 * stride: six registers for 16 addresses. */
typedef struct {
    const uint8_t *quads[4];
    size_t stride;
} cursor;

LV_INLINE cursor cursor_at(const uint8_t *rows, size_t stride) {
    return (cursor){{rows, rows + 4 * stride, rows + 8 * stride, rows + 12 * stride}, stride};
}

LV_INLINE void cursor_move(cursor *at, size_t bytes) {
    LV_UNROLL
    for (size_t q = 0; q < 4; q++) {
        at->quads[q] += bytes;
        __asm__("" : "+r"(at->quads[q])); /* or compilers keep 16 addresses, most of them in memory */
    }
}

LV_INLINE const uint8_t *row_at(const cursor *at, size_t row) {
    return at->quads[row / 4] + row % 4 * at->stride;
}

/* 16 bytes of row `row` and of the row four below it. */
LV_INLINE __m256i two_rows(const cursor *at, size_t row, size_t offset) {
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(row_at(at, row) + offset));
    const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(row_at(at, row + 4) + offset));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* The dword columns of 16 bytes of every row, eight rows at a time. `flip` is exclusive-ored to every byte. */
LV_INLINE void copy_columns(const cursor *at, size_t offset, int8_t flip, uint8_t *target) {
    LV_UNROLL
    for (size_t r = 0; r < LV_TILE_ROWS; r += 8) {
        const __m256i a = two_rows(at, r, offset), b = two_rows(at, r + 1, offset);
        const __m256i c = two_rows(at, r + 2, offset), d = two_rows(at, r + 3, offset);
        const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
        const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
        const __m256i columns[4] = {_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
                                    _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)};
        LV_UNROLL
        for (size_t i = 0; i < 4; i++) {
            const __m256i flipped = flip != 0 ? _mm256_xor_si256(columns[i], _mm256_set1_epi8(flip)) : columns[i];
            _mm256_storeu_si256((__m256i *)(void *)(target + LV_DWORD_COLUMN * i + 4 * r), flipped);
        }
    }
}

/* Two bytes of every row. */
LV_INLINE void copy_scales(const cursor *at, size_t offset, uint8_t *target) {
    LV_UNROLL
    for (size_t r = 0; r < LV_TILE_ROWS; r += 8) {
        __m128i eight = _mm_cvtsi32_si128(lv_load_u16(row_at(at, r) + offset));
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 1) + offset), 1);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 2) + offset), 2);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 3) + offset), 3);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 4) + offset), 4);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 5) + offset), 5);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 6) + offset), 6);
        eight = _mm_insert_epi16(eight, lv_load_u16(row_at(at, r + 7) + offset), 7);
        _mm_storeu_si128((__m128i *)(void *)(target + 2 * r), eight);
    }
}

/* Exchanges the bits of each dword that `mask` has with those `count` above them. */
LV_INLINE __m256i exchange_bits(__m256i x, __m256i shifted, __m128i count, int32_t mask) {
    const __m256i moved = _mm256_and_si256(_mm256_xor_si256(shifted, x), _mm256_set1_epi32(mask));
    return _mm256_xor_si256(_mm256_xor_si256(x, moved), _mm256_sll_epi32(moved, count));
}

/* Bit 4 * i + b of each dword to byte b, where the bits stand in the order i = 0 2 4 6 1 3 5 7 (tile.h). */
LV_INLINE __m256i spread_high_bits(__m256i x) {
    x = exchange_bits(x, _mm256_srli_epi32(x, 14), _mm_cvtsi32_si128(14), 0xcccc);
    return exchange_bits(x, _mm256_srli_epi32(x, 7), _mm_cvtsi32_si128(7), 0xaa00aa);
}

/* Four bytes of rows r to r + 3. */
LV_INLINE __m128i four_dwords(const cursor *at, size_t r, size_t offset) {
    __m128i four = _mm_cvtsi32_si128((int32_t)lv_load_u32(row_at(at, r) + offset));
    four = _mm_insert_epi32(four, (int32_t)lv_load_u32(row_at(at, r + 1) + offset), 1);
    four = _mm_insert_epi32(four, (int32_t)lv_load_u32(row_at(at, r + 2) + offset), 2);
    return _mm_insert_epi32(four, (int32_t)lv_load_u32(row_at(at, r + 3) + offset), 3);
}

LV_INLINE void copy_high_bits(const cursor *at, size_t offset, uint8_t *target) {
    LV_UNROLL
    for (size_t r = 0; r < LV_TILE_ROWS; r += 8) {
        const __m256i eight = _mm256_set_m128i(four_dwords(at, r + 4, offset), four_dwords(at, r, offset));
        _mm256_storeu_si256((__m256i *)(void *)(target + 4 * r), spread_high_bits(eight));
    }
}

/* One block of all rows. */
LV_INLINE void interleave_block(lv_kernel_type type, const cursor *at, uint8_t *group) {
    switch (type) {
    case LV_Q4_0:
        copy_scales(at, 0, group);
        copy_columns(at, 2, 0, group + 32);
        break;
    case LV_Q5_0:
        copy_scales(at, 0, group);
        copy_high_bits(at, 2, group + 32);
        copy_columns(at, 6, 0, group + 96);
        break;
    case LV_Q8_0:
        copy_scales(at, 0, group);
        copy_columns(at, 2, -128, group + 32);
        copy_columns(at, 18, -128, group + 32 + 4 * LV_DWORD_COLUMN);
        break;
    case LV_Q4_K:
        LV_UNROLL
        for (size_t i = 0; i < 9; i++) copy_columns(at, 16 * i, 0, group + 4 * LV_DWORD_COLUMN * i);
        break;
    default: /* Q6_K */
        copy_scales(at, 208, group);
        copy_columns(at, 192, 0, group + 32);
        LV_UNROLL
        for (size_t quarter = 0; quarter < 4; quarter++) {
            uint8_t *target = group + LV_Q6_K_QUANTS + LV_Q6_K_QUARTER * quarter;
            const size_t low = 64 * (quarter / 2) + 16 * (quarter % 2), high = 128 + 16 * quarter;
            copy_columns(at, low, 0, target);
            copy_columns(at, low + 32, 0, target + 4 * LV_DWORD_COLUMN);
            copy_columns(at, high, 0, target + 8 * LV_DWORD_COLUMN);
        }
        break;
    }
}

LV_INLINE void interleave(lv_kernel_type type, const uint8_t *rows, size_t stride, size_t rows_count,
                          size_t groups_count, uint8_t *tile) {
    if (rows_count < LV_TILE_ROWS) { /* the last tile of a matrix */
        lv_interleave(type, rows, stride, rows_count, groups_count, tile);
        return;
    }
    cursor at = cursor_at(rows, stride);
    for (size_t g = 0; g < groups_count; g++) {
        interleave_block(type, &at, tile);
        cursor_move(&at, lv_kernel_block_bytes(type));
        tile += lv_kernel_block_bytes(type) * LV_TILE_ROWS;
    }
}

#define DEFINE_INTERLEAVE(name, TYPE)                                                                      \
    void name(const uint8_t *rows, size_t stride, size_t rows_count, size_t groups_count, uint8_t *tile) { \
        interleave(TYPE, rows, stride, rows_count, groups_count, tile);                                    \
    }

DEFINE_INTERLEAVE(lv_interleave_q4_0_avx2, LV_Q4_0)
DEFINE_INTERLEAVE(lv_interleave_q5_0_avx2, LV_Q5_0)
DEFINE_INTERLEAVE(lv_interleave_q8_0_avx2, LV_Q8_0)
DEFINE_INTERLEAVE(lv_interleave_q4_k_avx2, LV_Q4_K)
DEFINE_INTERLEAVE(lv_interleave_q6_k_avx2, LV_Q6_K)
