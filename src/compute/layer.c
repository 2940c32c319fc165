/* layer.c - the nodes of one layer: attention, then feed-forward.
 *
 * The architectures differ in few places, each guarded by a tensor that is there or not: biases of q, k and v (qwen2),
 * norms of q and k per head (qwen3), rope factors (Llama 3), and how rope pairs dimensions.
 *
 * A stage (attention or feed-forward) is appended node by node. Where a matrix's block has not arrived, what was
 * appended is computed while the reader goes on, then the block is waited for: so a graph covers what the leased blocks
 * allow. Tensor objects die with each computation; every helper makes its own over the buffers. A pass of more rows
 * than batch_rows takes the blocks of a stage once and holds them while it goes through the rows in turns. */
#include <assert.h>
#include <stdatomic.h>

#include "compute/forward_state.h"

enum { STAGE_NODES = 48 }; /* a stage appends fewer, products of ggml's aside */

/* --- Small nodes ------------------------------------------------------------------------------------------------- */

/* Runs of rows are shared out evenly; few rows go to few threads. */
static void share(size_t count, int ith, int nth, size_t *first, size_t *end) {
    *first = count * (size_t)ith / (size_t)nth;
    *end = count * ((size_t)ith + 1) / (size_t)nth;
}

typedef struct {
    const lv_elementwise *elementwise;
    const float *in, *weight;
    float epsilon;
    float *out;
    size_t width, rows_count;
} norm_record;

static void run_norm(int ith, int nth, void *user) {
    const norm_record *r = user;
    size_t first, end;
    share(r->rows_count, ith, nth, &first, &end);
    r->elementwise->norm(r->in + first * r->width, r->weight, r->epsilon, r->width, end - first,
                         r->out + first * r->width);
}

void lv_forward_add_norm(lv_forward *f, float *in, float *out, const float *weight, size_t width, size_t rows_count) {
    norm_record *record = lv_graph_record(f->graph, sizeof(*record));
    *record = (norm_record){f->elementwise, in, weight, f->model->hparams.norm_epsilon, out, width, rows_count};
    lv_graph_add_step(f->graph, run_norm, record);
}

/* Two runs of floats of the same length. */
typedef struct {
    void (*run)(float *x, const float *y, size_t count);
    float *x;
    const float *y;
    size_t count;
} pair_record;

static void run_pair(int ith, int nth, void *user) {
    const pair_record *r = user;
    size_t first, end;
    share(r->count / 16, ith, nth, &first, &end);
    first *= 16;
    end = ith + 1 == nth ? r->count : end * 16;
    r->run(r->x + first, r->y + first, end - first);
}

static void add_pair(lv_forward *f, void (*run)(float *x, const float *y, size_t count), float *x, const float *y,
                     size_t count) {
    pair_record *record = lv_graph_record(f->graph, sizeof(*record));
    *record = (pair_record){run, x, y, count};
    lv_graph_add_step(f->graph, run_pair, record);
}

/* x += mixed */
static void add_residual(lv_forward *f, float *x, size_t rows_count) {
    add_pair(f, f->elementwise->add, x, f->mixed, rows_count * f->model->hparams.embedding);
}

typedef struct {
    const lv_forward *f;
    size_t row_first, rows_count;
} rope_record;

/* Queries and keys of a row are turned together: heads are shared out, so that a single row is, too. */
static void run_rope(int ith, int nth, void *user) {
    const rope_record *r = user;
    const lv_forward *f = r->f;
    const lv_hparams *h = &f->model->hparams;
    const size_t heads = (size_t)h->heads_count + h->kv_heads_count;
    const bool halves = h->rope.pairing == LV_ROPE_HALVES;
    size_t first, end;
    share(r->rows_count * heads, ith, nth, &first, &end);
    for (size_t i = first; i < end; i++) {
        const size_t row = i / heads, head = i % heads;
        float *values = head < h->heads_count ? f->q + (row * h->heads_count + head) * h->head_dim
                                              : f->k + (row * h->kv_heads_count + head - h->heads_count) * h->head_dim;
        f->elementwise->rope(values, 1, h->head_dim, h->rope.dims, halves,
                             f->angles + (r->row_first + row) * h->rope.dims);
    }
}

static void add_rope(lv_forward *f, size_t row_first, size_t rows_count) {
    rope_record *record = lv_graph_record(f->graph, sizeof(*record));
    *record = (rope_record){f, row_first, rows_count};
    lv_graph_add_step(f->graph, run_rope, record);
}

/* --- Cache and attention ----------------------------------------------------------------------------------------- */

typedef struct {
    const lv_forward_place *places;
    size_t rows_count, width;
    uint32_t layer;
    const float *k, *v;
} store_record;

static void run_store(int ith, int nth, void *user) {
    const store_record *record = user;
    size_t first, end;
    share(record->rows_count, ith, nth, &first, &end);
    for (size_t i = first; i < end; i++) {
        lv_kv_store(record->places[i].kv, record->layer, record->places[i].slot, record->k + i * record->width,
                    record->v + i * record->width);
    }
}

typedef struct {
    lv_attention attention;
    const lv_attention_isa *isa;
    uint8_t *scratch;
    size_t scratch_stride;
    size_t tasks_count;
    atomic_size_t next_task;
} attention_record;

static void run_attention(int ith, int nth, void *user) {
    (void)nth;
    attention_record *record = user;
    void *scratch = record->scratch + (size_t)ith * record->scratch_stride;
    for (;;) {
        const size_t task = atomic_fetch_add_explicit(&record->next_task, 1, memory_order_relaxed);
        if (task >= record->tasks_count) return;
        lv_attention_run(record->isa, &record->attention, task, 1, scratch);
    }
}

static void add_attention(lv_forward *f, uint32_t layer, size_t row_first, size_t rows_count) {
    const lv_hparams *h = &f->model->hparams;
    store_record *store = lv_graph_record(f->graph, sizeof(*store));
    *store = (store_record){.places = f->places + row_first,
                            .rows_count = rows_count,
                            .width = (size_t)h->kv_heads_count * h->head_dim,
                            .layer = layer,
                            .k = f->k,
                            .v = f->v};
    lv_graph_add_step(f->graph, run_store, store);

    attention_record *record = lv_graph_record(f->graph, sizeof(*record));
    const size_t width = (size_t)h->heads_count * h->head_dim;
    record->attention = (lv_attention){
        .layer = layer,
        .heads_count = h->heads_count,
        .kv_heads_count = h->kv_heads_count,
        .head_dim = h->head_dim,
        .tasks_wanted = f->options.threads,
        .scale = h->attention_scale,
        .q = f->q,
        .q_stride = width,
        .out = f->attended,
        .out_stride = width,
        .rows = f->paths + row_first,
        .rows_count = rows_count,
    };
    record->isa = f->options.attention;
    record->scratch = f->linear.scratch;
    record->scratch_stride = f->linear.scratch_stride;
    record->tasks_count = lv_attention_tasks_count(&record->attention);
    atomic_init(&record->next_task, 0);
    lv_graph_add_step(f->graph, run_attention, record);
}

/* --- Matrices ---------------------------------------------------------------------------------------------------- */

static lv_linear_part part_of(const lv_forward *f, const lv_forward_linear *matrix, const lv_segment *segment,
                              const lv_lease *lease) {
    const lv_tensor *tensor = f->options.weights->items[matrix->item].tensor;
    return (lv_linear_part){
        .tensor = tensor,
        .layout = lv_weights_layout_of(tensor, lease->transformed),
        .data = lease->data + segment->block_offset,
        .row_first = (size_t)segment->row_first,
        .rows_count = (size_t)segment->rows_count,
        .bias = matrix->bias,
        .out = matrix->out,
        .out_stride = matrix->out_stride,
    };
}

typedef struct {
    lv_activations activations;
    lv_linear_part parts[LV_LINEAR_PARTS_MAX];
    size_t parts_count;
    uint32_t nodes_count; /* that they will be */
} pending_products;

static void add_pending(lv_forward *f, pending_products *pending) {
    if (pending->parts_count == 0) return;
    lv_linear_add_products(&f->linear, &pending->activations, pending->parts, pending->parts_count);
    pending->parts_count = pending->nodes_count = 0;
}

static lever_status add_segments(lv_forward *f, pending_products *pending, const lv_forward_linear *matrix,
                                 lever_error *error) {
    const lv_layout *layout = f->options.weights->layout;
    const lv_tensor *tensor = f->options.weights->items[matrix->item].tensor;
    const uint32_t nodes = lv_linear_nodes(tensor, pending->activations.rows_count, f->stable_batches);
    for (uint32_t s = layout->item_segment_first[matrix->item]; s < layout->item_segment_first[matrix->item + 1]; s++) {
        const lv_segment *segment = &layout->segments[s];
        const lv_lease *lease = NULL;
        if (!lv_graph_is_full(f->graph, pending->nodes_count + nodes + STAGE_NODES)) {
            lease = lv_forward_try_block(f, segment->block);
        }
        if (!lease) {
            add_pending(f, pending);
            LV_TRY(lv_forward_flush(f, error));
            LV_TRY(lv_forward_wait_block(f, segment->block, &lease, error));
        }
        if (pending->parts_count == LV_LINEAR_PARTS_MAX) add_pending(f, pending);
        pending->parts[pending->parts_count++] = part_of(f, matrix, segment, lease);
        pending->nodes_count += nodes;
    }
    return LEVER_OK;
}

lv_activations lv_forward_add_rounding(lv_forward *f, const float *in, size_t width, size_t rows_count,
                                       unsigned formats) {
    const lv_activations activations = {
        .floats = in,
        .elements = width,
        .rows_count = rows_count,
        .rounded = {f->rounded[0], f->rounded[1]},
    };
    lv_linear_add_rounding(&f->linear, &activations, formats);
    return activations;
}

/* A device that fails is not used again: this product, and all that follow, are the CPU's. */
static lever_status run_on_device(lv_forward *f, const float *in, size_t width, size_t rows_count,
                                  const lv_forward_linear *matrices, size_t matrices_count, lever_error *error) {
    LV_TRY(lv_forward_flush(f, error));
    lever_error own;
    lv_error_clear(&own);
    const uint64_t begin_ns = lv_spans_begin(f->options.spans);
    const lever_status status = lv_offload_products(f, in, width, rows_count, matrices, matrices_count, &own);
    lv_spans_end(f->options.spans, LV_TRACK_MAIN, "device rows", (uint32_t)rows_count, begin_ns);
    if (status != LEVER_OK && lv_offload_failed(f->offload)) {
        f->on_device = false;
        atomic_store_explicit(&f->offload->used, false, memory_order_relaxed);
        lv_log_write(f->offload->log, LEVER_LOG_WARNING, "%s; the CPU computes from here on", own.message);
        return LEVER_OK;
    }
    if (status != LEVER_OK && error) *error = own;
    return status;
}

lever_status lv_forward_add_linear(lv_forward *f, const float *in, size_t width, size_t rows_count,
                                   const lv_forward_linear *matrices, size_t matrices_count, lever_error *error) {
    if (f->on_device) {
        LV_TRY(run_on_device(f, in, width, rows_count, matrices, matrices_count, error));
        if (f->on_device) return LEVER_OK;
    }
    unsigned formats = 0;
    for (size_t i = 0; i < matrices_count; i++) {
        formats |= lv_linear_formats(f->options.weights->items[matrices[i].item].tensor);
    }
    pending_products pending = {.activations = lv_forward_add_rounding(f, in, width, rows_count, formats)};
    for (size_t i = 0; i < matrices_count; i++) LV_TRY(add_segments(f, &pending, &matrices[i], error));
    add_pending(f, &pending);
    return LEVER_OK;
}

/* --- Stages ------------------------------------------------------------------------------------------------------ */

static lever_status attention_turn(lv_forward *f, uint32_t layer, size_t row_first, size_t rows_count,
                                   lever_error *error) {
    const lv_hparams *h = &f->model->hparams;
    const lv_layer_vectors *vectors = &f->options.weights->layers[layer];
    const size_t width = h->embedding, q_width = (size_t)h->heads_count * h->head_dim;
    const size_t kv_width = (size_t)h->kv_heads_count * h->head_dim;
    float *x = f->x + row_first * width;

    lv_forward_add_norm(f, x, f->normed, vectors->attn_norm, width, rows_count);
    const lv_forward_linear inputs[] = {
        {lv_weights_item(layer, LV_ROLE_Q), vectors->q_bias, f->q, q_width},
        {lv_weights_item(layer, LV_ROLE_K), vectors->k_bias, f->k, kv_width},
        {lv_weights_item(layer, LV_ROLE_V), vectors->v_bias, f->v, kv_width},
    };
    LV_TRY(lv_forward_add_linear(f, f->normed, width, rows_count, inputs, 3, error));
    if (vectors->q_norm) {
        lv_forward_add_norm(f, f->q, f->q, vectors->q_norm, h->head_dim, rows_count * h->heads_count);
        lv_forward_add_norm(f, f->k, f->k, vectors->k_norm, h->head_dim, rows_count * h->kv_heads_count);
    }
    add_rope(f, row_first, rows_count);
    add_attention(f, layer, row_first, rows_count);
    const lv_forward_linear output = {lv_weights_item(layer, LV_ROLE_OUTPUT), NULL, f->mixed, width};
    LV_TRY(lv_forward_add_linear(f, f->attended, q_width, rows_count, &output, 1, error));
    add_residual(f, x, rows_count);
    return LEVER_OK;
}

static lever_status feed_forward_turn(lv_forward *f, uint32_t layer, size_t row_first, size_t rows_count,
                                      lever_error *error) {
    const lv_hparams *h = &f->model->hparams;
    const size_t width = h->embedding, inner = h->feed_forward;
    float *x = f->x + row_first * width;

    lv_forward_add_norm(f, x, f->normed, f->options.weights->layers[layer].ffn_norm, width, rows_count);
    const lv_forward_linear inputs[] = {
        {lv_weights_item(layer, LV_ROLE_GATE), NULL, f->gate, inner},
        {lv_weights_item(layer, LV_ROLE_UP), NULL, f->up, inner},
    };
    LV_TRY(lv_forward_add_linear(f, f->normed, width, rows_count, inputs, 2, error));
    add_pair(f, f->elementwise->swiglu, f->gate, f->up, rows_count * inner);
    const lv_forward_linear output = {lv_weights_item(layer, LV_ROLE_DOWN), NULL, f->mixed, width};
    LV_TRY(lv_forward_add_linear(f, f->gate, inner, rows_count, &output, 1, error));
    add_residual(f, x, rows_count);
    return LEVER_OK;
}

/* Takes all blocks of a stage, for a pass that goes through them in turns. */
static lever_status hold_stage(lv_forward *f, uint32_t layer, lv_role role_first, lv_role role_last,
                               lever_error *error) {
    const lv_layout *layout = f->options.weights->layout;
    f->keep_leases = true;
    for (uint32_t role = role_first; role <= (uint32_t)role_last; role++) {
        const uint32_t item = lv_weights_item(layer, (lv_role)role);
        for (uint32_t s = layout->item_segment_first[item]; s < layout->item_segment_first[item + 1]; s++) {
            const lv_lease *lease;
            LV_TRY(lv_forward_wait_block(f, layout->segments[s].block, &lease, error));
        }
    }
    return LEVER_OK;
}

static lever_status run_stage(lv_forward *f, uint32_t layer, bool attention, lever_error *error) {
    const size_t rows_count = f->pass.rows_count, batch = f->options.batch_rows;
    const bool turns = rows_count > batch;
    if (turns) {
        LV_TRY(attention ? hold_stage(f, layer, LV_ROLE_Q, LV_ROLE_OUTPUT, error)
                         : hold_stage(f, layer, LV_ROLE_GATE, LV_ROLE_DOWN, error));
    }
    for (size_t first = 0; first < rows_count; first += batch) {
        const size_t left = rows_count - first;
        const size_t count = left < batch ? left : batch;
        if (lv_graph_is_full(f->graph, STAGE_NODES)) LV_TRY(lv_forward_flush(f, error));
        LV_TRY(attention ? attention_turn(f, layer, first, count, error)
                         : feed_forward_turn(f, layer, first, count, error));
        if (turns) LV_TRY(lv_forward_flush(f, error));
    }
    if (turns) {
        f->keep_leases = false;
        lv_forward_release_all(f);
        if (f->options.on_block) f->options.on_block(f->options.user);
    }
    return LEVER_OK;
}

static void report_progress(const lv_forward *f, uint32_t layers_done) {
    if (!f->pass.progress) return;
    f->pass.progress(f->pass.progress_user, LEVER_STAGE_PREFILL,
                     f->pass.progress_done + (uint64_t)layers_done * f->pass.rows_count, f->pass.progress_total);
}

/* A pass that goes in turns keeps all threads busy; for the others the last pass tells. */
static bool threads_are_chosen(const lv_forward *f) {
    return !f->on_device && f->compute_threads == LV_COMPUTE_AUTO && f->streams &&
           f->pass.rows_count <= f->options.batch_rows;
}

static void begin_measuring(lv_forward *f) {
    f->on_device = f->offload && !lv_offload_failed(f->offload) &&
                   lv_placement_choose(&f->offload->placement, (uint32_t)f->pass.rows_count);
    lv_store_counters store;
    lv_store_get_counters(f->options.store, &store);
    f->pass_begin_ns = lv_clock_now_ns(&lv_clock_real);
    f->pass_compute_ns = lv_graph_compute_ns(f->graph);
    f->pass_wait_ns = store.wait_ns;
    f->pass_spent_ns = f->offload ? lv_device_spent_ns(f->offload->device) : 0;
    f->streams = store.streamed_blocks > 0;
    /* With `shares` they sleep anyway. */
    lv_graph_set_rests(f->graph, f->streams && !f->options.shares);
    f->computed_single = threads_are_chosen(f) ? f->threads.single : f->compute_threads == LV_COMPUTE_ONE;
    lv_graph_set_single(f->graph, f->computed_single);
}

/* The pass, without waiting for blocks; or what the device tells of it. */
static double pass_seconds(const lv_forward *f) {
    const lv_device *device = f->offload->device;
    if (f->on_device && device->facts.tells) return lv_seconds(lv_device_spent_ns(device) - f->pass_spent_ns);
    lv_store_counters store;
    lv_store_get_counters(f->options.store, &store);
    const uint64_t pass_ns = lv_clock_now_ns(&lv_clock_real) - f->pass_begin_ns;
    const uint64_t wait_ns = store.wait_ns - f->pass_wait_ns;
    return lv_seconds(pass_ns > wait_ns ? pass_ns - wait_ns : 0);
}

/* What the pass took where it was computed, and what is to be told about it. */
static void end_device_pass(lv_forward *f, lever_status status, uint32_t layers_count) {
    if (!f->offload || status != LEVER_OK || lv_offload_failed(f->offload)) return;
    lv_placement_learn(&f->offload->placement, f->on_device, (uint32_t)f->pass.rows_count,
                       pass_seconds(f) / layers_count);
    atomic_store_explicit(&f->offload->used, f->on_device, memory_order_relaxed);
    if (!f->on_device) return;
    const uint32_t rows = (uint32_t)f->pass.rows_count;
    const uint64_t padding = lv_forward_padded_rows(f, rows) - rows;
    atomic_fetch_add_explicit(&f->counters.device_layer_rows, (uint64_t)layers_count * rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->counters.padded_layer_rows, layers_count * padding, memory_order_relaxed);
}

static void end_measuring(lv_forward *f) {
    if (!threads_are_chosen(f)) return;
    lv_store_counters store;
    lv_store_get_counters(f->options.store, &store);
    lv_thread_choice_update(&f->threads, lv_clock_now_ns(&lv_clock_real) - f->pass_begin_ns,
                            lv_graph_compute_ns(f->graph) - f->pass_compute_ns, store.wait_ns - f->pass_wait_ns);
}

lever_status lv_forward_layers(lv_forward *f, uint32_t layer_first, uint32_t layers_count, lever_error *error) {
    assert(layer_first + layers_count <= f->model->hparams.layers_count);
    lever_status status = LEVER_OK;
    begin_measuring(f);
    for (uint32_t l = layer_first; l < layer_first + layers_count && status == LEVER_OK; l++) {
        const uint64_t begin_ns = lv_spans_begin(f->options.spans);
        status = run_stage(f, l, true, error);
        if (status == LEVER_OK) status = run_stage(f, l, false, error);
        lv_spans_end(f->options.spans, LV_TRACK_MAIN, "layer", l, begin_ns);
        if (status == LEVER_OK) {
            atomic_fetch_add_explicit(&f->counters.layer_rows, f->pass.rows_count, memory_order_relaxed);
            report_progress(f, l + 1);
        }
    }
    if (status == LEVER_OK) status = lv_forward_flush(f, error);
    end_measuring(f);
    if (layers_count > 0) end_device_pass(f, status, layers_count);
    f->on_device = false; /* the head is the CPU's */
    if (status != LEVER_OK) lv_forward_abandon(f);
    return status;
}
