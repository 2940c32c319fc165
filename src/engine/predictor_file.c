/* predictor_file.c - see predictor_file.h. */
#include "engine/predictor_file.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text_file.h"
#include "spec/learning.h"

enum { PATH_BYTES = 4096, FILE_BYTES_MAX = 64 << 20, RANK_PLANNED = 32 };

uint64_t lv_predictor_pair_hash(uint64_t target_hash, uint64_t draft_hash) {
    return target_hash * 31 + draft_hash;
}

static bool name_in(const char *folder, const lv_predictor_place *place, char *path, size_t capacity) {
    if (!folder || !folder[0]) return false;
    const uint64_t hash =
        lv_predictor_pair_hash(lv_weights_fingerprint(place->target), lv_weights_fingerprint(place->draft));
    const int length = snprintf(path, capacity, "%s/pair-%016" PRIx64 ".predictor", folder, hash);
    return length > 0 && (size_t)length < capacity;
}

lever_status lv_predictor_file_path(const lv_predictor_place *place, char *path, size_t capacity, lever_error *error) {
    if (name_in(place->cache_dir, place, path, capacity)) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT, "there is no cache folder to keep the predictor in; name a file for it");
}

static lever_status check_models(const lv_predictor *p, const lv_predictor_place *place, const char *path,
                                 lever_error *error) {
    assert(p);
    const lv_hparams *h = &place->target->model->hparams;
    if (p->shape.target_hash == lv_weights_fingerprint(place->target) &&
        p->shape.draft_hash == lv_weights_fingerprint(place->draft) && p->shape.width == h->embedding &&
        p->shape.layers_count == h->layers_count) {
        return LEVER_OK;
    }
    return lv_fail(error, LEVER_E_FORMAT, "%s: the predictor is for other models; 'lever train' makes one for these",
                   path);
}

static lever_status read_file(lv_predictor **out, const char *path, FILE *file, lv_ledger *ledger, lever_error *error) {
    long bytes = -1;
    if (fseek(file, 0, SEEK_END) == 0) bytes = ftell(file);
    if (bytes < 0 || bytes > FILE_BYTES_MAX || fseek(file, 0, SEEK_SET) != 0) {
        return lv_fail(error, LEVER_E_FORMAT, "%s: is not a predictor; 'lever train' makes one", path);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, (size_t)bytes + 1, "the file of a predictor", error));
    lever_status status = LEVER_OK;
    if (fread(memory, 1, (size_t)bytes, file) != (size_t)bytes) {
        status = lv_fail(error, LEVER_E_IO, "%s: cannot be read", path);
    }
    if (status == LEVER_OK) status = lv_predictor_read(out, memory, (size_t)bytes, path, ledger, error);
    lv_free(memory);
    return status;
}

lever_status lv_predictor_file_read(lv_predictor **out, const char *path, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    FILE *file = fopen(path, "re");
    if (!file) return lv_fail(error, LEVER_E_IO, "%s: cannot be read (%s)", path, strerror(errno));
    const lever_status status = read_file(out, path, file, ledger, error);
    fclose(file);
    return status;
}

lv_predictor *lv_predictor_file_load(const lv_predictor_place *place, const lv_log *log, lv_ledger *ledger) {
    char in_cache[PATH_BYTES] = "", shared[PATH_BYTES] = "";
    if (!place->named_path) {
        (void)name_in(place->cache_dir, place, in_cache, sizeof(in_cache));
        (void)name_in(place->shared_dir, place, shared, sizeof(shared));
    }
    const char *const paths[] = {place->named_path ? place->named_path : "", in_cache, shared};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        lv_predictor *predictor = NULL;
        lever_error error;
        /* In the folders there need not be one. */
        if (!paths[i][0] || (i > 0 && access(paths[i], R_OK) != 0)) continue;
        lever_status status = lv_predictor_file_read(&predictor, paths[i], ledger, &error);
        if (status == LEVER_OK) status = check_models(predictor, place, paths[i], &error);
        if (status == LEVER_OK) return predictor;
        lv_predictor_close(&predictor);
        lv_log_write(log, LEVER_LOG_WARNING, "%s; going on without pruning", error.message);
        return NULL;
    }
    return NULL;
}

lever_status lv_predictor_file_save(const lv_predictor *predictor, const char *path, lv_ledger *ledger,
                                    lever_error *error) {
    const size_t bytes = lv_predictor_file_bytes(&predictor->shape);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, bytes, "the file of a predictor", error));
    lv_predictor_write(predictor, memory);
    const lever_status status = lv_text_file_replace(path, memory, bytes, error);
    lv_free(memory);
    return status;
}

uint64_t lv_predictor_file_memory(const lv_model *target) {
    const lv_predictor_shape shape = {.width = target->hparams.embedding, .rank = RANK_PLANNED};
    return lv_predictor_bytes(&shape) + lv_predictor_file_bytes(&shape);
}

uint64_t lv_predictor_session_memory(const lv_model *target, bool learns) {
    const lv_predictor_shape shape = {.width = target->hparams.embedding, .rank = RANK_PLANNED};
    const uint64_t rows = LV_PREDICTOR_CANDIDATES_MAX * (uint64_t)target->hparams.embedding * sizeof(float);
    return rows + (learns ? lv_learning_bytes(&shape) : 0);
}
