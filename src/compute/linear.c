/* linear.c - products are shared out among threads by an atomic counter over tiles of 16 rows: all runs of rows that
 * take the same activations form one list of tiles, so that one barrier serves them all (q, k and v; gate and up).
 *
 * ggml's product is used for types without a kernel. It may choose another order of summation for more rows at once,
 * which would break the rule that a row's bits do not depend on its batch; so the largest safe batch is measured once
 * at opening, and larger batches are cut into pieces of that size. */
#include "compute/linear.h"

#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"

/* --- Rounding ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const lv_kernels *kernels;
    lv_activations activations;
    unsigned formats;
} rounding_record;

static size_t group_elements(lv_activation_format format) {
    return format == LV_ACTIVATION_32 ? 32 : 256;
}

static void round_rows(const rounding_record *record, lv_activation_format format, size_t ith, size_t nth) {
    const lv_activations *activations = &record->activations;
    const size_t groups = activations->elements / group_elements(format);
    const size_t row_bytes = lv_activation_row_bytes(format, activations->elements);
    /* Threads share (row, group) pairs, so that a single row is shared out too. */
    const size_t total = activations->rows_count * groups;
    size_t next = total * ith / nth;
    const size_t end = total * (ith + 1) / nth;
    while (next < end) {
        const size_t row = next / groups, group = next % groups;
        const size_t count = groups - group < end - next ? groups - group : end - next;
        lv_activation_round(record->kernels, format, activations->floats + row * activations->elements,
                            activations->elements, activations->rounded[format] + row * row_bytes, group, count);
        next += count;
    }
}

static void run_rounding(int ith, int nth, void *user) {
    const rounding_record *record = user;
    if (record->formats & (1u << LV_ACTIVATION_32)) round_rows(record, LV_ACTIVATION_32, (size_t)ith, (size_t)nth);
    if (record->formats & (1u << LV_ACTIVATION_256)) round_rows(record, LV_ACTIVATION_256, (size_t)ith, (size_t)nth);
}

void lv_linear_add_rounding(const lv_linear_context *context, const lv_activations *activations, unsigned formats) {
    if (formats == 0) return;
    rounding_record *record = lv_graph_record(context->graph, sizeof(*record));
    record->kernels = context->kernels;
    record->activations = *activations;
    record->formats = formats;
    lv_graph_add_step(context->graph, run_rounding, record);
}

unsigned lv_linear_formats(const lv_tensor *tensor) {
    if (!lv_kernel_supports(tensor->type, tensor->dims[0])) return 0;
    return 1u << lv_kernel_activation(tensor->type);
}

/* --- Products ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const lv_kernels *kernels;
    uint8_t *scratch;
    size_t scratch_stride;
    size_t products_count;
    lv_product products[LV_LINEAR_PARTS_MAX];
    size_t tile_first[LV_LINEAR_PARTS_MAX + 1];
    atomic_size_t next_tile;
} products_record;

static void run_products(int ith, int nth, void *user) {
    products_record *record = user;
    void *scratch = record->scratch + (size_t)ith * record->scratch_stride;
    const size_t total = record->tile_first[record->products_count];
    /* Several takes a thread even out unequal speeds; large takes keep a thread on one stream of memory. */
    const size_t takes = total / ((size_t)nth * 8);
    const size_t step = takes > 1 ? takes : 1;
    for (;;) {
        size_t tile = atomic_fetch_add_explicit(&record->next_tile, step, memory_order_relaxed);
        if (tile >= total) return;
        const size_t end = tile + step < total ? tile + step : total;
        size_t p = 0;
        while (tile < end) {
            while (record->tile_first[p + 1] <= tile) p++;
            const size_t count = (record->tile_first[p + 1] < end ? record->tile_first[p + 1] : end) - tile;
            lv_product_run(record->kernels, &record->products[p], tile - record->tile_first[p], count, scratch);
            tile += count;
        }
    }
}

static void add_to_record(products_record *record, const lv_linear_part *part, const lv_activations *activations) {
    const lv_activation_format format = lv_kernel_activation(part->tensor->type);
    lv_product *product = &record->products[record->products_count];
    *product = (lv_product){
        .type = part->tensor->type,
        .layout = part->layout,
        .weights = part->data,
        .rows_count = part->rows_count,
        .row_elements = activations->elements,
        .activations = activations->rounded[format],
        .activation_stride = lv_activation_row_bytes(format, activations->elements),
        .batch_count = activations->rows_count,
        .bias = part->bias ? part->bias + part->row_first : NULL,
        .out = part->out + part->row_first,
        .out_stride = part->out_stride,
    };
    const size_t tiles = (part->rows_count + LV_TILE_ROWS - 1) / LV_TILE_ROWS;
    record->tile_first[record->products_count + 1] = record->tile_first[record->products_count] + tiles;
    record->products_count++;
}

/* ggml's product for one part, `count` activation rows from `first` on, then the bias. */
static void add_ggml_product(const lv_linear_context *context, const lv_linear_part *part,
                             const lv_activations *activations, size_t first, size_t count) {
    lv_graph *graph = context->graph;
    struct ggml_context *ggml = lv_graph_context(graph);
    struct ggml_tensor *weights =
        lv_graph_tensor(graph, (enum ggml_type)part->tensor->type, (int64_t)activations->elements,
                        (int64_t)part->rows_count, part->data);
    struct ggml_tensor *rows = lv_graph_tensor(graph, GGML_TYPE_F32, (int64_t)activations->elements, (int64_t)count,
                                               activations->floats + first * activations->elements);
    float *out = part->out + first * part->out_stride + part->row_first;
    struct ggml_tensor *product = ggml_mul_mat(ggml, weights, rows);
    /* The result is a run of columns of the whole matrix's output. */
    product->nb[1] = part->out_stride * sizeof(float);
    product->nb[2] = product->nb[3] = product->nb[1] * count;
    lv_graph_add(graph, product, out);
    if (part->bias) {
        struct ggml_tensor *bias =
            lv_graph_tensor(graph, GGML_TYPE_F32, (int64_t)part->rows_count, 1, part->bias + part->row_first);
        struct ggml_tensor *sum = ggml_add(ggml, product, bias);
        memcpy(sum->nb, product->nb, sizeof(sum->nb));
        lv_graph_add(graph, sum, out);
    }
}

static size_t piece_rows(const uint8_t *stable_batches, int32_t type, size_t rows_count) {
    const size_t stable = stable_batches ? stable_batches[type] : 1;
    if (stable == 0) return 1;
    return stable < rows_count ? stable : rows_count;
}

void lv_linear_add_products(const lv_linear_context *context, const lv_activations *activations,
                            const lv_linear_part *parts, size_t parts_count) {
    products_record *record = NULL;
    for (size_t i = 0; i < parts_count; i++) {
        const lv_linear_part *part = &parts[i];
        if (lv_kernel_supports(part->tensor->type, activations->elements)) {
            if (!record) {
                record = lv_graph_record(context->graph, sizeof(*record));
                record->kernels = context->kernels;
                record->scratch = context->scratch;
                record->scratch_stride = context->scratch_stride;
                atomic_init(&record->next_tile, 0);
            }
            add_to_record(record, part, activations);
        } else {
            const size_t step = piece_rows(context->stable_batches, part->tensor->type, activations->rows_count);
            for (size_t first = 0; first < activations->rows_count; first += step) {
                const size_t left = activations->rows_count - first;
                add_ggml_product(context, part, activations, first, left < step ? left : step);
            }
        }
    }
    if (record) lv_graph_add_step(context->graph, run_products, record);
}

uint32_t lv_linear_nodes(const lv_tensor *tensor, size_t rows_count, const uint8_t *stable_batches) {
    if (lv_kernel_supports(tensor->type, tensor->dims[0])) return 1;
    const size_t step = piece_rows(stable_batches, tensor->type, rows_count);
    return (uint32_t)(2 * ((rows_count + step - 1) / step));
}

/* --- Bits of ggml's product against the batch --------------------------------------------------------------------- */

enum { STABLE_ROWS = 64, STABLE_BATCH_MAX = 33, STABLE_ALWAYS = 255 };

/* Deterministic values between -1 and 1. */
static void fill_noise(float *values, size_t count, uint32_t state) {
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((double)state / 2147483648.0 - 1.0);
    }
}

static bool multiply(lv_graph *graph, enum ggml_type type, size_t elements, const void *weights, const float *rows,
                     size_t rows_count, float *out) {
    struct ggml_tensor *w = lv_graph_tensor(graph, type, (int64_t)elements, STABLE_ROWS, weights);
    struct ggml_tensor *x = lv_graph_tensor(graph, GGML_TYPE_F32, (int64_t)elements, (int64_t)rows_count, rows);
    lv_graph_add(graph, ggml_mul_mat(lv_graph_context(graph), w, x), out);
    return lv_graph_run(graph, NULL) == LEVER_OK;
}

uint8_t lv_linear_stable_batch(lv_graph *graph, enum ggml_type type, size_t elements, lv_ledger *ledger) {
    if (lv_kernel_supports((int32_t)type, elements)) return STABLE_ALWAYS;
    const size_t row_bytes = ggml_row_size(type, (int64_t)elements);
    const size_t out_count = (size_t)STABLE_ROWS * STABLE_BATCH_MAX;
    float *floats = lv_alloc(ledger, LV_MEM_WORKSPACE, (STABLE_ROWS + STABLE_BATCH_MAX) * elements, sizeof(float));
    uint8_t *weights = lv_alloc(ledger, LV_MEM_WORKSPACE, STABLE_ROWS, row_bytes);
    float *alone = lv_alloc(ledger, LV_MEM_WORKSPACE, 2 * out_count, sizeof(float));
    uint8_t stable = 1; /* a single row is always right */
    if (floats && weights && alone) {
        float *rows = floats + STABLE_ROWS * elements;
        float *together = alone + out_count;
        fill_noise(floats, (STABLE_ROWS + STABLE_BATCH_MAX) * elements, 12345u);
        /* Some types cannot be made without importances; all alike will do. */
        for (size_t i = 0; i < elements; i++) rows[i] = 1.0f;
        ggml_quantize_chunk(type, floats, weights, 0, STABLE_ROWS, (int64_t)elements, rows);
        fill_noise(rows, STABLE_BATCH_MAX * elements, 54321u);
        bool same = true;
        for (size_t b = 0; b < STABLE_BATCH_MAX && same; b++) {
            same = multiply(graph, type, elements, weights, rows + b * elements, 1, alone + b * STABLE_ROWS);
        }
        for (size_t batch = 2; batch <= STABLE_BATCH_MAX && same; batch++) {
            same = multiply(graph, type, elements, weights, rows, batch, together) &&
                   memcmp(alone, together, batch * STABLE_ROWS * sizeof(float)) == 0;
            if (same) stable = (uint8_t)batch;
        }
    }
    lv_free(alone);
    lv_free(weights);
    lv_free(floats);
    return stable;
}
