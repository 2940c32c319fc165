/* Choosing an instruction set, and walking over a product.
 *
 * A product is walked tile by tile, and a tile in chunks of 1024 elements, so that a chunk of the weights stays in the
 * nearest cache while all activation rows pass over it. Between chunks the sums of the tile wait in the scratch memory:
 * 16 floats a column, in the order of the groups, so that cutting changes no bit. Rows in place are interleaved chunk
 * by chunk into the scratch memory and then taken as a tile: the copy is made once a chunk, whatever the batch, and
 * stays in the nearest cache. */
#include "compute/kernels/kernel.h"

#include "compute/kernels/cpu.h"

#include <assert.h>
#if defined(__x86_64__)
#endif

#include "compute/kernels/tile.h"

enum {
    CHUNK_ELEMENTS = 512,
    PANEL_COLUMNS = 128, /* more columns than that walk over the tile again */
    AHEAD_BYTES = 8192,  /* from what is used to what is prefetched: half and twice as much were slower */
    CHUNK_BYTES_MAX = CHUNK_ELEMENTS / 32 * LV_Q8_0_BYTES * 16,
    SUMS_BYTES = PANEL_COLUMNS * 16 * 4,
};

/* --- Choice ------------------------------------------------------------------------------------------------------- */

const lv_kernels *lv_kernels_at(size_t index) {
    const lv_kernels *found[3];
    size_t count = 0;
#if defined(__x86_64__)
    if (lv_cpu_has_avx512()) found[count++] = &lv_kernels_avx512;
    if (lv_cpu_has_avx2()) found[count++] = &lv_kernels_avx2;
#endif
    found[count++] = &lv_kernels_portable;
    return index < count ? found[index] : NULL;
}

const lv_kernels *lv_kernels_best(void) {
    return lv_kernels_at(0);
}

const char *lv_kernels_name(const lv_kernels *kernels) {
    return kernels->name;
}

bool lv_kernel_supports(int32_t type, uint64_t row_elements) {
    const lv_kernel_type kernel_type = lv_kernel_type_of(type);
    if (kernel_type == LV_KERNEL_TYPES || row_elements == 0) return false;
    return row_elements % lv_group_elements(lv_kernel_traits[kernel_type].activation) == 0;
}

lv_activation_format lv_kernel_activation(int32_t type) {
    const lv_kernel_type kernel_type = lv_kernel_type_of(type);
    assert(kernel_type != LV_KERNEL_TYPES);
    return lv_kernel_traits[kernel_type].activation;
}

/* --- Activations -------------------------------------------------------------------------------------------------- */

static size_t group_bytes(lv_activation_format format) {
    return format == LV_ACTIVATION_32 ? sizeof(lv_group_32) : sizeof(lv_group_256);
}

size_t lv_activation_row_bytes(lv_activation_format format, size_t row_elements) {
    const size_t bytes = row_elements / lv_group_elements(format) * group_bytes(format);
    return (bytes + 63) / 64 * 64;
}

void lv_activation_round(const lv_kernels *kernels, lv_activation_format format, const float *row, size_t row_elements,
                         void *rounded, size_t group_first, size_t groups_count) {
    const size_t group_elements = lv_group_elements(format);
    assert(row_elements % group_elements == 0);
    assert(group_first + groups_count <= row_elements / group_elements);
    (void)row_elements;
    kernels->round[format](row + group_first * group_elements, groups_count,
                           (uint8_t *)rounded + group_first * group_bytes(format));
}

/* --- Products ----------------------------------------------------------------------------------------------------- */

/* What stays the same over a call of lv_product_run. */
typedef struct {
    const lv_kernels *kernels;
    const lv_product *product;
    lv_kernel_type type;
    size_t groups_count, chunk_groups;
    size_t row_bytes, block_bytes, activation_group_bytes;
    const uint8_t *weights_end; /* of the tiles asked for: nothing past it is prefetched */
    float *sums;                /* [PANEL_COLUMNS][16] */
    uint8_t *chunk;             /* CHUNK_BYTES_MAX */
} walk;

size_t lv_kernel_scratch_bytes(size_t row_elements) {
    (void)row_elements; /* chunks have the same size whatever the row's */
    return SUMS_BYTES + CHUNK_BYTES_MAX;
}

/* The sums of one tile with the columns from column_first on. */
static void sum_tile(const walk *w, const uint8_t *tile, size_t rows_count, size_t column_first, size_t columns_count) {
    const lv_product *p = w->product;
    const bool in_place = p->layout == LV_LAYOUT_ROWS;
    const uint8_t *activations = (const uint8_t *)p->activations + column_first * p->activation_stride;
    memset(w->sums, 0, columns_count * LV_TILE_ROWS * sizeof(float));

    for (size_t g = 0; g < w->groups_count; g += w->chunk_groups) {
        const size_t count = w->groups_count - g < w->chunk_groups ? w->groups_count - g : w->chunk_groups;
        const size_t bytes = count * w->block_bytes * LV_TILE_ROWS;
        const uint8_t *chunk = tile + g * w->block_bytes * LV_TILE_ROWS;

        /* As much as is used now: of the next tile's rows, or of what follows a little later in the tile. */
        const uint8_t *next = chunk + (in_place ? w->row_bytes * LV_TILE_ROWS : AHEAD_BYTES);
        const size_t left = next < w->weights_end ? (size_t)(w->weights_end - next) : 0;
        const lv_ahead ahead = {next, left < bytes ? left : bytes};

        if (in_place) {
            w->kernels->interleave[w->type](tile + g * w->block_bytes, w->row_bytes, rows_count, count, w->chunk);
            chunk = w->chunk;
        }
        w->kernels->dot[w->type](chunk, count, activations + g * w->activation_group_bytes, p->activation_stride,
                                 columns_count, w->sums, ahead);
    }
}

static void store_sums(const walk *w, size_t row_first, size_t rows_count, size_t column_first, size_t columns_count) {
    const lv_product *p = w->product;
    for (size_t c = 0; c < columns_count; c++) {
        const float *sums = w->sums + c * LV_TILE_ROWS;
        float *out = p->out + (column_first + c) * p->out_stride + row_first;
        if (p->bias != NULL)
            for (size_t r = 0; r < rows_count; r++) out[r] = sums[r] + p->bias[row_first + r];
        else
            memcpy(out, sums, rows_count * sizeof(float));
    }
}

void lv_product_run(const lv_kernels *kernels, const lv_product *product, size_t tile_first, size_t tiles_count,
                    void *scratch) {
    const lv_kernel_type type = lv_kernel_type_of(product->type);
    assert(lv_kernel_supports(product->type, product->row_elements));
    assert(product->layout == LV_LAYOUT_ROWS || product->rows_count % LV_TILE_ROWS == 0);

    const lv_activation_format format = lv_kernel_traits[type].activation;
    const size_t group_elements = lv_group_elements(format);
    walk w = {
        .kernels = kernels,
        .product = product,
        .type = type,
        .groups_count = product->row_elements / group_elements,
        .chunk_groups = CHUNK_ELEMENTS / group_elements,
        .block_bytes = lv_kernel_traits[type].block_bytes,
        .activation_group_bytes = group_bytes(format),
        .sums = scratch,
        .chunk = (uint8_t *)scratch + SUMS_BYTES,
    };
    w.row_bytes = w.groups_count * w.block_bytes;
    const uint8_t *weights = product->weights;
    size_t row_end = (tile_first + tiles_count) * LV_TILE_ROWS;
    if (row_end > product->rows_count) row_end = product->rows_count;
    w.weights_end = weights + row_end * w.row_bytes;

    for (size_t row = tile_first * LV_TILE_ROWS; row < row_end; row += LV_TILE_ROWS) {
        const size_t rows_count = row_end - row < LV_TILE_ROWS ? row_end - row : LV_TILE_ROWS;
        for (size_t column = 0; column < product->batch_count; column += PANEL_COLUMNS) {
            const size_t left = product->batch_count - column;
            const size_t columns_count = left < PANEL_COLUMNS ? left : PANEL_COLUMNS;
            sum_tile(&w, weights + row * w.row_bytes, rows_count, column, columns_count);
            store_sums(&w, row, rows_count, column, columns_count);
        }
    }
}
