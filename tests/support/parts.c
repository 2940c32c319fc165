/* parts.c - see parts.h. */
#include "support/parts.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/scratch.h"

void parts_open(parts *p, const char *path, bool with_head) {
    *p = (parts){0};
    lever_error error;
    CHECK_OK(lv_gguf_open(&p->gguf, path, &(lv_file_options){.direct = true}, &error));
    CHECK_OK(lv_model_bind(&p->model, p->gguf, NULL, &error));
    CHECK_OK(lv_weights_open(&p->weights, p->gguf, p->model, LV_BLOCK_BYTES_DEFAULT, with_head, NULL, &error));
    CHECK_OK(lv_weights_read_vectors(p->weights, p->gguf, NULL, &error));

    bool *pinned = malloc(p->weights->layout->blocks_count * sizeof(*pinned));
    assert_non_null(pinned);
    memset(pinned, true, p->weights->layout->blocks_count * sizeof(*pinned));
    const lv_store_options store = {.gguf = p->gguf,
                                    .layout = p->weights->layout,
                                    .pinned = pinned,
                                    .slots_count = 2,
                                    .lanes = 1,
                                    .verify = true,
                                    .clock = &lv_clock_real};
    CHECK_OK(lv_store_open(&p->store, &store, &error));
    free(pinned);

    const lv_hparams *h = &p->model->hparams;
    const lv_kv_shape shape = {h->layers_count, PARTS_SLOTS, h->kv_heads_count, h->head_dim};
    CHECK_OK(lv_kv_open(&p->kv, NULL, &shape, &error));
}

void parts_close(parts *p) {
    lv_kv_close(&p->kv);
    lv_store_close(&p->store);
    lv_weights_close(&p->weights);
    lv_model_free(&p->model);
    lv_gguf_close(&p->gguf);
}

lv_forward_options parts_forward_options(const parts *p) {
    return (lv_forward_options){
        .weights = p->weights,
        .store = p->store,
        .kernels = lv_kernels_best(),
        .attention = lv_attention_isa_best(),
        .threads = 1,
        .rows_max = PARTS_SLOTS,
        .batch_rows = 8,
        .logits_rows = 3,
        .leases_max = 1,
    };
}

void parts_run(parts *p, lv_forward *forward, const int32_t *tokens, uint32_t tokens_count) {
    lv_row rows[PARTS_SLOTS];
    assert_true(tokens_count <= PARTS_SLOTS);
    for (uint32_t i = 0; i < tokens_count; i++) {
        rows[i] = (lv_row){
            .token = tokens[i], .position = i, .slot = i, .kv = &p->kv, .path = {.kv = &p->kv, .prefix_count = i + 1}};
    }
    lever_error error;
    CHECK_OK(lv_forward_begin(forward, &(lv_pass){.rows = rows, .rows_count = tokens_count}, &error));
    CHECK_OK(lv_forward_layers(forward, 0, p->model->hparams.layers_count, &error));
}

const char *parts_pack(const char *path, char *packed, size_t capacity) {
    const char *name = strrchr(path, '/');
    lever_error error;
    CHECK_OK(lever_pack(path, scratch_path(name ? name + 1 : path, packed, capacity), NULL, &error));
    return packed;
}
