/* forward.c - opening a forward pass: sizes, memory, threads; and the head. The layers are in layer.c.
 *
 * All activations live in one area whose parts are carved out once. Rows of a pass that are more than batch_rows go in
 * turns: their residual streams stay (x), everything else is reused turn by turn.
 *
 * Threads spin between the graphs of a resident model, and sleep while a streamed one waits for flash. Which of both it
 * is may change with the budget: each pass asks the store. */
#include "compute/forward.h"

#include <assert.h>
#include <string.h>

#include "compute/forward_state.h"
#include "compute/rope.h"

enum {
    NODES_MAX = 480,
    RECORDS_BYTES = 256 << 10,
    PIPELINE_POLL = 50, /* threads spin between graphs of a resident model */
};

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* --- Sizes ------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t x, normed, q, k, v, attended, gate, up, mixed, rounded[2], angles, paths, places, scratch;
    size_t scratch_stride;
    size_t total;
    size_t work_bytes;
} workspace_sizes;

static bool uses_format(const lv_model *model, lv_activation_format format, bool *uses_ggml) {
    bool used = false;
    for (uint32_t l = 0; l < model->hparams.layers_count; l++) {
        const lv_layer *layer = &model->layers[l];
        const lv_tensor *const matrices[] = {layer->attn_q,   layer->attn_k, layer->attn_v,   layer->attn_output,
                                             layer->ffn_gate, layer->ffn_up, layer->ffn_down, model->output};
        for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
            const unsigned formats = lv_linear_formats(matrices[i]);
            if (formats == 0) *uses_ggml = true;
            if (formats & (1u << format)) used = true;
        }
    }
    return used;
}

static workspace_sizes sizes_of(const lv_model *model, uint32_t rows_max, uint32_t batch_rows, uint32_t logits_rows,
                                uint32_t threads) {
    const lv_hparams *h = &model->hparams;
    const size_t batch = max_size(batch_rows, logits_rows);
    const size_t heads = (size_t)h->heads_count * h->head_dim, kv = (size_t)h->kv_heads_count * h->head_dim;
    const size_t widest = max_size(max_size(h->embedding, heads), h->feed_forward);
    bool uses_ggml = false;
    workspace_sizes s = {0};
    s.x = round_up(sizeof(float) * rows_max * h->embedding);
    s.normed = s.mixed = round_up(sizeof(float) * batch * h->embedding);
    s.q = s.attended = round_up(sizeof(float) * batch * heads);
    s.k = s.v = round_up(sizeof(float) * batch * kv);
    s.gate = s.up = round_up(sizeof(float) * batch * h->feed_forward);
    for (int format = 0; format < 2; format++) {
        if (!uses_format(model, (lv_activation_format)format, &uses_ggml)) continue;
        const size_t group = format == LV_ACTIVATION_32 ? 32 : 256;
        s.rounded[format] =
            batch * lv_activation_row_bytes((lv_activation_format)format, (widest + group - 1) / group * group);
    }
    s.angles = round_up(sizeof(float) * rows_max * h->rope.dims);
    s.paths = round_up(sizeof(lv_path) * rows_max);
    s.places = round_up(sizeof(lv_forward_place) * rows_max);
    s.scratch_stride = round_up(max_size(lv_kernel_scratch_bytes(widest), lv_attention_scratch_bytes()));
    s.scratch = threads * s.scratch_stride;
    s.total = s.x + s.normed + s.q + s.k + s.v + s.attended + s.gate + s.up + s.mixed + s.rounded[0] + s.rounded[1] +
              s.angles + s.paths + s.places + s.scratch;
    /* Products of ggml's want rounded activations and room to swap tiles. */
    s.work_bytes = threads * (size_t)4096 + (64u << 10);
    if (uses_ggml) s.work_bytes += batch * widest * sizeof(float) + threads * ((size_t)576 << 10);
    return s;
}

lv_forward_bytes lv_forward_estimate(const lv_model *model, uint32_t rows_max, uint32_t batch_rows,
                                     uint32_t logits_rows, uint32_t threads, uint32_t embedding_rows) {
    const workspace_sizes s = sizes_of(model, rows_max, batch_rows, logits_rows, threads);
    return (lv_forward_bytes){
        .workspace_bytes = lv_area_booked_bytes(s.total) + sizeof(lv_forward),
        .graph_bytes = lv_graph_bytes(NODES_MAX, s.work_bytes, RECORDS_BYTES),
        .embedding_bytes = lv_row_cache_bytes(model->token_embd, embedding_rows),
    };
}

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

static void *carve(uint8_t **next, size_t bytes) {
    void *part = bytes ? *next : NULL;
    *next += bytes;
    return part;
}

static void carve_workspace(lv_forward *f, const workspace_sizes *s) {
    uint8_t *next = f->workspace.data;
    f->x = carve(&next, s->x);
    f->normed = carve(&next, s->normed);
    f->mixed = carve(&next, s->mixed);
    f->q = carve(&next, s->q);
    f->k = carve(&next, s->k);
    f->v = carve(&next, s->v);
    f->attended = carve(&next, s->attended);
    f->gate = carve(&next, s->gate);
    f->up = carve(&next, s->up);
    f->rounded[0] = carve(&next, s->rounded[0]);
    f->rounded[1] = carve(&next, s->rounded[1]);
    f->angles = carve(&next, s->angles);
    f->paths = carve(&next, s->paths);
    f->places = carve(&next, s->places);
    f->linear.scratch = carve(&next, s->scratch);
    f->linear.scratch_stride = s->scratch_stride;
    assert(next == f->workspace.data + s->total);
}

/* Checks each type that ggml computes, with the longest rows it has in this model. */
static void measure_stable_batch(lv_forward *f, const lv_tensor *tensor) {
    uint8_t *known = &f->stable_batches[tensor->type];
    /* One measurement a type: the smallest of its row lengths' results would be the same in all cases seen. */
    if (*known != 0 || lv_kernel_supports(tensor->type, tensor->dims[0])) return;
    *known = lv_linear_stable_batch(f->graph, (enum ggml_type)tensor->type, (size_t)tensor->dims[0], f->options.ledger);
}

static void measure_stable_batches(lv_forward *f) {
    const lv_weights *weights = f->options.weights;
    memset(f->stable_batches, 0, sizeof(f->stable_batches));
    for (uint32_t i = 0; i < weights->items_count; i++) measure_stable_batch(f, weights->items[i].tensor);
    if (f->options.draft_head) measure_stable_batch(f, lv_draft_head_tensor(f->options.draft_head));
}

static lever_status open_offload(lv_forward *f, lever_error *error) {
    const lv_forward_options *options = &f->options;
    if (!options->device) return LEVER_OK;
    const lv_offload_options offload = {
        .device = options->device,
        .weights = options->weights,
        .blocks = options->device_blocks,
        .rows_max = options->batch_rows,
        .always = options->device_always,
        .log = options->log,
        .ledger = options->ledger,
    };
    lever_error own;
    lv_error_clear(&own);
    const lever_status status = lv_offload_open(&f->offload, &offload, &own);
    if (!options->device_required && (status == LEVER_E_BUDGET || status == LEVER_E_MEMORY)) {
        lv_log_write(options->log, LEVER_LOG_WARNING, "%s; the CPU computes", own.message);
        return LEVER_OK;
    }
    if (status != LEVER_OK && error) *error = own;
    return status;
}

lever_status lv_forward_open(lv_forward **out, const lv_forward_options *options, lever_error *error) {
    assert(options->draft_head || options->weights->has_head);
    *out = NULL;
    void *memory = NULL;
    LV_TRY(
        lv_alloc_checked(&memory, options->ledger, LV_MEM_WORKSPACE, 1, sizeof(lv_forward), "a forward pass", error));
    lv_forward *f = memory;
    f->options = *options;
    f->model = options->weights->model;
    f->threads.threads = options->threads;
    const workspace_sizes sizes =
        sizes_of(f->model, options->rows_max, options->batch_rows, options->logits_rows, options->threads);
    const lv_area_options area = {.huge_pages = false, .touch = true};
    lever_status status =
        lv_area_open(&f->workspace, options->ledger, LV_MEM_WORKSPACE, sizes.total, &area, "activations", error);
    if (status != LEVER_OK) goto failed;
    status = lv_row_cache_open(&f->embeddings, f->model->token_embd, options->store, options->embedding_rows,
                               options->ledger, error);
    if (status != LEVER_OK) goto failed;
    const lv_graph_options graph = {
        .nodes_max = NODES_MAX,
        .work_bytes = sizes.work_bytes,
        .records_bytes = RECORDS_BYTES,
        .threads = options->threads,
        .poll = options->shares ? 0 : PIPELINE_POLL,
        .ledger = options->ledger,
    };
    status = lv_graph_open(&f->graph, &graph, error);
    if (status != LEVER_OK) goto failed;
    carve_workspace(f, &sizes);
    f->elementwise = lv_elementwise_best();
    f->linear.graph = f->graph;
    f->linear.kernels = options->kernels;
    f->linear.stable_batches = f->stable_batches;
    measure_stable_batches(f);
    status = open_offload(f, error);
    if (status != LEVER_OK) goto failed;
    *out = f;
    return LEVER_OK;

failed:
    lv_forward_close(&f);
    return status;
}

void lv_forward_close(lv_forward **out) {
    if (!out || !*out) return;
    lv_forward *f = *out;
    lv_offload_close(&f->offload);
    lv_graph_close(&f->graph);
    lv_row_cache_close(&f->embeddings);
    lv_area_close(&f->workspace);
    lv_free(f);
    *out = NULL;
}

void lv_forward_set_threads(lv_forward *f, lv_compute_threads threads) {
    f->compute_threads = threads;
}

bool lv_forward_computed_single(const lv_forward *f) {
    return f->computed_single || f->options.threads == 1;
}

lv_buckets lv_forward_buckets(const lv_forward *f) {
    if (!f->offload || !atomic_load_explicit(&f->offload->used, memory_order_relaxed)) return (lv_buckets){.count = 0};
    return f->offload->placement.buckets;
}

uint32_t lv_forward_padded_rows(const lv_forward *f, uint32_t rows) {
    const lv_buckets buckets = lv_forward_buckets(f);
    uint32_t padded = 0;
    for (uint32_t left = rows, turn; left > 0; left -= turn) {
        turn = left < f->options.batch_rows ? left : f->options.batch_rows;
        padded += lv_buckets_padded(&buckets, turn);
    }
    return padded;
}

bool lv_forward_has_device(const lv_forward *f) {
    return f->offload != NULL;
}

bool lv_forward_device_failed(const lv_forward *f) {
    return f->offload && lv_offload_failed(f->offload);
}

/* --- Leases and runs --------------------------------------------------------------------------------------------- */

void lv_forward_release_all(lv_forward *f) {
    for (uint32_t i = 0; i < f->leases_count; i++) lv_store_release(f->options.store, &f->leases[i]);
    f->leases_count = 0;
    f->streamed_leases_count = 0;
}

static bool is_cancelled(const lv_forward *f) {
    return f->pass.cancel && atomic_load_explicit(f->pass.cancel, memory_order_relaxed);
}

lever_status lv_forward_flush(lv_forward *f, lever_error *error) {
    const uint64_t begin_ns = lv_graph_nodes_count(f->graph) > 0 ? lv_spans_begin(f->options.spans) : 0;
    const lever_status status = lv_graph_run(f->graph, error);
    if (begin_ns > 0) {
        lv_spans_end(f->options.spans, LV_TRACK_MAIN, "compute rows", (uint32_t)f->pass.rows_count, begin_ns);
    }
    if (!f->keep_leases) {
        lv_forward_release_all(f);
        if (f->options.on_block) f->options.on_block(f->options.user);
    }
    if (status != LEVER_OK) return status;
    if (is_cancelled(f)) return lv_fail(error, LEVER_E_CANCELLED, "cancelled");
    return LEVER_OK;
}

static const lv_lease *held_lease(const lv_forward *f, uint32_t block) {
    for (uint32_t i = f->leases_count; i-- > 0;) {
        if (f->leases[i].block == block) return &f->leases[i];
    }
    return NULL;
}

static const lv_lease *hold(lv_forward *f, const lv_lease *lease) {
    f->leases[f->leases_count] = *lease;
    if (lease->slot != UINT32_MAX) f->streamed_leases_count++;
    return &f->leases[f->leases_count++];
}

const lv_lease *lv_forward_try_block(lv_forward *f, uint32_t block) {
    const lv_lease *held = held_lease(f, block);
    if (held) return held;
    if (f->leases_count == LV_FORWARD_LEASES_MAX) return NULL;
    if (f->streamed_leases_count >= f->options.leases_max && !f->keep_leases) return NULL;
    lv_lease lease;
    if (!lv_store_try_acquire(f->options.store, block, &lease)) return NULL;
    return hold(f, &lease);
}

lever_status lv_forward_wait_block(lv_forward *f, uint32_t block, const lv_lease **out, lever_error *error) {
    *out = held_lease(f, block);
    if (*out) return LEVER_OK;
    assert(f->leases_count < LV_FORWARD_LEASES_MAX);
    lv_lease lease;
    LV_TRY(lv_store_acquire(f->options.store, block, f->pass.cancel, &lease, error));
    *out = hold(f, &lease);
    return LEVER_OK;
}

/* --- A pass ------------------------------------------------------------------------------------------------------ */

lever_status lv_forward_embedding(lv_forward *f, int32_t token, float *out, lever_error *error) {
    const lv_tensor *table = f->model->token_embd;
    if (token < 0 || (uint64_t)token >= table->rows_count) {
        return lv_fail(error, LEVER_E_ARGUMENT, "token %d is not in the vocabulary of %llu tokens", token,
                       (unsigned long long)table->rows_count);
    }
    const uint8_t *row = NULL;
    LV_TRY(lv_row_cache_get(f->embeddings, (uint32_t)token, &row, error));
    const size_t width = f->model->hparams.embedding;
    if (lv_kernel_supports(table->type, width)) {
        lv_row_to_float(table->type, LV_LAYOUT_ROWS, row, 0, width, out);
    } else if (table->type == GGML_TYPE_F32) {
        memcpy(out, row, width * sizeof(float));
    } else {
        ggml_get_type_traits((enum ggml_type)table->type)->to_float(row, out, (int64_t)width);
    }
    return LEVER_OK;
}

lever_status lv_forward_begin(lv_forward *f, const lv_pass *pass, lever_error *error) {
    assert(pass->rows_count > 0 && pass->rows_count <= f->options.rows_max);
    assert(f->leases_count == 0);
    f->pass = *pass;
    f->keep_leases = false;
    const size_t width = f->model->hparams.embedding;
    for (size_t i = 0; i < pass->rows_count; i++) {
        LV_TRY(lv_forward_embedding(f, pass->rows[i].token, f->x + i * width, error));
        lv_rope_angles(&f->model->hparams.rope, f->options.weights->rope_factors, pass->rows[i].position,
                       f->angles + i * f->model->hparams.rope.dims);
        f->paths[i] = pass->rows[i].path;
        f->places[i] = (lv_forward_place){pass->rows[i].kv, pass->rows[i].slot};
    }
    atomic_fetch_add_explicit(&f->counters.passes, 1, memory_order_relaxed);
    return LEVER_OK;
}

const float *lv_forward_hidden(const lv_forward *f, size_t row) {
    return f->x + row * f->model->hparams.embedding;
}

void lv_forward_keep_rows(lv_forward *f, const uint32_t *keep, size_t keep_count) {
    const size_t width = f->model->hparams.embedding, dims = f->model->hparams.rope.dims;
    assert(keep_count > 0 && keep_count <= f->pass.rows_count && f->leases_count == 0);
    for (size_t i = 0; i < keep_count; i++) {
        assert(keep[i] < f->pass.rows_count && (i == 0 || keep[i] > keep[i - 1]));
        if (keep[i] == i) continue;
        memcpy(f->x + i * width, f->x + keep[i] * width, width * sizeof(float));
        memcpy(f->angles + i * dims, f->angles + keep[i] * dims, dims * sizeof(float));
        f->paths[i] = f->paths[keep[i]];
        f->places[i] = f->places[keep[i]];
    }
    f->pass.rows_count = keep_count;
}

/* --- The head ---------------------------------------------------------------------------------------------------- */

uint32_t lv_forward_logits_count(const lv_forward *f) {
    return f->options.draft_head ? lv_draft_head_rows_count(f->options.draft_head) : f->model->hparams.vocabulary;
}

/* The draft's rows are here, in one piece: no block is waited for. */
static void add_draft_head(lv_forward *f, size_t rows_count, float *out) {
    const lv_tensor *tensor = lv_draft_head_tensor(f->options.draft_head);
    const lv_activations activations =
        lv_forward_add_rounding(f, f->normed, f->model->hparams.embedding, rows_count, lv_linear_formats(tensor));
    assert(!lv_graph_is_full(f->graph, lv_linear_nodes(tensor, rows_count, f->stable_batches)));
    const lv_linear_part part = {
        .tensor = tensor,
        .layout = tensor->layout,
        .data = lv_draft_head_data(f->options.draft_head),
        .rows_count = (size_t)tensor->rows_count,
        .out = out,
        .out_stride = lv_forward_logits_count(f),
    };
    lv_linear_add_products(&f->linear, &activations, &part, 1);
}

static lever_status add_head(lv_forward *f, size_t rows_count, float *out, lever_error *error) {
    const lv_forward_linear head = {
        .item = lv_weights_head_item(f->options.weights), .out = out, .out_stride = lv_forward_logits_count(f)};
    return lv_forward_add_linear(f, f->normed, f->model->hparams.embedding, rows_count, &head, 1, error);
}

static lever_status head_turn(lv_forward *f, const uint32_t *rows, size_t rows_count, float *out, lever_error *error) {
    const size_t width = f->model->hparams.embedding;
    for (size_t i = 0; i < rows_count; i++) {
        memcpy(f->mixed + i * width, lv_forward_hidden(f, rows[i]), width * sizeof(float));
    }
    lv_forward_add_norm(f, f->mixed, f->normed, f->options.weights->output_norm, width, rows_count);
    if (f->options.draft_head) {
        add_draft_head(f, rows_count, out);
    } else {
        LV_TRY(add_head(f, rows_count, out, error));
    }
    return lv_forward_flush(f, error);
}

lever_status lv_forward_logits(lv_forward *f, const uint32_t *rows, size_t rows_count, float *out, lever_error *error) {
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    const size_t logits_count = lv_forward_logits_count(f);
    lever_status status = LEVER_OK;
    lv_graph_set_single(f->graph, f->compute_threads == LV_COMPUTE_ONE);
    for (size_t first = 0; first < rows_count && status == LEVER_OK; first += f->options.logits_rows) {
        const size_t left = rows_count - first;
        const size_t count = left < f->options.logits_rows ? left : f->options.logits_rows;
        status = head_turn(f, rows + first, count, out + first * logits_count, error);
    }
    if (status != LEVER_OK) lv_forward_abandon(f);
    atomic_fetch_add_explicit(&f->counters.head_ns, lv_clock_now_ns(&lv_clock_real) - begin_ns, memory_order_relaxed);
    lv_spans_end(f->options.spans, LV_TRACK_MAIN, "head rows", (uint32_t)rows_count, begin_ns);
    return status;
}

void lv_forward_abandon(lv_forward *f) {
    f->keep_leases = false;
    lv_forward_release_all(f);
    lv_graph_begin(f->graph);
}

void lv_forward_get_counters(const lv_forward *f, lv_forward_counters *counters) {
    *counters = (lv_forward_counters){
        .compute_ns = lv_graph_compute_ns(f->graph),
        .head_ns = atomic_load_explicit(&f->counters.head_ns, memory_order_relaxed),
        .passes = atomic_load_explicit(&f->counters.passes, memory_order_relaxed),
        .layer_rows = atomic_load_explicit(&f->counters.layer_rows, memory_order_relaxed),
        .device_layer_rows = atomic_load_explicit(&f->counters.device_layer_rows, memory_order_relaxed),
        .padded_layer_rows = atomic_load_explicit(&f->counters.padded_layer_rows, memory_order_relaxed),
    };
    if (f->offload) {
        counters->device_ns = atomic_load_explicit(&f->offload->compute_ns, memory_order_relaxed);
        counters->compute_ns += counters->device_ns;
    }
}

uint8_t lv_forward_stable_batch(const lv_forward *f, int32_t type) {
    const uint8_t stable = f->stable_batches[type];
    return stable ? stable : 255;
}
