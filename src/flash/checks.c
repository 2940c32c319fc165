/* checks.c - checking what flash gave against what was packed.
 *
 * Flash forgets, cards lie about their size, downloads are resumed at the wrong byte; and a model with a damaged weight
 * still talks, only worse. So each byte of a packed file is checked, once, when it is first read: at 10 GB/s that is
 * hidden in the first pass and costs the later ones nothing.
 *
 * A mark is one byte of its own, so that lanes which check neighbouring chunks do not meet. Two threads may check the
 * same chunk at the same time; both come to the same result. */
#include "flash/checks.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define STEP_BYTES ((size_t)64 << 10)
#define VERIFY_SCRATCH_BYTES ((size_t)8 << 20)

uint64_t lv_checksum(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

static lever_status hash_range(XXH3_state_t *state, lv_file *file, uint8_t *buffer, uint64_t begin, uint64_t end,
                               lever_error *error) {
    for (uint64_t at = begin; at < end;) {
        size_t bytes = end - at < STEP_BYTES ? (size_t)(end - at) : STEP_BYTES;
        LV_TRY(lv_file_read(file, buffer, at, bytes, error));
        XXH3_64bits_update(state, buffer, bytes);
        at += bytes;
    }
    return LEVER_OK;
}

lever_status lv_checksum_header(lv_file *file, uint64_t sum_offset, uint64_t header_bytes, uint64_t *sum,
                                lever_error *error) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    lv_area buffer = {0};
    LV_TRY(lv_area_open(&buffer, NULL, LV_MEM_METADATA, STEP_BYTES, &(lv_area_options){0}, "a header", error));
    lever_status status = hash_range(&state, file, buffer.data, 0, sum_offset, error);
    if (status == LEVER_OK)
        status = hash_range(&state, file, buffer.data, sum_offset + sizeof *sum, header_bytes, error);
    if (status == LEVER_OK) *sum = XXH3_64bits_digest(&state);
    lv_area_close(&buffer);
    return status;
}

static lever_status check_header(const lv_gguf *gguf, lever_error *error) {
    uint64_t *wanted = NULL, count = 0, begin = 0, end = 0, keys = 0, found = 0;
    LV_TRY(lv_gguf_read_u64_array(gguf, LV_PACK_KEY_HEADER_SUM, &wanted, &count, error));
    lv_gguf_keys_range(gguf, &begin, &end, &keys);

    uint64_t header_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf); i++)
        if (lv_gguf_tensor(gguf, i)->offset < header_bytes) header_bytes = lv_gguf_tensor(gguf, i)->offset;

    lever_status status = LEVER_OK;
    if (count != 1 || end > header_bytes || end - begin < sizeof(uint64_t))
        status = lv_fail(error, LEVER_E_FORMAT, "%s: the key %s is damaged; pack the model anew", lv_gguf_path(gguf),
                         LV_PACK_KEY_HEADER_SUM);
    if (status == LEVER_OK)
        status = lv_checksum_header(lv_gguf_file(gguf, 0), end - sizeof(uint64_t), header_bytes, &found, error);
    if (status == LEVER_OK && found != wanted[0])
        status = lv_fail(error, LEVER_E_FORMAT,
                         "%s: the header is damaged (checksum %016llx, expected %016llx); pack the model anew",
                         lv_gguf_path(gguf), (unsigned long long)found, (unsigned long long)wanted[0]);
    lv_free(wanted);
    return status;
}

/* Fills chunk_first, reads the checksums, compares their number, and returns the largest superset of a chunk. */
static lever_status read_sums(lv_checks *checks, lv_ledger *ledger, size_t *chunk_bytes_max, lever_error *error) {
    const lv_gguf *gguf = checks->gguf;
    uint32_t tensors_count = lv_gguf_tensors_count(gguf);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, (size_t)tensors_count + 1, sizeof(uint64_t),
                            "the checksums", error));
    checks->chunk_first = memory;
    *chunk_bytes_max = 0;
    for (uint32_t i = 0; i < tensors_count; i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        checks->chunk_first[i + 1] = checks->chunk_first[i] + lv_chunks_count(tensor);
        uint64_t rows = lv_chunk_rows(tensor) < tensor->rows_count ? lv_chunk_rows(tensor) : tensor->rows_count;
        size_t bytes = lv_file_superset_bytes(LV_FILE_ALIGN - 1, (size_t)(rows * tensor->row_bytes));
        if (bytes > *chunk_bytes_max) *chunk_bytes_max = bytes;
    }
    uint64_t count = 0;
    LV_TRY(lv_gguf_read_u64_array(gguf, LV_PACK_KEY_CHECKSUMS, &checks->sums, &count, error));
    if (count != checks->chunk_first[tensors_count])
        return lv_fail(error, LEVER_E_FORMAT, "%s: %llu checksums where %llu are needed; pack the model anew",
                       lv_gguf_path(gguf), (unsigned long long)count,
                       (unsigned long long)checks->chunk_first[tensors_count]);
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, (size_t)count, sizeof *checks->checked, "the checksums",
                            error));
    checks->checked = memory;
    return LEVER_OK;
}

static lever_status open_with_scratch(lv_checks *checks, const lv_gguf *gguf, size_t scratch_bytes, lv_ledger *ledger,
                                      lever_error *error) {
    *checks = (lv_checks){.gguf = gguf};
    lever_status status = check_header(gguf, error);
    size_t chunk_bytes_max = 0;
    if (status == LEVER_OK) status = read_sums(checks, ledger, &chunk_bytes_max, error);
    if (status == LEVER_OK)
        status = lv_area_open(&checks->scratch, ledger, LV_MEM_METADATA,
                              chunk_bytes_max > scratch_bytes ? chunk_bytes_max : scratch_bytes,
                              &(lv_area_options){.touch = true}, "a chunk to check", error);
    if (status != LEVER_OK) lv_checks_close(checks);
    return status;
}

void lv_checks_close(lv_checks *checks) {
    lv_area_close(&checks->scratch);
    lv_free((void *)checks->checked);
    lv_free(checks->sums);
    lv_free(checks->chunk_first);
    *checks = (lv_checks){0};
}

/* The tensor's place in the table, told by its place in the file: callers may hold copies. */
static uint32_t tensor_index(const lv_gguf *gguf, const lv_tensor *tensor) {
    uint32_t count = lv_gguf_tensors_count(gguf), index = 0;
    for (; index < count; index++) {
        const lv_tensor *candidate = lv_gguf_tensor(gguf, index);
        if (candidate->offset == tensor->offset && candidate->file_index == tensor->file_index) break;
    }
    assert(index < count); /* else it is a tensor of another model */
    return index;
}

lever_status lv_checks_rows(lv_checks *checks, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                            const uint8_t *data, lever_error *error) {
    if (checks->sums == NULL) return LEVER_OK;
    uint64_t base = checks->chunk_first[tensor_index(checks->gguf, tensor)];
    uint64_t chunk_rows = lv_chunk_rows(tensor);
    for (uint64_t row = row_first; row < row_first + rows_count; row += chunk_rows) {
        uint64_t chunk = base + row / chunk_rows;
        uint64_t rows = row_first + rows_count - row < chunk_rows ? row_first + rows_count - row : chunk_rows;
        if (atomic_load_explicit(&checks->checked[chunk], memory_order_relaxed)) continue;
        uint64_t found = lv_checksum(data + (row - row_first) * tensor->row_bytes, (size_t)(rows * tensor->row_bytes));
        if (found != checks->sums[chunk])
            return lv_fail(error, LEVER_E_FORMAT,
                           "%s is damaged: rows %llu to %llu of %s have checksum %016llx, expected %016llx. Check the "
                           "disk, then pack or fetch the model anew",
                           lv_gguf_path(checks->gguf), (unsigned long long)row, (unsigned long long)(row + rows - 1),
                           tensor->name, (unsigned long long)found, (unsigned long long)checks->sums[chunk]);
        atomic_store_explicit(&checks->checked[chunk], 1, memory_order_relaxed);
    }
    return LEVER_OK;
}

lever_status lv_checks_block(lv_checks *checks, const lv_layout *layout, uint32_t block, const uint8_t *data,
                             lever_error *error) {
    if (checks->sums == NULL) return LEVER_OK;
    const lv_block *b = &layout->blocks[block];
    for (uint32_t i = 0; i < b->segments_count; i++) {
        const lv_segment *segment = &layout->segments[b->segment_first + i];
        LV_TRY(lv_checks_rows(checks, layout->items[segment->item].tensor, segment->row_first, segment->rows_count,
                              data + segment->block_offset, error));
    }
    return LEVER_OK;
}

lever_status lv_checks_read(lv_checks *checks, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                            lever_error *error) {
    if (checks->sums == NULL || rows_count == 0) return LEVER_OK;
    uint64_t base = checks->chunk_first[tensor_index(checks->gguf, tensor)];
    uint64_t chunk_rows = lv_chunk_rows(tensor), chunk_bytes = chunk_rows * tensor->row_bytes;
    uint64_t chunk_end = (row_first + rows_count + chunk_rows - 1) / chunk_rows;
    uint64_t step = (checks->scratch.bytes - 2 * LV_FILE_ALIGN) / chunk_bytes;
    if (step == 0) step = 1;

    for (uint64_t chunk = row_first / chunk_rows; chunk < chunk_end;) {
        if (atomic_load_explicit(&checks->checked[base + chunk], memory_order_relaxed)) {
            chunk++;
            continue;
        }
        uint64_t row = chunk * chunk_rows, end = chunk + step < chunk_end ? chunk + step : chunk_end;
        uint64_t row_end = end * chunk_rows < tensor->rows_count ? end * chunk_rows : tensor->rows_count;
        size_t skip = 0;
        LV_TRY(lv_file_read_superset(lv_gguf_file(checks->gguf, tensor->file_index), checks->scratch.data,
                                     tensor->offset + row * tensor->row_bytes,
                                     (size_t)((row_end - row) * tensor->row_bytes), &skip, error));
        LV_TRY(lv_checks_rows(checks, tensor, row, row_end - row, checks->scratch.data + skip, error));
        chunk = end;
    }
    return LEVER_OK;
}

/* Vectors (norms, biases) are read once, at opening, by others than the store. */
static lever_status check_vectors(lv_checks *checks, lever_error *error) {
    for (uint32_t i = 0; i < lv_gguf_tensors_count(checks->gguf); i++) {
        const lv_tensor *tensor = lv_gguf_tensor(checks->gguf, i);
        if (tensor->dims_count == 1) LV_TRY(lv_checks_read(checks, tensor, 0, tensor->rows_count, error));
    }
    return LEVER_OK;
}

lever_status lv_checks_open(lv_checks *checks, const lv_gguf *gguf, bool enabled, lv_ledger *ledger,
                            lever_error *error) {
    *checks = (lv_checks){.gguf = gguf};
    if (!enabled || !lv_gguf_is_packed(gguf)) return LEVER_OK;
    LV_TRY(open_with_scratch(checks, gguf, 0, ledger, error));
    lever_status status = check_vectors(checks, error);
    if (status != LEVER_OK) lv_checks_close(checks);
    return status;
}

lever_status lv_checks_verify_file(const lv_gguf *gguf, lever_progress_fn progress, void *progress_user,
                                   lever_error *error) {
    if (!lv_gguf_is_packed(gguf))
        return lv_fail(error, LEVER_E_ARGUMENT, "%s is not packed: a GGUF has no checksums to verify",
                       lv_gguf_path(gguf));
    lv_checks checks;
    LV_TRY(open_with_scratch(&checks, gguf, VERIFY_SCRATCH_BYTES, NULL, error));
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf); i++) total += lv_gguf_tensor(gguf, i)->bytes;

    lever_status status = LEVER_OK;
    for (uint32_t i = 0; i < lv_gguf_tensors_count(gguf) && status == LEVER_OK; i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        status = lv_checks_read(&checks, tensor, 0, tensor->rows_count, error);
        done += tensor->bytes;
        if (progress != NULL) progress(progress_user, LEVER_STAGE_VERIFY, done, total);
    }
    lv_checks_close(&checks);
    return status;
}
