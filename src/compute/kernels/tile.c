/* Interleaving 16 rows into a tile and back, and decoding single blocks.
 *
 * One table describes each type as fields: which bytes of a block become dword columns and which two become a row of
 * scales. Interleaving is the same loop for all types, run in either direction; only two types need a touch more, the
 * high bits of Q5_0 and the inverted sign of Q8_0. What has to be fast, packing and rows in place, goes through the
 * interleaving of the best instruction set instead, which writes the same bytes. */
#include "compute/kernels/tile.h"

#include <assert.h>
#include <ggml.h>
#include <string.h>

#include "compute/kernels/half.h"

const lv_type_traits lv_kernel_traits[LV_KERNEL_TYPES] = {
    [LV_Q4_0] = {GGML_TYPE_Q4_0, LV_Q4_0_BYTES, LV_ACTIVATION_32},
    [LV_Q5_0] = {GGML_TYPE_Q5_0, LV_Q5_0_BYTES, LV_ACTIVATION_32},
    [LV_Q8_0] = {GGML_TYPE_Q8_0, LV_Q8_0_BYTES, LV_ACTIVATION_32},
    [LV_Q4_K] = {GGML_TYPE_Q4_K, LV_Q4_K_BYTES, LV_ACTIVATION_256},
    [LV_Q6_K] = {GGML_TYPE_Q6_K, LV_Q6_K_BYTES, LV_ACTIVATION_256},
};

/* A run of bytes of a block, and where its part of the tile's group begins. Either whole dwords, each a dword column,
 * or a two-byte scale, 16 of which lie together. */
typedef struct {
    uint16_t block_offset, bytes, tile_offset;
} field;

enum { FIELDS_MAX = 14 };

static const field fields[LV_KERNEL_TYPES][FIELDS_MAX] = {
    [LV_Q4_0] = {{0, 2, 0}, {2, 16, 32}},
    [LV_Q5_0] = {{0, 2, 0}, {2, 4, 32}, {6, 16, 96}},
    [LV_Q8_0] = {{0, 2, 0}, {2, 32, 32}},
    [LV_Q4_K] = {{0, 144, 0}},
#define QUARTER(n, h)                                                                                       \
    {64 * n + 16 * h, 16, LV_Q6_K_QUANTS + LV_Q6_K_QUARTER * (2 * n + h)},                                  \
        {64 * n + 16 * h + 32, 16, LV_Q6_K_QUANTS + LV_Q6_K_QUARTER * (2 * n + h) + 4 * LV_DWORD_COLUMN}, { \
        128 + 32 * n + 16 * h, 16, LV_Q6_K_QUANTS + LV_Q6_K_QUARTER *(2 * n + h) + 8 * LV_DWORD_COLUMN      \
    }
    [LV_Q6_K] = {{208, 2, 0}, {192, 16, 32}, QUARTER(0, 0), QUARTER(0, 1), QUARTER(1, 0), QUARTER(1, 1)},
#undef QUARTER
};

lv_kernel_type lv_kernel_type_of(int32_t type) {
    size_t index = 0;
    while (index < LV_KERNEL_TYPES && lv_kernel_traits[index].ggml_type != type) index++;
    return (lv_kernel_type)index;
}

/* --- One block ---------------------------------------------------------------------------------------------------- */

/* Where the high bit of element e of a Q5_0 block stands in a tile's dword. */
static uint32_t high_bit_place(uint32_t e) {
    const uint32_t i = e / 4;
    return 8 * (e % 4) + 4 * (i & 1) + i / 2;
}

static uint32_t spread_high_bits(uint32_t bits) {
    uint32_t spread = 0;
    for (uint32_t e = 0; e < 32; e++) spread |= (bits >> e & 1u) << high_bit_place(e);
    return spread;
}

static uint32_t gather_high_bits(uint32_t spread) {
    uint32_t bits = 0;
    for (uint32_t e = 0; e < 32; e++) bits |= (spread >> high_bit_place(e) & 1u) << e;
    return bits;
}

static void invert_signs(uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) bytes[i] ^= 0x80;
}

static void block_to_tile(lv_kernel_type type, const uint8_t *source, size_t row, uint8_t *group) {
    uint8_t block[LV_BLOCK_BYTES_LARGEST] = {0};
    memcpy(block, source, lv_kernel_traits[type].block_bytes);
    if (type == LV_Q5_0) {
        const uint32_t spread = spread_high_bits(lv_load_u32(block + 2));
        memcpy(block + 2, &spread, sizeof(spread));
    } else if (type == LV_Q8_0) {
        invert_signs(block + 2, 32);
    }

    for (const field *f = fields[type]; f < fields[type] + FIELDS_MAX && f->bytes != 0; f++) {
        uint8_t *target = group + f->tile_offset;
        if (f->bytes == 2) {
            memcpy(target + 2 * row, block + f->block_offset, 2);
            continue;
        }
        for (size_t i = 0; i < f->bytes; i += 4)
            memcpy(target + i * LV_TILE_ROWS + 4 * row, block + f->block_offset + i, 4);
    }
}

void lv_block_from_tile(lv_kernel_type type, const uint8_t *group, size_t row, uint8_t *block) {
    for (const field *f = fields[type]; f < fields[type] + FIELDS_MAX && f->bytes != 0; f++) {
        const uint8_t *source = group + f->tile_offset;
        if (f->bytes == 2) {
            memcpy(block + f->block_offset, source + 2 * row, 2);
            continue;
        }
        for (size_t i = 0; i < f->bytes; i += 4)
            memcpy(block + f->block_offset + i, source + i * LV_TILE_ROWS + 4 * row, 4);
    }

    if (type == LV_Q5_0) {
        const uint32_t bits = gather_high_bits(lv_load_u32(block + 2));
        memcpy(block + 2, &bits, sizeof(bits));
    } else if (type == LV_Q8_0) {
        invert_signs(block + 2, 32);
    }
}

static void decode_nibbles(const uint8_t *bytes, size_t count, int8_t *quants) {
    for (size_t i = 0; i < count; i++) {
        quants[i] = (int8_t)(bytes[i] & 15);
        quants[i + count] = (int8_t)(bytes[i] >> 4);
    }
}

static void decode_q6_k(const uint8_t *block, lv_decoded_block *decoded) {
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *low = block + 64 * half;
        const uint8_t *high = block + 128 + 32 * half;
        int8_t *quants = decoded->quants + 128 * half;
        for (size_t i = 0; i < 32; i++) {
            quants[i] = (int8_t)(((low[i] & 15) | (high[i] & 3) << 4) - 32);
            quants[i + 32] = (int8_t)(((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4) - 32);
            quants[i + 64] = (int8_t)((low[i] >> 4 | (high[i] >> 4 & 3) << 4) - 32);
            quants[i + 96] = (int8_t)((low[i + 32] >> 4 | (high[i] >> 6) << 4) - 32);
        }
    }
    for (size_t j = 0; j < 16; j++) decoded->sub_scales[j] = (int8_t)block[192 + j];
    decoded->scale = lv_half_to_float(lv_load_u16(block + 208));
}

void lv_block_decode(lv_kernel_type type, const uint8_t *block, lv_decoded_block *decoded) {
    if (type == LV_Q6_K) {
        decode_q6_k(block, decoded);
        return;
    }
    decoded->scale = lv_half_to_float(lv_load_u16(block));
    int8_t *quants = decoded->quants;
    switch (type) {
    case LV_Q4_0:
        decode_nibbles(block + 2, 16, quants);
        for (size_t i = 0; i < 32; i++) quants[i] = (int8_t)(quants[i] - 8);
        break;
    case LV_Q5_0:
        decode_nibbles(block + 6, 16, quants);
        for (size_t i = 0; i < 32; i++)
            quants[i] = (int8_t)((quants[i] | (int8_t)((lv_load_u32(block + 2) >> i & 1) << 4)) - 16);
        break;
    case LV_Q8_0:
        memcpy(quants, block + 2, 32);
        break;
    default: /* Q4_K */
        decoded->minimum = lv_half_to_float(lv_load_u16(block + 2));
        for (size_t j = 0; j < 8; j++) {
            decoded->sub_scales[j] = (int8_t)lv_q4_k_scale(block + 4, j);
            decoded->sub_minima[j] = (int8_t)lv_q4_k_minimum(block + 4, j);
        }
        for (size_t i = 0; i < 4; i++) decode_nibbles(block + 16 + 32 * i, 32, quants + 64 * i);
        break;
    }
}

/* --- Rows and tiles ----------------------------------------------------------------------------------------------- */

void lv_interleave(lv_kernel_type type, const uint8_t *rows, size_t stride, size_t rows_count, size_t groups_count,
                   uint8_t *tile) {
    const size_t block_bytes = lv_kernel_traits[type].block_bytes;
    for (size_t g = 0; g < groups_count; g++) {
        for (size_t r = 0; r < LV_TILE_ROWS; r++) {
            const size_t row = r < rows_count ? r : rows_count - 1; /* the last row stands in for those missing */
            block_to_tile(type, rows + row * stride + g * block_bytes, r, tile + g * block_bytes * LV_TILE_ROWS);
        }
    }
}

void lv_tile_pack(int32_t ggml_type, size_t row_elements, const void *rows, void *tile) {
    const lv_kernel_type type = lv_kernel_type_of(ggml_type);
    assert(lv_kernel_supports(ggml_type, row_elements));
    const size_t groups_count = row_elements / lv_group_elements(lv_kernel_traits[type].activation);
    const size_t row_bytes = groups_count * lv_kernel_traits[type].block_bytes;
    lv_kernels_best()->interleave[type](rows, row_bytes, LV_TILE_ROWS, groups_count, tile);
}

void lv_tile_unpack(int32_t ggml_type, size_t row_elements, const void *tile, void *rows) {
    const lv_kernel_type type = lv_kernel_type_of(ggml_type);
    assert(lv_kernel_supports(ggml_type, row_elements));
    const size_t groups_count = row_elements / lv_group_elements(lv_kernel_traits[type].activation);
    const size_t block_bytes = lv_kernel_traits[type].block_bytes;
    for (size_t r = 0; r < LV_TILE_ROWS; r++)
        for (size_t g = 0; g < groups_count; g++)
            lv_block_from_tile(type, (const uint8_t *)tile + g * block_bytes * LV_TILE_ROWS, r,
                               (uint8_t *)rows + (r * groups_count + g) * block_bytes);
}

/* The products in the order in which ggml multiplies: the last bit depends on it. */
static void decoded_to_float(lv_kernel_type type, const lv_decoded_block *block, float *out) {
    switch (type) {
    case LV_Q4_K:
        for (size_t i = 0; i < 256; i++) {
            const float scaled = block->scale * (float)block->sub_scales[i / 32] * (float)block->quants[i];
            out[i] = scaled - block->minimum * (float)block->sub_minima[i / 32];
        }
        break;
    case LV_Q6_K:
        for (size_t i = 0; i < 256; i++)
            out[i] = block->scale * (float)block->sub_scales[i / 16] * (float)block->quants[i];
        break;
    default:
        for (size_t i = 0; i < 32; i++) out[i] = (float)block->quants[i] * block->scale;
        break;
    }
}

void lv_row_to_float(int32_t ggml_type, lv_weight_layout layout, const void *weights, size_t row, size_t row_elements,
                     float *out) {
    const lv_kernel_type type = lv_kernel_type_of(ggml_type);
    assert(lv_kernel_supports(ggml_type, row_elements));
    const size_t group_elements = lv_group_elements(lv_kernel_traits[type].activation);
    const size_t groups_count = row_elements / group_elements;
    const size_t block_bytes = lv_kernel_traits[type].block_bytes;
    const uint8_t *start = weights;
    lv_decoded_block decoded;
    uint8_t block[LV_BLOCK_BYTES_LARGEST] = {0};

    for (size_t g = 0; g < groups_count; g++) {
        if (layout == LV_LAYOUT_ROWS) {
            memcpy(block, start + (row * groups_count + g) * block_bytes, block_bytes);
        } else {
            const size_t group_index = row / LV_TILE_ROWS * groups_count + g;
            lv_block_from_tile(type, start + group_index * block_bytes * LV_TILE_ROWS, row % LV_TILE_ROWS, block);
        }
        lv_block_decode(type, block, &decoded);
        decoded_to_float(type, &decoded, out + g * group_elements);
    }
}
