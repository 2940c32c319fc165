/* inspect.c - lever_inspect: the facts about a model file, one after the other.
 *
 * First what a reader wants to know of any model, then whether lever runs it (and if not, why), then every key and
 * tensor as the file has them. A file that lever cannot run can still be looked at. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "compute/kernels/kernel.h"
#include "engine/engine_state.h"
#include "flash/checks.h"

enum { TYPES_MAX = 64, VALUE_BYTES = 512 };

typedef struct {
    lever_fact_fn fn;
    void *user;
} receiver;

static void tell(const receiver *to, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void tell(const receiver *to, const char *key, const char *format, ...) {
    char value[VALUE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    to->fn(to->user, key, value);
}

static void tell_size(const receiver *to, const char *key, uint64_t bytes) {
    char size[32];
    tell(to, key, "%" PRIu64 " (%s)", bytes, lv_format_size(bytes, size, sizeof(size)));
}

static void tell_file(const receiver *to, const lv_gguf *gguf) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < lv_gguf_files_count(gguf); i++) bytes += lv_file_bytes(lv_gguf_file(gguf, i));
    tell(to, "file", "%s", lv_gguf_path(gguf));
    tell(to, "format", "%s", lv_gguf_is_packed(gguf) ? "packed" : "gguf");
    tell(to, "files", "%" PRIu32, lv_gguf_files_count(gguf));
    tell_size(to, "bytes", bytes);
}

/* How many bytes each type of tensor takes. */
static void tell_types(const receiver *to, const lv_gguf *gguf) {
    uint64_t bytes[TYPES_MAX] = {0};
    uint32_t counts[TYPES_MAX] = {0};
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf); i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        if (tensor->type < 0 || tensor->type >= TYPES_MAX) continue;
        bytes[tensor->type] += tensor->bytes;
        counts[tensor->type]++;
    }
    tell(to, "tensors", "%" PRIu32, lv_gguf_tensors_count(gguf));
    for (int32_t type = 0; type < TYPES_MAX; type++) {
        if (counts[type] == 0) continue;
        char key[64], name[32], size[32];
        snprintf(key, sizeof(key), "tensors.%s", lv_gguf_tensor_type_name(type, name, sizeof(name)));
        tell(to, key, "%" PRIu32 " tensors, %s%s", counts[type], lv_format_size(bytes[type], size, sizeof(size)),
             lv_kernel_supports(type, 256) ? ", kernel of lever's own" : ", computed by ggml");
    }
}

static void tell_model(const receiver *to, const lv_gguf *gguf) {
    lv_model *model = NULL;
    lever_error error;
    if (lv_model_bind(&model, gguf, NULL, &error) != LEVER_OK) {
        tell(to, "runs", "no: %s", error.message);
        return;
    }
    const lv_hparams *h = &model->hparams;
    tell(to, "runs", "yes");
    tell(to, "architecture", "%s", model->arch_name);
    tell(to, "name", "%s", model->name ? model->name : "");
    tell(to, "layers", "%" PRIu32, h->layers_count);
    tell(to, "embedding", "%" PRIu32, h->embedding);
    tell(to, "feed_forward", "%" PRIu32, h->feed_forward);
    tell(to, "heads", "%" PRIu32 " (%" PRIu32 " for keys and values, of %" PRIu32 ")", h->heads_count,
         h->kv_heads_count, h->head_dim);
    tell(to, "vocabulary", "%" PRIu32, h->vocabulary);
    tell(to, "context_train", "%" PRIu32, h->context_train);
    tell(to, "head", "%s", model->output == model->token_embd ? "tied to the embeddings" : "separate");
    lv_weights *weights = NULL;
    if (lv_weights_open(&weights, gguf, model, LV_BLOCK_BYTES_DEFAULT, true, NULL, &error) == LEVER_OK) {
        tell_size(to, "layer_bytes", weights->layout->layer_bytes);
        tell_size(to, "head_bytes", weights->layout->head_bytes);
        tell(to, "blocks", "%" PRIu32, weights->layout->blocks_count);
    }
    lv_weights_close(&weights);
    lv_model_free(&model);
}

static lever_status tell_keys(const receiver *to, const lv_gguf *gguf, lever_error *error) {
    for (uint32_t i = 0; i < lv_gguf_keys_count(gguf); i++) {
        const char *name = NULL;
        char value[VALUE_BYTES], key[VALUE_BYTES];
        LV_TRY(lv_gguf_describe_key(gguf, i, &name, value, sizeof(value), error));
        snprintf(key, sizeof(key), "key.%s", name);
        to->fn(to->user, key, value);
    }
    return LEVER_OK;
}

static void tell_tensors(const receiver *to, const lv_gguf *gguf) {
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf); i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        char key[VALUE_BYTES], type[32];
        snprintf(key, sizeof(key), "tensor.%s", tensor->name);
        tell(to, key, "%s, %" PRIu64 " x %" PRIu64 "%s, %" PRIu64 " bytes at %" PRIu64 " of file %" PRIu32,
             lv_gguf_tensor_type_name(tensor->type, type, sizeof(type)), tensor->dims[0], tensor->rows_count,
             tensor->layout == LV_LAYOUT_TILES ? " in tiles" : "", tensor->bytes, tensor->offset, tensor->file_index);
    }
}

lever_status lever_inspect(const char *path, bool verify, lever_fact_fn on_fact, void *user, lever_progress_fn progress,
                           void *progress_user, lever_error *error) {
    lv_error_clear(error);
    if (!path || !path[0]) return lv_fail(error, LEVER_E_ARGUMENT, "no file was given to inspect");
    if (!on_fact) return lv_fail(error, LEVER_E_ARGUMENT, "lever_inspect: no function for the facts");
    const lv_file_options options = {.direct = true};
    const receiver to = {on_fact, user};
    lv_gguf *gguf = NULL;
    LV_TRY(lv_gguf_open(&gguf, path, &options, error));
    tell_file(&to, gguf);
    tell_model(&to, gguf);
    tell_types(&to, gguf);
    lever_status status = tell_keys(&to, gguf, error);
    if (status == LEVER_OK) tell_tensors(&to, gguf);
    if (status == LEVER_OK && verify) status = lv_checks_verify_file(gguf, progress, progress_user, error);
    lv_gguf_close(&gguf);
    return status;
}
