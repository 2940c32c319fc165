/* gguf_write.c - a GGUF without tensors that holds some keys of another.
 *
 * libllama reads a vocabulary from a file only. Giving it the model's own file would have it read the tables of tensors
 * and check them its own way; so it gets a copy of the keys that it needs and nothing else. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/gguf_internal.h"

#define HEADER_BYTES ((uint64_t)24)
#define END_ALIGN ((uint64_t)32) /* where the data section would begin */
#define STEP_BYTES ((size_t)64 << 10)

static bool is_wanted(const lv_gguf_key *key, const char *const *prefixes, const char *const *left_out) {
    bool wanted = false;
    for (; *prefixes && !wanted; prefixes++) wanted = !strncmp(key->name, *prefixes, strlen(*prefixes));
    for (; wanted && left_out && *left_out; left_out++) wanted = strcmp(key->name, *left_out) != 0;
    return wanted;
}

static uint64_t measure(const lv_gguf *gguf, const char *const *prefixes, const char *const *left_out,
                        uint64_t *keys_count) {
    uint64_t bytes = HEADER_BYTES;
    *keys_count = 0;
    for (uint32_t i = 0; i < gguf->keys.count; i++) {
        const lv_gguf_key *key = &gguf->keys.items[i];
        if (!is_wanted(key, prefixes, left_out)) continue;
        bytes += key->record_end - key->record_begin;
        ++*keys_count;
    }
    return (bytes + END_ALIGN - 1) / END_ALIGN * END_ALIGN;
}

uint64_t lv_gguf_written_bytes(const lv_gguf *gguf, const char *const *prefixes, const char *const *left_out) {
    uint64_t keys_count = 0;
    return measure(gguf, prefixes, left_out, &keys_count);
}

static lever_status write_all(int descriptor, const void *data, size_t bytes, lever_error *error) {
    const char *next = data;
    while (bytes) {
        ssize_t written = write(descriptor, next, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return lv_fail(error, LEVER_E_IO, "writing the keys of the vocabulary to a temporary file failed: %s",
                           written < 0 ? strerror(errno) : "nothing was written");
        next += written;
        bytes -= (size_t)written;
    }
    return LEVER_OK;
}

static lever_status copy_range(lv_gguf_cursor *cursor, uint64_t begin, uint64_t end, int descriptor, char *step,
                               lever_error *error) {
    cursor->position = begin;
    while (cursor->position < end) {
        uint64_t left = end - cursor->position;
        size_t bytes = left < STEP_BYTES ? (size_t)left : STEP_BYTES;
        LV_TRY(lv_gguf_cursor_copy(cursor, step, bytes, "a key", error));
        LV_TRY(write_all(descriptor, step, bytes, error));
    }
    return LEVER_OK;
}

lever_status lv_gguf_write_keys(const lv_gguf *gguf, int descriptor, const char *const *prefixes,
                                const char *const *left_out, lever_error *error) {
    uint64_t keys_count = 0, total = measure(gguf, prefixes, left_out, &keys_count);
    uint64_t written = HEADER_BYTES;
    struct {
        char magic[4];
        uint32_t version;
        uint64_t tensors_count, keys_count;
    } header = {.magic = {'G', 'G', 'U', 'F'}, .version = 3, .keys_count = keys_count};
    static const char padding[END_ALIGN];
    _Static_assert(sizeof header == HEADER_BYTES, "the header has no holes");

    void *step = NULL;
    LV_TRY(lv_alloc_checked(&step, gguf->options.ledger, LV_MEM_METADATA, 1, STEP_BYTES, "copying keys", error));
    lv_gguf_cursor cursor = {0};
    lever_status status = lv_gguf_cursor_open(&cursor, gguf->files[0], 0, gguf->options.ledger, error);
    if (status == LEVER_OK) status = write_all(descriptor, &header, sizeof header, error);
    for (uint32_t i = 0; i < gguf->keys.count && status == LEVER_OK; i++) {
        const lv_gguf_key *key = &gguf->keys.items[i];
        if (!is_wanted(key, prefixes, left_out)) continue;
        status = copy_range(&cursor, key->record_begin, key->record_end, descriptor, step, error);
        written += key->record_end - key->record_begin;
    }
    if (status == LEVER_OK) status = write_all(descriptor, padding, (size_t)(total - written), error);
    lv_gguf_cursor_close(&cursor);
    lv_free(step);
    return status;
}
