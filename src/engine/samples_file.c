/* samples_file.c - see samples_file.h. */
#include "engine/samples_file.h"

#include <errno.h>
#include <math.h>
#include <string.h>

uint64_t lv_samples_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

static size_t hidden_halfs(const lv_samples_heading *h, size_t samples_count) {
    return (size_t)h->layers_count * samples_count * h->width;
}

static uint64_t checksum_of_block(const lv_samples_heading *heading, const lv_samples_block *block,
                                  const lv_samples_parts *parts) {
    uint64_t hash = lv_samples_hash(LV_SAMPLES_HASH_FIRST, &block->text_hash, sizeof(block->text_hash));
    hash = lv_samples_hash(hash, parts->tokens, block->tokens_count * sizeof(*parts->tokens));
    hash = lv_samples_hash(hash, parts->samples, block->samples_count * sizeof(*parts->samples));
    return lv_samples_hash(hash, parts->hidden, hidden_halfs(heading, block->samples_count) * sizeof(*parts->hidden));
}

bool lv_samples_read_items(FILE *file, void *to, size_t bytes, size_t count) {
    return fread(to, bytes, count, file) == count;
}

/* Reads the block where the file stands into memory for the largest; false when it is not whole. */
bool lv_samples_read(FILE *file, const lv_samples_heading *heading, lv_samples_block *block,
                     const lv_samples_parts *parts) {
    if (!lv_samples_read_items(file, block, sizeof(*block), 1) || block->magic != LV_SAMPLES_MAGIC ||
        block->samples_count > LV_SAMPLES_TOKENS_MAX || block->tokens_count > LV_SAMPLES_TOKENS_MAX) {
        return false;
    }
    return lv_samples_read_items(file, parts->tokens, sizeof(*parts->tokens), block->tokens_count) &&
           lv_samples_read_items(file, parts->samples, sizeof(*parts->samples), block->samples_count) &&
           lv_samples_read_items(file, parts->hidden, sizeof(*parts->hidden),
                                 hidden_halfs(heading, block->samples_count)) &&
           checksum_of_block(heading, block, parts) == block->checksum;
}

static bool is_possible(const lv_samples_heading *heading, const lv_sample *sample) {
    if (sample->candidates_count > LV_TRAINING_CANDIDATES_MAX || sample->label > sample->candidates_count) return false;
    for (uint32_t i = 0; i < sample->candidates_count; i++) {
        if (sample->candidates[i].row >= heading->vocabulary) return false;
        for (uint32_t f = 0; f < LV_PREDICTOR_FEATURES; f++) {
            if (!isfinite(sample->candidates[i].features[f])) return false;
        }
    }
    return true;
}

/* Numbers of a file are indices later. */
lever_status lv_samples_check(const char *path, const lv_samples_heading *heading, const lv_samples_block *block,
                              const lv_samples_parts *parts, lever_error *error) {
    for (uint32_t i = 0; i < block->samples_count; i++) {
        if (is_possible(heading, &parts->samples[i])) continue;
        return lv_fail(error, LEVER_E_FORMAT, "%s: holds a sample that cannot be (%u); delete it, and collect anew",
                       path, i);
    }
    return LEVER_OK;
}

lever_status lv_samples_fail(const char *path, const char *what, lever_error *error) {
    return lv_fail(error, LEVER_E_IO, "%s: cannot be %s (%s)", path, what, strerror(errno));
}

uint64_t lv_samples_parts_bytes(uint32_t width, uint32_t layers_count) {
    const lv_samples_heading heading = {.width = width, .layers_count = layers_count};
    return LV_SAMPLES_TOKENS_MAX * (sizeof(int32_t) + sizeof(lv_sample)) +
           hidden_halfs(&heading, LV_SAMPLES_TOKENS_MAX) * sizeof(uint16_t);
}

static lever_status open_array(void *out, lv_ledger *ledger, size_t count, size_t bytes, lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, count, bytes, "samples of a text", error));
    memcpy(out, &memory, sizeof(memory));
    return LEVER_OK;
}

lever_status lv_samples_parts_open(lv_samples_parts *parts, const lv_samples_heading *heading, lv_ledger *ledger,
                                   lever_error *error) {
    const size_t rows = LV_SAMPLES_TOKENS_MAX;
    LV_TRY(open_array(&parts->tokens, ledger, rows, sizeof(*parts->tokens), error));
    LV_TRY(open_array(&parts->samples, ledger, rows, sizeof(*parts->samples), error));
    return open_array(&parts->hidden, ledger, hidden_halfs(heading, rows), sizeof(*parts->hidden), error);
}

void lv_samples_parts_close(lv_samples_parts *parts) {
    lv_free(parts->tokens);
    lv_free(parts->samples);
    lv_free(parts->hidden);
}

lever_status lv_samples_append(const char *path, FILE *file, const lv_samples_heading *heading, lv_samples_block *block,
                               const lv_samples_parts *parts, lever_error *error) {
    const size_t tokens = block->tokens_count, samples = block->samples_count, halfs = hidden_halfs(heading, samples);
    block->magic = LV_SAMPLES_MAGIC;
    block->checksum = checksum_of_block(heading, block, parts);
    const bool written = fwrite(block, sizeof(*block), 1, file) == 1 &&
                         fwrite(parts->tokens, sizeof(*parts->tokens), tokens, file) == tokens &&
                         fwrite(parts->samples, sizeof(*parts->samples), samples, file) == samples &&
                         fwrite(parts->hidden, sizeof(*parts->hidden), halfs, file) == halfs && fflush(file) == 0;
    return written ? LEVER_OK : lv_samples_fail(path, "written", error);
}

static lever_status read_heading(const lv_samples_reader *r, lv_samples_heading *heading, lever_error *error) {
    rewind(r->file);
    const bool fits = lv_samples_read_items(r->file, heading, sizeof(*heading), 1) &&
                      heading->magic == LV_SAMPLES_MAGIC && heading->sample_bytes == sizeof(lv_sample) &&
                      heading->block_bytes == sizeof(lv_samples_block) && heading->layers_count == r->layers_count &&
                      heading->width == r->width && heading->vocabulary == r->vocabulary;
    if (fits) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "%s: is not the file of samples that was collected; collect anew", r->path);
}

lever_status lv_samples_each(const lv_samples_reader *r, lv_samples_fn fn, void *user, lv_ledger *ledger,
                             lever_error *error) {
    lv_samples_heading heading;
    lv_samples_block block;
    lv_samples_parts parts = {0};
    LV_TRY(read_heading(r, &heading, error));
    lever_status status = lv_samples_parts_open(&parts, &heading, ledger, error);
    for (uint32_t text = 0; status == LEVER_OK && text < r->texts_count; text++) {
        if (lv_samples_read(r->file, &heading, &block, &parts)) {
            status = lv_samples_check(r->path, &heading, &block, &parts, error);
            if (status == LEVER_OK) status = fn(user, &heading, &block, &parts, error);
        } else {
            status = lv_fail(error, LEVER_E_FORMAT, "%s: text %u is damaged; collect anew", r->path, text + 1);
        }
    }
    lv_samples_parts_close(&parts);
    return status;
}
