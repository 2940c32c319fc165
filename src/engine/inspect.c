/* inspect.c - lever_inspect: the facts about a model's file, or a pair's, one after the other.
 *
 * Of a model first what a reader wants to know of any, then whether lever runs it (and if not, why), then every key and
 * tensor as the file has them. A file that lever cannot run can still be looked at. Predictors and costs are small, and
 * are read whole: one that is damaged is an error, as nothing that it says can be trusted. What a file is, its first
 * bytes say, or its name where they are not those of a model. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "compute/kernels/kernel.h"
#include "engine/engine_state.h"
#include "flash/checks.h"

enum { TYPES_MAX = 64, VALUE_BYTES = 512, BEGIN_BYTES = 16 };

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

/* --- Files of a pair --------------------------------------------------------------------------------------------- */

typedef enum { FILE_OF_A_MODEL, FILE_OF_A_PREDICTOR, FILE_OF_COSTS } file_kind;

static bool ends_with(const char *path, const char *suffix) {
    const size_t length = strlen(path), wanted = strlen(suffix);
    return length > wanted && strcmp(path + length - wanted, suffix) == 0;
}

/* What cannot be read is left to who opens models, whose error says why. */
static file_kind kind_of(const char *path, uint64_t *bytes) {
    static const char costs[] = "lever costs ", model[] = "GGUF";
    char begin[BEGIN_BYTES] = "";
    struct stat status;
    FILE *file = fopen(path, "re");
    if (!file) return FILE_OF_A_MODEL;
    const size_t count = fread(begin, 1, sizeof(begin), file);
    const bool is_file = fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode);
    fclose(file);
    if (!is_file || memcmp(begin, model, sizeof(model) - 1) == 0) return FILE_OF_A_MODEL;
    *bytes = (uint64_t)status.st_size;
    if (lv_predictor_is_file((const uint8_t *)begin, count) || ends_with(path, ".predictor")) {
        return FILE_OF_A_PREDICTOR;
    }
    const bool is_costs = memcmp(begin, costs, sizeof(costs) - 1) == 0 || ends_with(path, ".costs");
    return is_costs ? FILE_OF_COSTS : FILE_OF_A_MODEL;
}

static void tell_pair_file(const receiver *to, const char *path, const char *format, uint64_t bytes) {
    tell(to, "file", "%s", path);
    tell(to, "format", "%s", format);
    tell_size(to, "bytes", bytes);
}

static lever_status inspect_predictor(const receiver *to, const char *path, uint64_t bytes, lever_error *error) {
    lv_predictor *p = NULL;
    LV_TRY(lv_predictor_file_read(&p, path, NULL, error));
    const lv_predictor_shape *s = &p->shape;
    tell_pair_file(to, path, "predictor", bytes);
    tell(to, "pair", "%016" PRIx64, lv_predictor_pair_hash(s->target_hash, s->draft_hash));
    tell(to, "target", "%016" PRIx64, s->target_hash);
    tell(to, "draft", "%016" PRIx64, s->draft_hash);
    tell(to, "layer", "%" PRIu32, s->layer);
    tell(to, "layers", "%" PRIu32, s->layers_count);
    tell(to, "embedding", "%" PRIu32, s->width);
    tell(to, "rank", "%" PRIu32, s->rank);
    tell(to, "features", "%d", LV_PREDICTOR_FEATURES);
    tell(to, "values", "%zu", lv_predictor_values_count(s));
    tell_size(to, "memory", lv_predictor_bytes(s));
    tell(to, "recall", "%.6f", (double)p->recall);
    lv_predictor_close(&p);
    return LEVER_OK;
}

/* "layers.all.16": what was never measured follows what was, from a first guess. */
static void tell_curve(const receiver *to, const char *name, const lv_cost_curve *curve) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        char key[64];
        snprintf(key, sizeof(key), "%s.%" PRIu32, name, lv_cost_point_rows(i));
        tell(to, key, "%.3f ms, %" PRIu32 " samples", 1e3 * curve->seconds[i], curve->samples[i]);
    }
}

static void tell_ahead(const receiver *to, const lv_ahead_record *ahead, double step_seconds) {
    static const char *const ways[] = {"not_ahead", "ahead"};
    char key[64];
    for (unsigned level = 0; level < LV_AHEAD_LEVELS; level++) {
        for (unsigned way = 0; way < 2; way++) {
            const lv_ahead_drafted *drafted = &ahead->levels[level].drafted[way];
            snprintf(key, sizeof(key), "drafting.%s.level_%u", ways[way], level + 1);
            tell(to, key, "%.3f ms, %" PRIu32 " cycles", 1e3 * drafted->steps * step_seconds, drafted->cycles);
        }
    }
    for (unsigned way = 0; way < 2; way++) {
        snprintf(key, sizeof(key), "kept.%s", ways[way]);
        tell(to, key, "%.3f", ahead->kept[way] > 0 ? ahead->kept[way] : 1);
    }
}

/* How often candidates were right, of those that were seen lately. */
static void tell_accepted(const receiver *to, const lv_calibration *calibration) {
    static const char *const sources[LV_SOURCES_COUNT] = {"draft", "lookup", "rejected"};
    for (size_t source = 0; source < LV_SOURCES_COUNT; source++) {
        for (size_t rank = 0; rank < LV_RANKS_COUNT; rank++) {
            const lv_counter *counter = &calibration->by_rank[source][rank];
            char key[64];
            if (counter->trials < 1) continue;
            snprintf(key, sizeof(key), "accepted.%s.rank_%zu", sources[source], rank + 1);
            tell(to, key, "%.3f of %.0f candidates", (double)(counter->hits / counter->trials),
                 (double)counter->trials);
        }
    }
}

/* What models, budget and threads they are of stands in the name alone, as a hash. */
static void tell_pair_of_name(const receiver *to, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    uint64_t hash;
    int length = 0;
    if (sscanf(name, "pair-%16" SCNx64 ".costs%n", &hash, &length) == 1 && length > 0 && name[length] == '\0') {
        tell(to, "pair", "%016" PRIx64, hash);
    }
}

static lever_status inspect_costs(const receiver *to, const char *path, uint64_t bytes, lever_error *error) {
    lv_costs costs;
    lv_calibration calibration;
    LV_TRY(lv_costs_file_read(path, &costs, &calibration, error));
    tell_pair_file(to, path, "costs", bytes);
    tell_pair_of_name(to, path);
    tell(to, "io", "%.3f ms", 1e3 * costs.io_seconds);
    tell(to, "ring", "%.3f ms", 1e3 * costs.ring_seconds);
    tell_curve(to, "layers.one", &costs.layers[LV_SPLIT_ONE]);
    tell_curve(to, "layers.all", &costs.layers[LV_SPLIT_ALL]);
    tell_curve(to, "draft.one", &costs.draft[LV_SPLIT_ONE]);
    tell_curve(to, "draft.all", &costs.draft[LV_SPLIT_ALL]);
    tell_curve(to, "head", &costs.head);
    tell_ahead(to, &costs.ahead, lv_costs_draft_step(&costs));
    tell_accepted(to, &calibration);
    return LEVER_OK;
}

/* ----------------------------------------------------------------------------------------------------------------- */

static lever_status inspect_model(const receiver *to, const char *path, bool verify, lever_progress_fn progress,
                                  void *progress_user, lever_error *error) {
    const lv_file_options options = {.direct = true};
    lv_gguf *gguf = NULL;
    LV_TRY(lv_gguf_open(&gguf, path, &options, error));
    tell_file(to, gguf);
    tell_model(to, gguf);
    tell_types(to, gguf);
    lever_status status = tell_keys(to, gguf, error);
    if (status == LEVER_OK) tell_tensors(to, gguf);
    if (status == LEVER_OK && verify) status = lv_checks_verify_file(gguf, progress, progress_user, error);
    lv_gguf_close(&gguf);
    return status;
}

lever_status lever_inspect(const char *path, bool verify, lever_fact_fn on_fact, void *user, lever_progress_fn progress,
                           void *progress_user, lever_error *error) {
    lv_error_clear(error);
    if (!path || !path[0]) return lv_fail(error, LEVER_E_ARGUMENT, "no file was given to inspect");
    if (!on_fact) return lv_fail(error, LEVER_E_ARGUMENT, "lever_inspect: no function for the facts");
    const receiver to = {on_fact, user};
    uint64_t bytes = 0;
    switch (kind_of(path, &bytes)) {
    case FILE_OF_A_PREDICTOR:
        return inspect_predictor(&to, path, bytes, error); /* reading it checks it */
    case FILE_OF_COSTS:
        if (verify) return lv_fail(error, LEVER_E_ARGUMENT, "%s: costs have no checksums to verify", path);
        return inspect_costs(&to, path, bytes, error);
    case FILE_OF_A_MODEL:
        break;
    }
    return inspect_model(&to, path, verify, progress, progress_user, error);
}
