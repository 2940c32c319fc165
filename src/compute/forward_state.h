/* forward_state.h - what forward.c, layer.c and offload.c share of a forward pass. Not for others.
 *
 * forward.c owns the memory, the leases and the head; layer.c appends the nodes of a layer; offload.c gives its
 * products to a device. */
#ifndef LV_COMPUTE_FORWARD_STATE_H
#define LV_COMPUTE_FORWARD_STATE_H

#include <stdatomic.h>

#include "compute/forward.h"
#include "compute/kernels/elementwise.h"
#include "compute/linear.h"
#include "compute/offload.h"
#include "compute/row_cache.h"
#include "compute/thread_choice.h"

/* Pinned blocks cost nothing to hold, so that a graph may span many layers of a resident model. */
enum { LV_FORWARD_LEASES_MAX = 256 };

/* Where a row's keys and values go. */
typedef struct {
    lv_kv *kv;
    uint32_t slot;
} lv_forward_place;

/* A buffer of the device's for a block. */
typedef struct {
    lv_device_buffer *buffer;
    uint32_t block;  /* UINT32_MAX: none */
    uint64_t ticket; /* of the last run over it */
} lv_offload_slot;

struct lv_offload {
    lv_device *device;
    const lv_weights *weights;
    const lv_log *log;
    lv_offload_slot *slots;
    uint32_t slots_count, slot_next;
    uint32_t *slot_of_block; /* UINT32_MAX: not on the device */
    lv_device_buffer *in, *out;
    float *results; /* rows of one segment */
    uint64_t ticket;
    _Atomic uint64_t compute_ns; /* in products; read by any thread */
    uint64_t wait_ns;            /* of that time for blocks, which is not part of it */
    lv_placement placement;
    atomic_bool failed;
    atomic_bool used; /* the last pass was on the device */
};

struct lv_forward {
    lv_forward_options options;
    const lv_model *model;
    lv_graph *graph;
    lv_offload *offload; /* NULL: no device */
    bool on_device;      /* the pass that runs */
    const lv_elementwise *elementwise;
    lv_linear_context linear;
    uint8_t stable_batches[GGML_TYPE_COUNT];

    lv_row_cache *embeddings;
    lv_area workspace;
    float *x;                    /* rows_max x embedding: the residual stream */
    float *normed, *mixed;       /* batch_rows x embedding */
    float *q, *k, *v, *attended; /* batch_rows x heads * head_dim, or kv heads */
    float *gate, *up;            /* batch_rows x feed_forward */
    uint8_t *rounded[2];         /* by lv_activation_format */
    float *angles;               /* rows_max x rope dims: cosines and sines of the row's position */
    lv_path *paths;              /* rows_max */
    lv_forward_place *places;    /* rows_max */

    lv_compute_threads compute_threads;
    bool computed_single;
    bool streams;                                          /* blocks were not pinned when the layers began */
    lv_thread_choice threads;                              /* while compute_threads is AUTO */
    uint64_t pass_begin_ns, pass_compute_ns, pass_wait_ns; /* clock and counters when the layers began */
    uint64_t pass_spent_ns;                                /* of the device, then */

    lv_pass pass;
    lv_lease leases[LV_FORWARD_LEASES_MAX];
    uint32_t leases_count, streamed_leases_count;
    bool keep_leases; /* several turns use the same blocks: held until the stage is over */
    struct {
        _Atomic uint64_t head_ns, passes, layer_rows, device_layer_rows, padded_layer_rows;
    } counters; /* counted by who passes, read by any thread */
};

/* Computes what was added and, unless keep_leases, gives all blocks back. Tensors of the graph are gone afterwards. */
lever_status lv_forward_flush(lv_forward *forward, lever_error *error);

/* The lease of a block if it can be had without waiting and without holding too many; NULL otherwise. */
const lv_lease *lv_forward_try_block(lv_forward *forward, uint32_t block);
/* Waits for it. The graph must have been flushed before, so that computing does not wait with reading. */
lever_status lv_forward_wait_block(lv_forward *forward, uint32_t block, const lv_lease **lease, lever_error *error);

void lv_forward_release_all(lv_forward *forward);
/* After a failure: no lease, an empty graph. */
void lv_forward_abandon(lv_forward *forward);

/* Appends out = rms_norm(in) * weight for `rows_count` rows of `width`. */
void lv_forward_add_norm(lv_forward *forward, float *in, float *out, const float *weight, size_t width,
                         size_t rows_count);

/* A matrix and where its product goes. */
typedef struct {
    uint32_t item;
    const float *bias; /* may be NULL */
    float *out;
    size_t out_stride;
} lv_forward_linear;

/* Appends the rounding of `rows_count` rows of `in` to `formats` (lv_linear_formats), and returns the rows. */
lv_activations lv_forward_add_rounding(lv_forward *forward, const float *in, size_t width, size_t rows_count,
                                       unsigned formats);

/* Computes the products on the device at once. After a failure lv_offload_failed says whether it was the device's. */
lever_status lv_offload_products(lv_forward *forward, const float *in, size_t width, size_t rows_count,
                                 const lv_forward_linear *matrices, size_t matrices_count, lever_error *error);

/* Appends the products of some matrices with the same `rows_count` rows of `in`. May flush in between, whenever a block
 * is not there yet. */
lever_status lv_forward_add_linear(lv_forward *forward, const float *in, size_t width, size_t rows_count,
                                   const lv_forward_linear *matrices, size_t matrices_count, lever_error *error);

#endif
