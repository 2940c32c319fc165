/* model.c - binding: from names of tensors to their roles, once, with every shape checked.
 *
 * A table names the tensors of a layer, their shapes and who has them. What the table does not know but the file holds
 * would change the result (a bias, an expert, a second norm) or is a sign that the file is another model than it says:
 * it is refused by name. */
#include "model/model.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/hparams.h"

#define VOCABULARY_MAX (1u << 24)

typedef struct {
    const lv_gguf *gguf;
    const lv_hparams *h;
    uint8_t *used; /* by index of tensor */
    lever_error *error;
} binder;

/* --- One tensor ------------------------------------------------------------------------------------------------------
 */

static lever_status missing(const binder *b, const char *name) {
    return lv_fail(b->error, LEVER_E_FORMAT, "%s: tensor '%s' is missing", lv_gguf_path(b->gguf), name);
}

static void describe_shape(const lv_tensor *tensor, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < tensor->dims_count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)tensor->dims[i]);
}

/* Finds a tensor of dim0 x dim1 (dim1 0: a vector). *tensor is NULL when it is not there and `required` is not set. */
static lever_status bind(binder *b, const char *name, uint64_t dim0, uint64_t dim1, bool required,
                         const lv_tensor **tensor) {
    const char *path = lv_gguf_path(b->gguf);
    *tensor = lv_gguf_find(b->gguf, name);
    if (!*tensor) return required ? missing(b, name) : LEVER_OK;
    const lv_tensor *t = *tensor;
    uint64_t rows = dim1 ? dim1 : 1;
    if (t->dims[0] != dim0 || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1) {
        char found[100];
        describe_shape(t, found, sizeof found);
        return lv_fail(b->error, LEVER_E_FORMAT, "%s: tensor '%s' is %s; its model wants %llu x %llu", path, name,
                       found, (unsigned long long)dim0, (unsigned long long)rows);
    }
    char buffer[32];
    if (dim1 ? !lv_gguf_tensor_type_computes(t->type) : t->type != LV_TENSOR_TYPE_F32)
        return lv_fail(b->error, LEVER_E_FORMAT, "%s: tensor '%s' is of type %s, %s", path, name,
                       lv_gguf_tensor_type_name(t->type, buffer, sizeof buffer),
                       dim1 ? "by which ggml's CPU backend does not multiply" : "not f32");
    b->used[t - lv_gguf_tensor(b->gguf, 0)] = 1; /* the table is one array */
    return LEVER_OK;
}

/* --- Layers ----------------------------------------------------------------------------------------------------------
 */

typedef enum { REQUIRED, IF_QWEN2_ELSE_OPTIONAL, ONLY_QWEN3 } presence;

typedef struct {
    const char *name;
    size_t field; /* in lv_layer */
    uint64_t dim0, dim1;
    presence presence;
} part;

static lever_status bind_layer(binder *b, uint32_t index, lv_layer *layer) {
    const lv_hparams *h = b->h;
    const uint64_t embedding = h->embedding, head = h->head_dim, wide = h->feed_forward;
    const uint64_t q = head * h->heads_count, kv = head * h->kv_heads_count;
#define FIELD(member) offsetof(lv_layer, member)
    const part parts[] = {
        {"attn_norm.weight", FIELD(attn_norm), embedding, 0, REQUIRED},
        {"attn_q.weight", FIELD(attn_q), embedding, q, REQUIRED},
        {"attn_k.weight", FIELD(attn_k), embedding, kv, REQUIRED},
        {"attn_v.weight", FIELD(attn_v), embedding, kv, REQUIRED},
        {"attn_output.weight", FIELD(attn_output), q, embedding, REQUIRED},
        {"attn_q.bias", FIELD(attn_q_bias), q, 0, IF_QWEN2_ELSE_OPTIONAL},
        {"attn_k.bias", FIELD(attn_k_bias), kv, 0, IF_QWEN2_ELSE_OPTIONAL},
        {"attn_v.bias", FIELD(attn_v_bias), kv, 0, IF_QWEN2_ELSE_OPTIONAL},
        {"attn_q_norm.weight", FIELD(attn_q_norm), head, 0, ONLY_QWEN3},
        {"attn_k_norm.weight", FIELD(attn_k_norm), head, 0, ONLY_QWEN3},
        {"ffn_norm.weight", FIELD(ffn_norm), embedding, 0, REQUIRED},
        {"ffn_gate.weight", FIELD(ffn_gate), embedding, wide, REQUIRED},
        {"ffn_up.weight", FIELD(ffn_up), embedding, wide, REQUIRED},
        {"ffn_down.weight", FIELD(ffn_down), wide, embedding, REQUIRED},
    };
#undef FIELD
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].presence == ONLY_QWEN3 && h->arch != LV_ARCH_QWEN3) continue; /* refused when it is there */
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", index, parts[i].name);
        const lv_tensor *tensor = NULL;
        bool required = parts[i].presence != IF_QWEN2_ELSE_OPTIONAL || h->arch == LV_ARCH_QWEN2;
        LV_TRY(bind(b, name, parts[i].dim0, parts[i].dim1, required, &tensor));
        memcpy((char *)layer + parts[i].field, &tensor, sizeof tensor);
    }
    if (!layer->attn_q_bias != !layer->attn_k_bias || !layer->attn_q_bias != !layer->attn_v_bias)
        return lv_fail(b->error, LEVER_E_FORMAT, "%s: layer %u has a bias for some of q, k and v, not for all",
                       lv_gguf_path(b->gguf), index);
    return LEVER_OK;
}

/* --- The whole ---------------------------------------------------------------------------------------------------- */

/* The embedding matrix has a row for each token of the vocabulary, where the file has one. */
static lever_status check_vocabulary(const lv_gguf *gguf, uint32_t rows, lever_error *error) {
    uint32_t type = 0;
    uint64_t tokens_count = 0;
    bool found = false;
    LV_TRY(lv_gguf_get_array(gguf, "tokenizer.ggml.tokens", &type, &tokens_count, &found, error));
    if (!found || tokens_count == rows) return LEVER_OK;
    return lv_fail(
        error, LEVER_E_FORMAT,
        "%s: the vocabulary has %llu tokens (key 'tokenizer.ggml.tokens'), but 'token_embd.weight' has %u rows",
        lv_gguf_path(gguf), (unsigned long long)tokens_count, rows);
}

static lever_status bind_ends(binder *b, lv_model *model) {
    const uint64_t embedding = b->h->embedding;
    const lv_tensor *table = lv_gguf_find(b->gguf, "token_embd.weight");
    if (!table) return missing(b, "token_embd.weight");
    if (table->dims[1] < 1 || table->dims[1] > VOCABULARY_MAX)
        return lv_fail(b->error, LEVER_E_FORMAT, "%s: 'token_embd.weight' has %llu rows; 1 to %u are valid",
                       lv_gguf_path(b->gguf), (unsigned long long)table->dims[1], VOCABULARY_MAX);
    model->hparams.vocabulary = (uint32_t)table->dims[1];
    LV_TRY(check_vocabulary(b->gguf, model->hparams.vocabulary, b->error));
    LV_TRY(bind(b, "token_embd.weight", embedding, table->dims[1], true, &model->token_embd));
    LV_TRY(bind(b, "output_norm.weight", embedding, 0, true, &model->output_norm));
    LV_TRY(bind(b, "output.weight", embedding, table->dims[1], false, &model->output));
    if (!model->output) model->output = model->token_embd;
    if (b->h->arch == LV_ARCH_LLAMA)
        LV_TRY(bind(b, "rope_freqs.weight", b->h->head_dim / 2, 0, false, &model->rope_freqs));
    return LEVER_OK;
}

static lever_status check_all_used(const binder *b) {
    for (uint32_t i = 0; i < lv_gguf_tensors_count(b->gguf); i++) {
        if (b->used[i]) continue;
        return lv_fail(b->error, LEVER_E_FORMAT,
                       "%s: tensor '%s' has no place in a model of architecture %s as lever knows it",
                       lv_gguf_path(b->gguf), lv_gguf_tensor(b->gguf, i)->name, lv_arch_name(b->h->arch));
    }
    return LEVER_OK;
}

static lever_status bind_all(lv_model *model, const lv_gguf *gguf, lv_ledger *ledger, lever_error *error) {
    LV_TRY(lv_hparams_read(&model->hparams, gguf, error));
    model->arch_name = lv_arch_name(model->hparams.arch);
    model->name = "";
    bool found = false;
    LV_TRY(lv_gguf_get_text(gguf, "general.name", &model->name, &found, error));

    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, model->hparams.layers_count, sizeof *model->layers,
                            "the layers of a model", error));
    model->layers = memory;
    memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, lv_gguf_tensors_count(gguf) + 1, 1, "binding a model",
                            error));
    binder b = {.gguf = gguf, .h = &model->hparams, .used = memory, .error = error};
    lever_status status = bind_ends(&b, model);
    for (uint32_t i = 0; i < model->hparams.layers_count && status == LEVER_OK; i++)
        status = bind_layer(&b, i, &model->layers[i]);
    if (status == LEVER_OK) status = check_all_used(&b);
    lv_free(b.used);
    return status;
}

lever_status lv_model_bind(lv_model **out, const lv_gguf *gguf, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof **out, "a model", error));
    lv_model *model = memory;
    lever_status status = bind_all(model, gguf, ledger, error);
    if (status == LEVER_OK)
        *out = model;
    else
        lv_model_free(&model);
    return status;
}

void lv_model_free(lv_model **handle) {
    lv_model *model = handle ? *handle : NULL;
    if (!model) return;
    lv_free(model->layers);
    lv_free(model);
    *handle = NULL;
}
