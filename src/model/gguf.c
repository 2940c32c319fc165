/* gguf.c - opening a model file, or a split set of them.
 *
 *     magic | version | tensors | keys | key 0 ... | tensor 0 ... | padding | data of the tensors
 *
 * Each file is parsed by a cursor (gguf_cursor.c) into a table of keys (gguf_keys.c) and a part of the one table of
 * tensors (gguf_tensors.c). Of a split set the first file's keys count; of the others only their place in the set is
 * looked at. What is not a GGUF is named for what it seems to be, because a wrong download is the usual cause. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf_internal.h"

#define ALIGNMENT_DEFAULT 32u
#define ALIGNMENT_MAX (1u << 20)
#define PEEK_BYTES ((size_t)64) /* enough to tell what a file is */

char *lv_gguf_printable(const char *text, size_t text_bytes, char *buffer, size_t capacity) {
    size_t length = text_bytes < capacity - 1 ? text_bytes : capacity - 1;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        buffer[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    if (length < text_bytes) /* do not end in half a character */
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    buffer[length] = '\0';
    return buffer;
}

static bool begins(const char *head, size_t bytes, const char *text) {
    size_t length = strlen(text);
    return bytes >= length && !memcmp(head, text, length);
}

static lever_status not_gguf(const char *head, size_t bytes, lever_error *error) {
    const char *found = NULL;
    size_t blank = 0;
    while (blank < bytes && strchr(" \t\r\n", head[blank]) && head[blank]) blank++;
    if (!bytes)
        found = "it is empty; fetch it again";
    else if (begins(head, bytes, "version https://git-lfs"))
        found = "it is a Git LFS pointer, which stands for the file; fetch the file itself (git lfs pull)";
    else if (blank < bytes && head[blank] == '<')
        found = "it is a web page; the download went wrong";
    else if (blank < bytes && head[blank] == '{')
        found = "it is JSON, perhaps the error message of a server; the download went wrong";
    else if (begins(head, bytes, "PK\003\004"))
        found = "it is a zip archive (PyTorch checkpoints are); convert it to GGUF";
    else if (begins(head, bytes, "lmgg") || begins(head, bytes, "fmgg") || begins(head, bytes, "tjgg"))
        found = "it is in the old GGML format; convert it to GGUF";
    if (found) return lv_fail(error, LEVER_E_FORMAT, "not a GGUF file: %s", found);

    char bytes_text[3 * 8 + 1] = "", readable[9];
    size_t shown = bytes < 8 ? bytes : 8;
    for (size_t i = 0; i < shown; i++) snprintf(bytes_text + 3 * i, 4, " %02x", (unsigned char)head[i]);
    for (size_t i = 0; i < shown; i++) readable[i] = head[i] >= 0x20 && head[i] < 0x7f ? head[i] : '.';
    readable[shown] = '\0';
    return lv_fail(error, LEVER_E_FORMAT, "not a GGUF file: it begins with the bytes%s (\"%s\")", bytes_text, readable);
}

/* Reads up to the counts of tensors and keys. */
static lever_status read_counts(lv_gguf_cursor *cursor, bool *packed, uint64_t *tensors_count, uint64_t *keys_count,
                                lever_error *error) {
    char head[PEEK_BYTES];
    size_t head_bytes = cursor->end < sizeof head ? (size_t)cursor->end : sizeof head;
    if (head_bytes) LV_TRY(lv_gguf_cursor_copy(cursor, head, head_bytes, "the first bytes", error));
    *packed = begins(head, head_bytes, LV_PACK_MAGIC);
    if (!*packed && !begins(head, head_bytes, "GGUF")) return not_gguf(head, head_bytes, error);

    cursor->position = 4;
    uint32_t version = 0;
    LV_TRY(lv_gguf_cursor_u32(cursor, &version, "the version", error));
    if (version && !(version & 0xffff))
        return lv_fail(error, LEVER_E_FORMAT,
                       "a big-endian GGUF (version %u); lever reads little-endian ones: fetch or convert one",
                       __builtin_bswap32(version));
    if (version != 2 && version != 3)
        return lv_fail(error, LEVER_E_FORMAT, "GGUF version %u; lever reads versions 2 and 3", version);
    LV_TRY(lv_gguf_cursor_u64(cursor, tensors_count, "the number of tensors", error));
    return lv_gguf_cursor_u64(cursor, keys_count, "the number of keys", error);
}

static lever_status find_alignment(const lv_gguf_keys *keys, bool packed, uint64_t *alignment, lever_error *error) {
    uint32_t value = ALIGNMENT_DEFAULT;
    bool found = false;
    LV_TRY(lv_gguf_keys_u32(keys, "general.alignment", &value, &found, error));
    if (value < 8 || value > ALIGNMENT_MAX || value & (value - 1))
        return lv_fail(error, LEVER_E_FORMAT, "key 'general.alignment' is %u; powers of two from 8 to %u are valid",
                       value, ALIGNMENT_MAX);
    *alignment = packed ? LV_PACK_ALIGN : value;
    return LEVER_OK;
}

/* Before anything else of a packed file is believed. */
static lever_status check_pack_version(const lv_gguf_keys *keys, lever_error *error) {
    uint32_t version = 0;
    LV_TRY(lv_gguf_keys_u32(keys, LV_PACK_KEY_VERSION, &version, NULL, error));
    if (version == LV_PACK_VERSION) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT,
                   "packed in version %u of the format; this lever reads version %u: pack the model anew", version,
                   LV_PACK_VERSION);
}

/* Parses the header of a file that is open. `keys` gets its keys, also on failure. */
static lever_status parse(lv_gguf *gguf, uint32_t file_index, lv_gguf_keys *keys, lever_error *error) {
    lv_gguf_cursor cursor;
    lv_file *file = gguf->files[file_index];
    LV_TRY(lv_gguf_cursor_open(&cursor, file, 0, gguf->options.ledger, error));
    uint64_t tensors_count = 0, keys_count = 0, alignment = 0;
    bool packed = false;

    lever_status status = read_counts(&cursor, &packed, &tensors_count, &keys_count, error);
    if (status == LEVER_OK && !file_index) gguf->packed = packed;
    if (status == LEVER_OK)
        status = lv_gguf_keys_read(keys, &cursor, keys_count, lv_file_path(file), gguf->options.ledger, error);
    if (status == LEVER_OK && packed) status = check_pack_version(keys, error);
    if (status == LEVER_OK) status = find_alignment(keys, packed, &alignment, error);
    if (status == LEVER_OK) status = lv_gguf_tensors_read(gguf, &cursor, tensors_count, file_index, alignment, error);
    lv_gguf_cursor_close(&cursor);
    return status;
}

/* Some messages begin with the path already. A name may be any word of a message: looking for it there says nothing. */
static bool names_file(const char *message, const char *path) {
    const size_t length = strlen(path);
    return !strncmp(message, path, length) && message[length] == ':';
}

static lever_status open_file(lv_gguf *gguf, uint32_t file_index, const char *path, lv_gguf_keys *keys,
                              lever_error *error) {
    LV_TRY(lv_file_open(&gguf->files[file_index], path, &gguf->options, error));
    lever_status status = parse(gguf, file_index, keys, error);
    if (status == LEVER_E_FORMAT && error && !names_file(error->message, path)) lv_error_prefix(error, "%s: ", path);
    return status;
}

/* --- Split sets -----------------------------------------------------------------------------------------------------
 */

#define SUFFIX_BYTES (sizeof "-00001-of-00003.gguf" - 1)

static bool five_digits(const char *text, uint32_t *number) {
    *number = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *number = *number * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

bool lv_gguf_part_path(const char *path, uint32_t part, char *room, uint32_t *named_part, uint32_t *named_count) {
    size_t length = strlen(path);
    if (length < SUFFIX_BYTES || part > 99999) return false;
    const char *suffix = path + length - SUFFIX_BYTES;
    uint32_t number = 0, count = 0;
    if (suffix[0] != '-' || !five_digits(suffix + 1, &number) || memcmp(suffix + 6, "-of-", 4) ||
        !five_digits(suffix + 10, &count) || strcmp(suffix + 15, ".gguf"))
        return false;
    memcpy(room, path, length + 1);
    char digits[6];
    snprintf(digits, sizeof digits, "%05u", part % 100000);
    memcpy(room + length - SUFFIX_BYTES + 1, digits, 5);
    if (named_part) *named_part = number;
    if (named_count) *named_count = count;
    return true;
}

/* Checks that the first file is the first of its set, and that its name leads to the others. `room` for a path. */
static lever_status check_first(const lv_gguf *gguf, uint32_t part, uint32_t parts_count, char *room,
                                lever_error *error) {
    uint32_t named_part = 0, named_count = 0;
    bool named = lv_gguf_part_path(gguf->path, 1, room, &named_part, &named_count);
    if (parts_count > LV_GGUF_PARTS_MAX)
        return lv_fail(error, LEVER_E_FORMAT, "%s: a split set of %u files; lever takes at most %u", gguf->path,
                       parts_count, LV_GGUF_PARTS_MAX);
    if (named && named_part != part + 1)
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s holds part %u of a split set of %u, though its name says part %u: files were swapped or "
                       "renamed",
                       gguf->path, part + 1, parts_count, named_part);
    if (part)
        return lv_fail(error, LEVER_E_FORMAT, "%s is part %u of a split set of %u; give the first: %s", gguf->path,
                       part + 1, parts_count, named ? room : "the file that ends in -00001-of-...");
    if (!named || named_count != parts_count)
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s is the first of a split set of %u files, but its name does not end in -00001-of-%05u.gguf, "
                       "so the others cannot be found; give all files their names back",
                       gguf->path, parts_count, parts_count);
    return LEVER_OK;
}

static lever_status open_part(lv_gguf *gguf, uint32_t part, uint32_t parts_count, const char *path,
                              lever_error *error) {
    lv_gguf_keys keys = {0};
    lever_status status = open_file(gguf, part, path, &keys, error);
    uint32_t number = 0, count = 0;
    if (status == LEVER_OK) status = lv_gguf_keys_u32(&keys, "split.no", &number, NULL, error);
    if (status == LEVER_OK) status = lv_gguf_keys_u32(&keys, "split.count", &count, NULL, error);
    if (status == LEVER_OK && (number != part || count != parts_count))
        status = lv_fail(error, LEVER_E_FORMAT,
                         "%s holds part %llu of %u, not part %u of %u as its name says: files were swapped, renamed or "
                         "are of different sets",
                         path, (unsigned long long)number + 1, count, part + 1, parts_count);
    if (status != LEVER_OK) lv_error_prefix(error, "part %u of %u of the split set: ", part + 1, parts_count);
    lv_gguf_keys_free(&keys);
    return status;
}

static lever_status open_parts(lv_gguf *gguf, lever_error *error) {
    uint32_t part = 0, parts_count = 0, tensors_count = 0;
    bool split = false, counted = false;
    LV_TRY(lv_gguf_get_u32(gguf, "split.count", &parts_count, &split, error));
    if (!split || parts_count < 2) return LEVER_OK;
    LV_TRY(lv_gguf_get_u32(gguf, "split.no", &part, NULL, error));
    if (part >= parts_count)
        return lv_fail(error, LEVER_E_FORMAT, "%s: key 'split.no' is %u in a set of %u", gguf->path, part, parts_count);

    void *room = NULL;
    LV_TRY(lv_alloc_checked(&room, gguf->options.ledger, LV_MEM_METADATA, 1, strlen(gguf->path) + 1, "a path", error));
    lever_status status = check_first(gguf, part, parts_count, room, error);
    if (status == LEVER_OK) {
        lv_file **files = lv_realloc(gguf->files, parts_count, sizeof *files);
        if (files)
            gguf->files = files;
        else
            status = lv_fail(error, LEVER_E_MEMORY, "no memory for a split set of %u files", parts_count);
    }
    for (uint32_t i = 1; i < parts_count && status == LEVER_OK; i++) {
        gguf->files_count = i + 1;
        lv_gguf_part_path(gguf->path, i + 1, room, NULL, NULL);
        status = open_part(gguf, i, parts_count, room, error);
    }
    lv_free(room);
    if (status != LEVER_OK) return status;

    LV_TRY(lv_gguf_get_u32(gguf, "split.tensors.count", &tensors_count, &counted, error));
    if (counted && tensors_count != gguf->tensors_count)
        return lv_fail(error, LEVER_E_FORMAT, "%s: the set should hold %u tensors, but its files hold %u", gguf->path,
                       tensors_count, gguf->tensors_count);
    return LEVER_OK;
}

/* --- Packed files ---------------------------------------------------------------------------------------------------
 */

typedef struct {
    lv_gguf *gguf;
    bool valid;
} layouts_visit;

static bool take_layout(void *user, uint64_t index, const lv_gguf_value *value) {
    layouts_visit *visit = user;
    visit->valid = value->integer == LV_LAYOUT_ROWS || value->integer == LV_LAYOUT_TILES;
    visit->gguf->tensors[index].layout = (lv_weight_layout)value->integer;
    return visit->valid;
}

static lever_status read_layouts(lv_gguf *gguf, lever_error *error) {
    uint32_t type = 0;
    uint64_t count = 0;
    LV_TRY(lv_gguf_get_array(gguf, LV_PACK_KEY_LAYOUTS, &type, &count, NULL, error));
    layouts_visit visit = {.gguf = gguf, .valid = type == LV_GGUF_U8 && count == gguf->tensors_count};
    if (visit.valid) LV_TRY(lv_gguf_walk_array(gguf, LV_PACK_KEY_LAYOUTS, take_layout, &visit, error));
    if (!visit.valid)
        return lv_fail(error, LEVER_E_FORMAT, "%s: key '%s' is damaged; pack the model anew", gguf->path,
                       LV_PACK_KEY_LAYOUTS);
    return LEVER_OK;
}

/* --- Opening --------------------------------------------------------------------------------------------------------
 */

static lever_status open_all(lv_gguf *gguf, const char *path, lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, gguf->options.ledger, LV_MEM_METADATA, 1, strlen(path) + 1, "a path", error));
    gguf->path = strcpy(memory, path);
    memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, gguf->options.ledger, LV_MEM_METADATA, 1, sizeof *gguf->files, "a table of files",
                            error));
    gguf->files = memory;
    gguf->files_count = 1;
    LV_TRY(open_file(gguf, 0, path, &gguf->keys, error));
    LV_TRY(open_parts(gguf, error));
    lever_status status = lv_gguf_tensors_finish(gguf, error);
    if (status != LEVER_OK) lv_error_prefix(error, "%s: ", path);
    if (status == LEVER_OK && gguf->packed) status = read_layouts(gguf, error);
    return status;
}

lever_status lv_gguf_open(lv_gguf **out, const char *path, const lv_file_options *options, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_METADATA, 1, sizeof **out, "a model file", error));
    lv_gguf *gguf = memory;
    gguf->options = *options;
    gguf->names.ledger = options->ledger;
    lever_status status = open_all(gguf, path, error);
    if (status == LEVER_OK)
        *out = gguf;
    else
        lv_gguf_close(&gguf);
    return status;
}

void lv_gguf_close(lv_gguf **handle) {
    lv_gguf *gguf = handle ? *handle : NULL;
    if (!gguf) return;
    lv_gguf_pool_free(&gguf->names);
    lv_free(gguf->tensors_by_name);
    lv_free(gguf->tensors);
    lv_gguf_keys_free(&gguf->keys);
    for (uint32_t i = 0; i < gguf->files_count; i++) lv_file_close(&gguf->files[i]);
    lv_free(gguf->files);
    lv_free(gguf->path);
    lv_free(gguf);
    *handle = NULL;
}

bool lv_gguf_is_packed(const lv_gguf *gguf) {
    return gguf->packed;
}

const char *lv_gguf_path(const lv_gguf *gguf) {
    return gguf->path;
}

uint32_t lv_gguf_files_count(const lv_gguf *gguf) {
    return gguf->files_count;
}

lv_file *lv_gguf_file(const lv_gguf *gguf, uint32_t index) {
    return gguf->files[index];
}
