/* tile.h - what the kernels of all instruction sets share: the bytes of a tile, of a rounded activation row, and the
 * table of functions that makes an instruction set.
 *
 * Internal to this folder. Pure data and inline arithmetic; any thread.
 *
 * A GROUP is the unit of the integer dot product: 32 elements for Q4_0, Q5_0 and Q8_0, 256 for Q4_K and Q6_K; one block
 * of the type. A tile of LV_LAYOUT_TILES holds 16 rows group by group. Within a group, a DWORD COLUMN is 16 times four
 * bytes: dword i of row 0, of row 1, ... of row 15, 64 bytes, one vector load. Row r's four bytes are at 4 * r.
 *
 *      Q4_0   288 bytes   16 scales (half) | 4 dword columns of quants
 *      Q5_0   352 bytes   16 scales (half) | 1 dword column of high bits | 4 dword columns of quants
 *      Q8_0   544 bytes   16 scales (half) | 8 dword columns of quants, each byte's top bit inverted (value + 128)
 *      Q4_K  2304 bytes   36 dword columns: scale and minimum (halves) | 3 of sub-scales | 32 of quants
 *      Q6_K  3360 bytes   16 scales (half) | 4 dword columns of sub-scales | 4 quarters: 8 of low bits, 4 of high bits
 *
 * Bytes stand within a row's dwords as in the block of the GGUF, but for the high bits of Q5_0: byte b has those of the
 * elements 4 * i + b, from bit 0 up in the order i = 0 2 4 6 1 3 5 7. So one shift brings the bits of four neighbours
 * to their bytes, and this order is had from the GGUF's by exchanging bits twice. This order is versioned with
 * LV_PACK_VERSION. */
#ifndef LV_COMPUTE_KERNELS_TILE_H
#define LV_COMPUTE_KERNELS_TILE_H

#include <string.h>

#include "compute/kernels/kernel.h"

/* The types with a kernel, numbered densely for tables. */
typedef enum { LV_Q4_0, LV_Q5_0, LV_Q8_0, LV_Q4_K, LV_Q6_K, LV_KERNEL_TYPES } lv_kernel_type;

enum {
    LV_Q4_0_BYTES = 18,
    LV_Q5_0_BYTES = 22,
    LV_Q8_0_BYTES = 34,
    LV_Q4_K_BYTES = 144,
    LV_Q6_K_BYTES = 210,
    LV_BLOCK_BYTES_LARGEST = 210,
    LV_DWORD_COLUMN = 64, /* bytes of one */
    LV_Q6_K_QUANTS = 32 + 4 * LV_DWORD_COLUMN,
    LV_Q6_K_QUARTER = 12 * LV_DWORD_COLUMN,
};

typedef struct {
    int32_t ggml_type;
    uint32_t block_bytes;
    lv_activation_format activation;
} lv_type_traits;

extern const lv_type_traits lv_kernel_traits[LV_KERNEL_TYPES];
/* The same bytes, for code in which the type is a constant. */
static inline size_t lv_kernel_block_bytes(lv_kernel_type type) {
    switch (type) {
    case LV_Q4_0:
        return LV_Q4_0_BYTES;
    case LV_Q5_0:
        return LV_Q5_0_BYTES;
    case LV_Q8_0:
        return LV_Q8_0_BYTES;
    case LV_Q4_K:
        return LV_Q4_K_BYTES;
    default:
        return LV_Q6_K_BYTES;
    }
}
/* LV_KERNEL_TYPES when there is no kernel for `type`. */
lv_kernel_type lv_kernel_type_of(int32_t type);
static inline size_t lv_group_elements(lv_activation_format format) {
    return format == LV_ACTIVATION_32 ? 32 : 256;
}

/* --- Rounded activations ----------------------------------------------------------------------------------------- */

/* Weights are taken as unsigned numbers, value + zero; the integer dot product is then too large by zero * sum(quants).
 * What must be added for it is stored with the quants, so that a kernel starts its sum with it. */
typedef struct {
    int8_t quants[32];
    float scale;
    int32_t seed_8, seed_16, seed_128; /* -8, -16, -128 times the sum of the quants */
} lv_group_32;

typedef struct {
    int8_t quants[256];
    float scale;
    int16_t sums_32[8];   /* sums of 32 quants each, in the order 0 2 1 3 4 6 5 7: how Q4_K's minima lie in pairs */
    int32_t seeds_16[16]; /* -32 times the sums of 16 quants each */
} lv_group_256;

/* Where the sum of 32 quants number j stands in sums_32. */
static inline size_t lv_sums_32_place(size_t j) {
    return (j & 4) + 2 * (j & 1) + (j >> 1 & 1);
}

/* --- An instruction set ------------------------------------------------------------------------------------------ */

/* Memory that will be needed soon; none where count is 0. */
typedef struct {
    const uint8_t *bytes;
    size_t count;
} lv_ahead;

/* Adds to sums[c * 16 + r] the products of row r of the tile with activation row c, for groups_count groups of `tile`
 * and of the rows at `activations`, `stride` bytes apart; prefetches `ahead` meanwhile. */
typedef void lv_dot_fn(const uint8_t *tile, size_t groups_count, const uint8_t *activations, size_t stride,
                       size_t columns_count, float *sums, lv_ahead ahead);

/* Writes groups_count groups of a tile from rows `stride` bytes apart. Of the last tile of a matrix only rows_count
 * rows may be there; the other places are filled with anything, and what is computed from them is dropped. */
typedef void lv_interleave_fn(const uint8_t *rows, size_t stride, size_t rows_count, size_t groups_count,
                              uint8_t *tile);

/* Rounds groups_count groups of floats. */
typedef void lv_round_fn(const float *row, size_t groups_count, void *groups);

struct lv_kernels {
    const char *name;
    lv_round_fn *round[2]; /* by lv_activation_format */
    lv_dot_fn *dot[LV_KERNEL_TYPES];
    lv_interleave_fn *interleave[LV_KERNEL_TYPES];
};

/* Usable in the other sets too, where they have none of their own. */
lv_round_fn lv_round_32_portable, lv_round_256_portable;
lv_dot_fn lv_dot_q4_0_portable, lv_dot_q5_0_portable, lv_dot_q8_0_portable, lv_dot_q4_k_portable, lv_dot_q6_k_portable;
lv_interleave_fn lv_interleave_q4_0, lv_interleave_q5_0, lv_interleave_q8_0, lv_interleave_q4_k, lv_interleave_q6_k;

extern const lv_kernels lv_kernels_portable;
#if defined(__x86_64__)
extern const lv_kernels lv_kernels_avx2, lv_kernels_avx512;
#endif

/* --- Blocks and tiles (tile.c) ----------------------------------------------------------------------------------- */

/* A block as plain numbers: the values of the quants (Q4_K's from 0, the others' around 0), and what the type has of
 * the other fields. */
typedef struct {
    int8_t quants[256];
    int8_t sub_scales[16], sub_minima[8];
    float scale, minimum;
} lv_decoded_block;

void lv_block_decode(lv_kernel_type type, const uint8_t *block, lv_decoded_block *decoded);
/* Copies row `row`'s block out of a tile's group. */
void lv_block_from_tile(lv_kernel_type type, const uint8_t *group, size_t row, uint8_t *block);
/* lv_interleave_fn for any type. */
void lv_interleave(lv_kernel_type type, const uint8_t *rows, size_t stride, size_t rows_count, size_t groups_count,
                   uint8_t *tile);

static inline uint32_t lv_load_u32(const void *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static inline uint16_t lv_load_u16(const void *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* Sub-scale and sub-minimum j (0 to 7) of a Q4_K block, six bits each, from its 12 bytes. */
static inline uint8_t lv_q4_k_scale(const uint8_t packed[12], size_t j) {
    if (j < 4) return packed[j] & 63;
    return (uint8_t)((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
}

static inline uint8_t lv_q4_k_minimum(const uint8_t packed[12], size_t j) {
    if (j < 4) return packed[j + 4] & 63;
    return (uint8_t)(packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
}

#endif
