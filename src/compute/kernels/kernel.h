/* kernel.h - the product of a quantised weight matrix with a batch of activation rows.
 *
 * Kernels of our own for Q4_0, Q5_0, Q8_0, Q4_K and Q6_K, in three instruction sets (AVX-512 VNNI, AVX2, portable C)
 * chosen when the program starts. Each computes the arithmetic of docs/ARITHMETIC.md: an exact integer dot product
 * within a group, one fused multiply-add a group in group order, one rounding of activations. So every instruction set,
 * both layouts and every batch size give the same bits. Pure functions on caller's memory; any thread; several threads
 * share one product by taking disjoint tiles.
 *
 * A TILE is 16 rows. In LV_LAYOUT_TILES a tile's bytes hold, for each group of the row in order, the same fields as 16
 * blocks of the type, interleaved so that one vector load serves 16 rows (the exact order is in tile.h, versioned with
 * LV_PACK_VERSION in model/gguf.h). A tile takes exactly 16 * row_bytes, like the rows it was made of. */
#ifndef LV_COMPUTE_KERNELS_KERNEL_H
#define LV_COMPUTE_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gguf.h"

#define LV_TILE_ROWS ((size_t)16)

/* How activations are rounded: signed bytes with one float scale for 32 or for 256 elements, as ggml's Q8_0 and Q8_K
 * round them (Q8_0's scale rounded to half precision), stored as kernels want them. */
typedef enum { LV_ACTIVATION_32 = 0, LV_ACTIVATION_256 = 1 } lv_activation_format;

typedef struct lv_kernels lv_kernels; /* one instruction set */

/* The best for this processor; never NULL. Asks the processor: keep the answer. */
const lv_kernels *lv_kernels_best(void);
/* All that this processor can run, best first, for tests and doctor; NULL past the end. The last is the portable one.
 */
const lv_kernels *lv_kernels_at(size_t index);
const char *lv_kernels_name(const lv_kernels *kernels);

/* True when `type` (enum ggml_type) has a kernel and rows of `row_elements` fit its groups. */
bool lv_kernel_supports(int32_t type, uint64_t row_elements);
lv_activation_format lv_kernel_activation(int32_t type);

/* Bytes of one rounded activation row, a multiple of 64; row_elements is a multiple of the format's group. */
size_t lv_activation_row_bytes(lv_activation_format format, size_t row_elements);
/* Rounds groups [group_first, group_first + groups_count) of one row; groups may be shared out among threads. Rows
 * begin at multiples of 64 bytes. */
void lv_activation_round(const lv_kernels *kernels, lv_activation_format format, const float *row, size_t row_elements,
                         void *rounded, size_t group_first, size_t groups_count);

typedef struct {
    int32_t type; /* enum ggml_type */
    lv_weight_layout layout;
    const void *weights; /* rows_count rows; any alignment */
    size_t rows_count;   /* LV_LAYOUT_TILES: a multiple of 16 */
    size_t row_elements;
    const void *activations; /* batch_count rounded rows, activation_stride bytes apart */
    size_t activation_stride;
    size_t batch_count;
    const float *bias; /* NULL, or rows_count floats added to the finished sums */
    float *out;        /* out[b * out_stride + r] = row r times activation row b */
    size_t out_stride;
} lv_product;

/* Computes tiles [tile_first, tile_first + tiles_count) of the product: rows [16 * tile_first, ...), clipped to
 * rows_count. `scratch` is the calling thread's own, lv_kernel_scratch_bytes bytes, aligned to 64. */
void lv_product_run(const lv_kernels *kernels, const lv_product *product, size_t tile_first, size_t tiles_count,
                    void *scratch);
size_t lv_kernel_scratch_bytes(size_t row_elements);

/* Rewrites one tile from rows to the interleaved layout (16 rows, row_bytes apart, to 16 * row_bytes) and back. Source
 * and destination do not overlap. */
void lv_tile_pack(int32_t type, size_t row_elements, const void *rows, void *tile);
void lv_tile_unpack(int32_t type, size_t row_elements, const void *tile, void *rows);

/* Floats of one row of a tile or of plain rows, as ggml's to_float gives them for the type. */
void lv_row_to_float(int32_t type, lv_weight_layout layout, const void *weights, size_t row, size_t row_elements,
                     float *out);

#endif
