/* linear.h - matrices times rounded activations, as nodes of a graph.
 *
 * Pure builders: they append nodes and own nothing. A matrix comes as runs of rows (segments) that lie in leased
 * blocks. Types with a kernel of ours run on it; the others on ggml's product, in batches that keep the bits of a
 * single row (lv_linear_stable_batch). Called by the thread that builds graphs. */
#ifndef LV_COMPUTE_LINEAR_H
#define LV_COMPUTE_LINEAR_H

#include "compute/graph.h"
#include "compute/kernels/kernel.h"

/* Rows of activations: floats, and what they were rounded to. */
typedef struct {
    const float *floats; /* rows_count x elements */
    size_t elements;
    size_t rows_count;
    uint8_t *rounded[2]; /* by lv_activation_format; rows lv_activation_row_bytes apart */
} lv_activations;

/* One run of rows of a matrix. */
typedef struct {
    const lv_tensor *tensor;
    lv_weight_layout layout;
    const uint8_t *data;
    size_t row_first, rows_count;
    const float *bias; /* of the whole matrix; may be NULL */
    float *out;        /* of the whole matrix: out[b * out_stride + row] */
    size_t out_stride;
} lv_linear_part;

enum { LV_LINEAR_PARTS_MAX = 24 };

/* Environment that all builders share. */
typedef struct {
    lv_graph *graph;
    const lv_kernels *kernels;
    uint8_t *scratch; /* threads x scratch_stride */
    size_t scratch_stride;
    const uint8_t
        *stable_batches; /* by ggml type: the largest batch that keeps the bits; 0: no limit known is needed */
} lv_linear_context;

/* Appends the rounding of `activations` to the formats in `formats` (bit 1 << format). */
void lv_linear_add_rounding(const lv_linear_context *context, const lv_activations *activations, unsigned formats);

/* Which roundings a matrix type needs: bits as above, 0 for a type that ggml computes from floats. */
unsigned lv_linear_formats(const lv_tensor *tensor);

/* Appends the products of the parts with the same activations, as one node for all that have a kernel. */
void lv_linear_add_products(const lv_linear_context *context, const lv_activations *activations,
                            const lv_linear_part *parts, size_t parts_count);

/* Nodes that lv_linear_add_products may append, at most. */
uint32_t lv_linear_nodes(const lv_tensor *tensor, size_t rows_count, const uint8_t *stable_batches);

/* Measures, for a type without a kernel: the largest batch of 1..33 up to which ggml's product gives each row the bits
 * it gives it alone. Kernels of ours need no check: 255. */
uint8_t lv_linear_stable_batch(lv_graph *graph, enum ggml_type type, size_t elements, lv_ledger *ledger);

#endif
