/* pack_file.c - writing the container: keys, tensor table, room for the data, checksums, rename.
 *
 * All sizes are known before the first byte of data, so the header comes first, with zeros where the checksums will
 * stand, and the data is written in any order. The header's own checksum is computed last, from what the file then
 * says.
 *
 * Keys of the source are copied byte for byte, by the reader that also copies them for libllama; only the ones that say
 * "part of a split set" are left out. */
#include "engine/pack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "flash/checks.h"

#define GGUF_VERSION 3u
#define HEADER_BYTES 24u /* magic, version, number of tensors, number of keys */
#define OWN_KEYS_COUNT 5u

/* --- Errors, and writing all of it ------------------------------------------------------------------------------- */

static uint64_t free_bytes(int descriptor) {
    struct statvfs status;
    if (fstatvfs(descriptor, &status) != 0) return UINT64_MAX;
    return (uint64_t)status.f_bavail * status.f_frsize;
}

static lever_status fail_full(const lv_pack_file *file, uint64_t free_now, lever_error *error) {
    char needed[32], left[32];
    return lv_fail(error, LEVER_E_IO,
                   "The disk is too full for '%s': it needs %" PRIu64 " bytes (%s), %" PRIu64
                   " (%s) are free. Make room, or choose another folder.",
                   file->path, file->bytes, lv_format_size(file->bytes, needed, sizeof needed), free_now,
                   lv_format_size(free_now, left, sizeof left));
}

static lever_status fail_errno(const lv_pack_file *file, const char *what, int number, lever_error *error) {
    if (number == ENOSPC || number == EDQUOT) return fail_full(file, free_bytes(file->descriptor), error);
    return lv_fail(error, LEVER_E_IO, "Cannot %s '%s': %s.", what, file->part_path, strerror(number));
}

lever_status lv_pack_file_write(const lv_pack_file *file, const void *data, uint64_t offset, size_t bytes,
                                lever_error *error) {
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t count = pwrite(file->descriptor, at, bytes, (off_t)offset);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return fail_errno(file, "write", count < 0 ? errno : EIO, error);
        at += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return LEVER_OK;
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

static lever_status refuse_name(const char *path, lever_error *error) {
    return lv_fail(error, LEVER_E_MEMORY, "Cannot write '%s': no memory for its name.", path);
}

lever_status lv_pack_file_part_path(const char *path, char **part_path, lever_error *error) {
    const size_t bytes = strlen(path) + sizeof ".part";
    *part_path = lv_alloc(NULL, LV_MEM_METADATA, bytes, 1);
    if (*part_path == NULL) return refuse_name(path, error);
    snprintf(*part_path, bytes, "%s.part", path);
    return LEVER_OK;
}

lever_status lv_pack_file_create(lv_pack_file *file, const char *path, lever_error *error) {
    *file = (lv_pack_file){.descriptor = -1};
    lever_status status = lv_pack_file_part_path(path, &file->part_path, error);
    if (status == LEVER_OK) file->path = lv_strdup(NULL, LV_MEM_METADATA, path);
    if (status == LEVER_OK && file->path == NULL) status = refuse_name(path, error);
    if (status == LEVER_OK) {
        file->descriptor = open(file->part_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (file->descriptor < 0) status = fail_errno(file, "create", errno, error);
    }
    if (status == LEVER_OK && flock(file->descriptor, LOCK_EX | LOCK_NB) != 0) {
        status = lv_fail(error, LEVER_E_IO, "'%s' is being written by another program.", file->part_path);
        close(file->descriptor); /* and not removed: it is not ours */
        file->descriptor = -1;
    }
    /* What a killed program may have left. */
    if (status == LEVER_OK && ftruncate(file->descriptor, 0) != 0) status = fail_errno(file, "empty", errno, error);
    if (status != LEVER_OK) lv_pack_file_close(file);
    return status;
}

void lv_pack_file_close(lv_pack_file *file) {
    if (file->part_path != NULL && file->descriptor >= 0) {
        unlink(file->part_path);
        close(file->descriptor);
    }
    lv_free(file->sums);
    lv_free(file->part_path);
    lv_free(file->path);
    *file = (lv_pack_file){.descriptor = -1};
}

/* --- Header ------------------------------------------------------------------------------------------------------- */

/* Bytes that grow. After a refusal nothing is added any more, and `data` is NULL. */
typedef struct {
    uint8_t *data;
    size_t bytes, capacity;
} buffer;

static void add(buffer *to, const void *data, size_t bytes) {
    if (to->data == NULL) return;
    if (bytes > to->capacity - to->bytes) {
        size_t capacity = 2 * (to->capacity + bytes);
        uint8_t *grown = lv_realloc(to->data, capacity, 1);
        if (grown == NULL) {
            lv_free(to->data);
            to->data = NULL;
            return;
        }
        to->data = grown;
        to->capacity = capacity;
    }
    if (data != NULL) memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

/* GGUF is little-endian, whatever this machine is. */
static void add_number(buffer *to, uint64_t number, size_t bytes) {
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++) little[i] = (uint8_t)(number >> (8 * i));
    add(to, little, bytes);
}

static void add_text(buffer *to, const char *text) {
    add_number(to, strlen(text), 8);
    add(to, text, strlen(text));
}

static void add_key(buffer *to, const char *name, uint32_t type) {
    add_text(to, name);
    add_number(to, type, 4);
}

/* Name, element type and count; the elements follow. */
static void add_array_key(buffer *to, const char *name, uint32_t element_type, uint64_t count) {
    add_key(to, name, LV_GGUF_ARRAY);
    add_number(to, element_type, 4);
    add_number(to, count, 8);
}

/* Our keys and the tensor table. Offsets in `file` are set as if the buffer stood at 0. */
static void build_tables(lv_pack_file *file, const char *source, buffer *to) {
    add_key(to, LV_PACK_KEY_VERSION, LV_GGUF_U32);
    add_number(to, LV_PACK_VERSION, 4);
    add_key(to, LV_PACK_KEY_SOURCE, LV_GGUF_TEXT);
    add_text(to, source);
    add_array_key(to, LV_PACK_KEY_LAYOUTS, LV_GGUF_U8, file->tensors_count);
    for (uint32_t i = 0; i < file->tensors_count; i++) add_number(to, file->tensors[i].out.layout, 1);
    add_array_key(to, LV_PACK_KEY_CHECKSUMS, LV_GGUF_U64, file->chunks_count);
    file->sums_offset = to->bytes;
    for (uint64_t i = 0; i < file->chunks_count; i++) add_number(to, 0, 8);
    add_array_key(to, LV_PACK_KEY_HEADER_SUM, LV_GGUF_U64, 1);
    file->header_sum_offset = to->bytes;
    add_number(to, 0, 8);

    for (uint32_t i = 0; i < file->tensors_count; i++) {
        const lv_tensor *tensor = &file->tensors[i].out;
        add_text(to, tensor->name);
        add_number(to, tensor->dims_count, 4);
        for (uint32_t d = 0; d < tensor->dims_count; d++) add_number(to, tensor->dims[d], 8);
        add_number(to, (uint64_t)(uint32_t)tensor->type, 4);
        add_number(to, tensor->offset, 8); /* from the start of the data section */
    }
}

static uint64_t align_up(uint64_t bytes) {
    return (bytes + LV_PACK_ALIGN - 1) / LV_PACK_ALIGN * LV_PACK_ALIGN;
}

/* Copies the keys of the source and makes the header say what this file is. *end: where the last key ends. The copy may
 * be padded, so what was written is read to know. */
static lever_status write_keys(lv_pack_file *file, const lv_gguf *gguf, uint64_t *end, lever_error *error) {
    static const char *const all[] = {"", NULL};
    static const char *const left_out[] = {"split.no", "split.count", "split.tensors.count", NULL};
    LV_TRY(lv_gguf_write_keys(gguf, file->descriptor, all, left_out, error));
    lv_gguf *written = NULL;
    uint64_t begin = 0, keys_count = 0;
    LV_TRY(lv_gguf_open(&written, file->part_path, &(lv_file_options){0}, error));
    lv_gguf_keys_range(written, &begin, end, &keys_count);
    lv_gguf_close(&written);

    uint8_t bytes[HEADER_BYTES];
    buffer header = {.data = bytes, .capacity = sizeof bytes};
    add(&header, LV_PACK_MAGIC, 4);
    add_number(&header, GGUF_VERSION, 4);
    add_number(&header, file->tensors_count, 8);
    add_number(&header, keys_count + OWN_KEYS_COUNT, 8);
    return lv_pack_file_write(file, bytes, 0, sizeof bytes, error);
}

/* Sets the length of the file and asks for its blocks now, so that a full disk is known before the work is done. Not
 * every file system can reserve; there it is known when it happens. */
static lever_status reserve_space(const lv_pack_file *file, lever_error *error) {
    uint64_t free_now = free_bytes(file->descriptor);
    if (file->bytes > free_now) return fail_full(file, free_now, error);
    if (ftruncate(file->descriptor, (off_t)file->bytes) != 0) return fail_errno(file, "extend", errno, error);
    if (fallocate(file->descriptor, 0, 0, (off_t)file->bytes) != 0 && (errno == ENOSPC || errno == EDQUOT))
        return fail_errno(file, "extend", errno, error);
    return LEVER_OK;
}

lever_status lv_pack_file_begin(lv_pack_file *file, const lv_gguf *gguf, lv_packed_tensor *tensors,
                                uint32_t tensors_count, const char *source, lever_error *error) {
    uint64_t data_bytes = 0;
    for (uint32_t i = 0; i < tensors_count; i++) {
        tensors[i].out.offset = data_bytes;
        tensors[i].chunk_first = file->chunks_count;
        file->chunks_count += lv_chunks_count(&tensors[i].out);
        data_bytes += align_up(tensors[i].out.bytes);
    }
    file->tensors = tensors;
    file->tensors_count = tensors_count;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_METADATA, (size_t)file->chunks_count, sizeof(uint64_t),
                            "the checksums", error));
    file->sums = memory;

    uint64_t keys_end = 0;
    LV_TRY(write_keys(file, gguf, &keys_end, error));
    buffer tables = {.data = lv_alloc(NULL, LV_MEM_METADATA, 4096, 1), .capacity = 4096};
    build_tables(file, source, &tables);
    if (tables.data == NULL) return lv_fail(error, LEVER_E_MEMORY, "No memory for the header of '%s'.", file->path);
    file->sums_offset += keys_end;
    file->header_sum_offset += keys_end;
    file->data_begin = align_up(keys_end + tables.bytes);
    file->bytes = file->data_begin + data_bytes;
    for (uint32_t i = 0; i < tensors_count; i++) tensors[i].out.offset += file->data_begin;

    lever_status status = reserve_space(file, error);
    if (status == LEVER_OK) status = lv_pack_file_write(file, tables.data, keys_end, tables.bytes, error);
    lv_free(tables.data);
    return status;
}

/* --- Finishing ---------------------------------------------------------------------------------------------------- */

static lever_status write_sums(lv_pack_file *file, lever_error *error) {
    buffer sums = {.data = lv_alloc(NULL, LV_MEM_METADATA, 4096, 1), .capacity = 4096};
    for (uint64_t i = 0; i < file->chunks_count; i++) add_number(&sums, file->sums[i], 8);
    if (sums.data == NULL) return lv_fail(error, LEVER_E_MEMORY, "No memory for the checksums of '%s'.", file->path);
    lever_status status = lv_pack_file_write(file, sums.data, file->sums_offset, sums.bytes, error);
    lv_free(sums.data);
    if (status != LEVER_OK) return status;

    lv_file *written = NULL;
    uint64_t sum = 0;
    LV_TRY(lv_file_open(&written, file->part_path, &(lv_file_options){0}, error));
    status = lv_checksum_header(written, file->header_sum_offset, file->data_begin, &sum, error);
    lv_file_close(&written);
    if (status != LEVER_OK) return status;

    uint8_t bytes[8];
    buffer header_sum = {.data = bytes, .capacity = sizeof bytes};
    add_number(&header_sum, sum, 8);
    return lv_pack_file_write(file, bytes, file->header_sum_offset, sizeof bytes, error);
}

/* So that the new name survives a power cut. A folder that cannot be synchronised is no failure. Cuts `path`. */
static void sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) slash[slash == path ? 1 : 0] = '\0';
    int descriptor = open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

lever_status lv_pack_file_finish(lv_pack_file *file, lever_error *error) {
    LV_TRY(write_sums(file, error));
    if (fsync(file->descriptor) != 0) return fail_errno(file, "write", errno, error);
    posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_DONTNEED); /* the page cache counts against memory limits */
    if (rename(file->part_path, file->path) != 0)
        return lv_fail(error, LEVER_E_IO, "Cannot rename '%s' to '%s': %s.", file->part_path, file->path,
                       strerror(errno));
    close(file->descriptor);
    file->descriptor = -1;
    sync_folder(file->part_path);
    return LEVER_OK;
}
