/* weights.c - the small tensors are a few hundred kilobytes in all; they are widened to float and kept in one piece of
 * memory, filled in the order in which the pointers are handed out. */
#include "compute/weights.h"

#include <string.h>

#include "base/memory.h"
#include "compute/kernels/kernel.h"
#include "ggml.h"

typedef struct {
    const lv_tensor *tensor;
    const float **target;
} vector_slot;

static void fill_items(lv_weights *weights) {
    const lv_model *model = weights->model;
    for (uint32_t l = 0; l < model->hparams.layers_count; l++) {
        const lv_layer *layer = &model->layers[l];
        const lv_tensor *const matrices[LV_ROLES_COUNT] = {
            [LV_ROLE_Q] = layer->attn_q,           [LV_ROLE_K] = layer->attn_k,      [LV_ROLE_V] = layer->attn_v,
            [LV_ROLE_OUTPUT] = layer->attn_output, [LV_ROLE_GATE] = layer->ffn_gate, [LV_ROLE_UP] = layer->ffn_up,
            [LV_ROLE_DOWN] = layer->ffn_down,
        };
        for (uint32_t role = 0; role < LV_ROLES_COUNT; role++) {
            lv_layout_item *item = &weights->items[l * LV_ROLES_COUNT + role];
            item->tensor = matrices[role];
            item->layer = l;
            item->group = role <= LV_ROLE_OUTPUT ? LV_GROUP_ATTENTION : LV_GROUP_FEED_FORWARD;
        }
    }
    if (!weights->has_head) return;
    lv_layout_item *head = &weights->items[lv_weights_head_item(weights)];
    head->tensor = model->output;
    head->layer = LV_LAYER_HEAD;
}

/* A packed file says itself which matrices lie in tiles; kernels read them unasked, so the claim is checked here. */
static lever_status check_layouts(const lv_gguf *gguf, lever_error *error) {
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf); i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        if (tensor->layout != LV_LAYOUT_TILES) continue;
        if (lv_kernel_supports(tensor->type, tensor->dims[0]) && tensor->rows_count % LV_TILE_ROWS == 0) continue;
        char name[32];
        return lv_fail(
            error, LEVER_E_FORMAT,
            "%s: tensor %s is said to lie in tiles, but type %s with %llu rows of %llu elements cannot; the file is "
            "damaged: pack it anew",
            lv_gguf_path(gguf), tensor->name, lv_gguf_tensor_type_name(tensor->type, name, sizeof(name)),
            (unsigned long long)tensor->rows_count, (unsigned long long)tensor->dims[0]);
    }
    return LEVER_OK;
}

lever_status lv_weights_open(lv_weights **out, const lv_gguf *gguf, const lv_model *model, uint64_t block_bytes_max,
                             bool with_head, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    LV_TRY(check_layouts(gguf, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_weights), "the weight tables", error));
    lv_weights *weights = memory;
    weights->model = model;
    weights->has_head = with_head;
    weights->items_count = model->hparams.layers_count * LV_ROLES_COUNT + (with_head ? 1 : 0);
    memory = NULL;
    lever_status status = lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, weights->items_count,
                                           sizeof(lv_layout_item), "the list of matrices", error);
    weights->items = memory;
    if (status == LEVER_OK) {
        memory = NULL;
        status = lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, model->hparams.layers_count,
                                  sizeof(lv_layer_vectors), "the table of layers", error);
        weights->layers = memory;
    }
    if (status == LEVER_OK) {
        fill_items(weights);
        status =
            lv_layout_build(&weights->layout, weights->items, weights->items_count, block_bytes_max, ledger, error);
    }
    if (status != LEVER_OK) lv_weights_close(&weights);
    *out = weights;
    return status;
}

/* Calls `visit` for each small tensor of the model, in one fixed order. */
static void visit_vectors(const lv_model *model, lv_weights *weights,
                          void (*visit)(void *user, const lv_tensor *tensor, const float **target), void *user) {
    const float *nowhere = NULL;
    for (uint32_t l = 0; l < model->hparams.layers_count; l++) {
        const lv_layer *layer = &model->layers[l];
        lv_layer_vectors *to = weights ? &weights->layers[l] : NULL;
        const vector_slot slots[] = {
            {layer->attn_norm, to ? &to->attn_norm : &nowhere}, {layer->attn_q_bias, to ? &to->q_bias : &nowhere},
            {layer->attn_k_bias, to ? &to->k_bias : &nowhere},  {layer->attn_v_bias, to ? &to->v_bias : &nowhere},
            {layer->attn_q_norm, to ? &to->q_norm : &nowhere},  {layer->attn_k_norm, to ? &to->k_norm : &nowhere},
            {layer->ffn_norm, to ? &to->ffn_norm : &nowhere},
        };
        for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
            if (slots[i].tensor) visit(user, slots[i].tensor, slots[i].target);
        }
    }
    visit(user, model->output_norm, weights ? &weights->output_norm : &nowhere);
    if (model->rope_freqs) visit(user, model->rope_freqs, weights ? &weights->rope_factors : &nowhere);
}

static uint64_t elements_of(const lv_tensor *tensor) {
    return tensor->dims[0] * tensor->rows_count;
}

static void count_vector(void *user, const lv_tensor *tensor, const float **target) {
    (void)target;
    *(uint64_t *)user += elements_of(tensor);
}

uint64_t lv_weights_vector_bytes(const lv_model *model) {
    uint64_t elements = 0;
    visit_vectors(model, NULL, count_vector, &elements);
    return elements * sizeof(float);
}

typedef struct {
    const lv_gguf *gguf;
    lv_ledger *ledger;
    float *next;
    lever_status status;
    lever_error *error;
} vector_reader;

static void read_vector(void *user, const lv_tensor *tensor, const float **target) {
    vector_reader *reader = user;
    if (reader->status != LEVER_OK) return;
    lv_file *file = lv_gguf_file(reader->gguf, tensor->file_index);
    float *to = reader->next;
    *target = to;
    reader->next += elements_of(tensor);
    if (tensor->type == GGML_TYPE_F32) {
        reader->status = lv_file_read(file, to, tensor->offset, (size_t)tensor->bytes, reader->error);
    } else {
        void *raw = NULL;
        reader->status = lv_alloc_checked(&raw, reader->ledger, LV_MEM_METADATA, 1, (size_t)tensor->bytes, tensor->name,
                                          reader->error);
        if (reader->status == LEVER_OK) {
            reader->status = lv_file_read(file, raw, tensor->offset, (size_t)tensor->bytes, reader->error);
        }
        if (reader->status == LEVER_OK) {
            ggml_get_type_traits((enum ggml_type)tensor->type)->to_float(raw, to, (int64_t)elements_of(tensor));
        }
        lv_free(raw);
    }
    if (reader->status != LEVER_OK) lv_error_prefix(reader->error, "reading tensor %s: ", tensor->name);
}

lever_status lv_weights_read_vectors(lv_weights *weights, const lv_gguf *gguf, lv_ledger *ledger, lever_error *error) {
    const uint64_t bytes = lv_weights_vector_bytes(weights->model);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, (size_t)bytes, "norms and biases", error));
    weights->vectors = memory;
    vector_reader reader = {
        .gguf = gguf, .ledger = ledger, .next = weights->vectors, .status = LEVER_OK, .error = error};
    visit_vectors(weights->model, weights, read_vector, &reader);
    return reader.status;
}

uint64_t lv_weights_fingerprint(const lv_weights *weights) {
    const unsigned char *byte = (const unsigned char *)weights->vectors;
    const uint64_t bytes = lv_weights_vector_bytes(weights->model);
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (uint64_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

/* --- Rows to tiles ----------------------------------------------------------------------------------------------- */

lv_weight_layout lv_weights_layout_of(const lv_tensor *tensor, bool transformed) {
    if (tensor->layout == LV_LAYOUT_TILES) return LV_LAYOUT_TILES;
    const bool fits = lv_kernel_supports(tensor->type, tensor->dims[0]) && tensor->rows_count % LV_TILE_ROWS == 0;
    return transformed && fits ? LV_LAYOUT_TILES : LV_LAYOUT_ROWS;
}

size_t lv_weights_transform_bytes(const lv_weights *weights) {
    size_t most = 0;
    for (uint32_t i = 0; i < weights->items_count; i++) {
        const size_t bytes = LV_TILE_ROWS * (size_t)weights->items[i].tensor->row_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

void lv_weights_transform(const lv_weights *weights, uint32_t block, uint8_t *data, void *scratch) {
    const lv_block *b = &weights->layout->blocks[block];
    for (uint32_t s = b->segment_first; s < b->segment_first + b->segments_count; s++) {
        const lv_segment *segment = &weights->layout->segments[s];
        const lv_tensor *tensor = weights->items[segment->item].tensor;
        if (tensor->layout == LV_LAYOUT_TILES || lv_weights_layout_of(tensor, true) == LV_LAYOUT_ROWS) continue;
        const size_t tile_bytes = LV_TILE_ROWS * (size_t)tensor->row_bytes;
        uint8_t *tile = data + segment->block_offset;
        for (uint64_t row = 0; row < segment->rows_count; row += LV_TILE_ROWS, tile += tile_bytes) {
            lv_tile_pack(tensor->type, (size_t)tensor->dims[0], tile, scratch);
            memcpy(tile, scratch, tile_bytes);
        }
    }
}

void lv_weights_close(lv_weights **out) {
    if (!out || !*out) return;
    lv_weights *weights = *out;
    lv_layout_free(&weights->layout);
    lv_free(weights->vectors);
    lv_free(weights->layers);
    lv_free(weights->items);
    lv_free(weights);
    *out = NULL;
}
