/* gguf_keys.c - the keys of a header: read once, checked, then looked up.
 *
 * Numbers and texts that stand alone are kept; of an array only where it is. A reader that wants an array walks through
 * the file again (lv_gguf_walk_array), so that a vocabulary of some megabytes is never in memory as a whole. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf_internal.h"

static bool has_control(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] == 0x7f) return true;
    return false;
}

static bool key_less(const void *table, uint32_t a, uint32_t b) {
    const lv_gguf_key *items = table;
    return strcmp(items[a].name, items[b].name) < 0;
}

/* Steps over the elements of an array, checking each length. */
static lever_status read_array(lv_gguf_key *key, lv_gguf_cursor *cursor, const char *what, lever_error *error) {
    LV_TRY(lv_gguf_cursor_u32(cursor, &key->element_type, what, error));
    LV_TRY(lv_gguf_cursor_u64(cursor, &key->elements_count, what, error));
    key->value_begin = cursor->position;
    uint32_t element_bytes = lv_gguf_type_bytes(key->element_type);
    if (key->element_type == LV_GGUF_TEXT) element_bytes = sizeof(uint64_t); /* the least: an empty text */
    if (!element_bytes)
        return lv_fail(error, LEVER_E_FORMAT, "%s is an array of elements of type %u, which GGUF arrays cannot hold",
                       what, key->element_type);
    if (key->elements_count > lv_gguf_cursor_left(cursor) / element_bytes)
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s is an array of %llu elements, more than the %llu bytes left in the file can hold", what,
                       (unsigned long long)key->elements_count, (unsigned long long)lv_gguf_cursor_left(cursor));
    if (key->element_type != LV_GGUF_TEXT)
        return lv_gguf_cursor_skip(cursor, key->elements_count * element_bytes, what, error);
    for (uint64_t i = 0; i < key->elements_count; i++) {
        const char *text = NULL;
        size_t bytes = 0;
        LV_TRY(lv_gguf_cursor_text(cursor, LV_GGUF_ELEMENT_BYTES_MAX, &text, &bytes, what, error));
    }
    return LEVER_OK;
}

static lever_status read_text(lv_gguf_keys *keys, lv_gguf_key *key, lv_gguf_cursor *cursor, const char *what,
                              lever_error *error) {
    uint64_t bytes = 0;
    LV_TRY(lv_gguf_cursor_u64(cursor, &bytes, what, error));
    if (bytes <= lv_gguf_cursor_left(cursor) && bytes > LV_GGUF_TEXT_BYTES_MAX)
        return lv_fail(error, LEVER_E_FORMAT, "%s has %llu bytes; lever takes at most %llu", what,
                       (unsigned long long)bytes, (unsigned long long)LV_GGUF_TEXT_BYTES_MAX);
    if (bytes <= lv_gguf_cursor_left(cursor) && bytes > LV_GGUF_TEXTS_BYTES_MAX - keys->texts_bytes)
        return lv_fail(error, LEVER_E_FORMAT, "at %s the texts of the header pass %llu bytes together", what,
                       (unsigned long long)LV_GGUF_TEXTS_BYTES_MAX);
    if (bytes > lv_gguf_cursor_left(cursor)) return lv_gguf_cursor_skip(cursor, bytes, what, error); /* says so */

    char *room = NULL;
    LV_TRY(lv_gguf_pool_take(&keys->pool, (size_t)bytes, &room, error));
    LV_TRY(lv_gguf_cursor_copy(cursor, room, bytes, what, error));
    if (memchr(room, '\0', (size_t)bytes)) return lv_fail(error, LEVER_E_FORMAT, "%s holds a zero byte", what);
    keys->texts_bytes += bytes;
    key->value.type = LV_GGUF_TEXT;
    key->value.text = room;
    key->value.text_bytes = (size_t)bytes;
    return LEVER_OK;
}

static lever_status read_key(lv_gguf_keys *keys, lv_gguf_key *key, uint64_t number, lv_gguf_cursor *cursor,
                             lever_error *error) {
    char what[96];
    snprintf(what, sizeof what, "the name of key %llu", (unsigned long long)number);
    key->record_begin = cursor->position;
    const char *name = NULL;
    size_t bytes = 0;
    LV_TRY(lv_gguf_cursor_text(cursor, LV_GGUF_KEY_BYTES_MAX, &name, &bytes, what, error));
    if (!bytes || has_control(name, bytes))
        return lv_fail(error, LEVER_E_FORMAT, "%s is empty or holds control characters", what);
    LV_TRY(lv_gguf_pool_add(&keys->pool, name, bytes, &key->name, error));

    snprintf(what, sizeof what, "key '%.70s'", key->name);
    uint32_t type = 0;
    LV_TRY(lv_gguf_cursor_u32(cursor, &type, what, error));
    key->value.type = type;
    if (type == LV_GGUF_ARRAY)
        LV_TRY(read_array(key, cursor, what, error));
    else if (type == LV_GGUF_TEXT)
        LV_TRY(read_text(keys, key, cursor, what, error));
    else if (lv_gguf_type_bytes(type))
        LV_TRY(lv_gguf_cursor_scalar(cursor, type, &key->value, what, error));
    else
        return lv_fail(error, LEVER_E_FORMAT, "%s has a value of type %u, which GGUF does not know", what, type);
    if (type == LV_GGUF_BOOL && key->value.unsigned_integer > 1)
        return lv_fail(error, LEVER_E_FORMAT, "%s is a boolean of value %llu; 0 or 1 is valid", what,
                       (unsigned long long)key->value.unsigned_integer);
    key->record_end = cursor->position;
    return LEVER_OK;
}

lever_status lv_gguf_keys_read(lv_gguf_keys *keys, lv_gguf_cursor *cursor, uint64_t count, const char *path,
                               lv_ledger *ledger, lever_error *error) {
    *keys = (lv_gguf_keys){.path = path, .ledger = ledger, .pool = {.ledger = ledger}};
    keys->begin = cursor->position;
    /* A key takes 13 bytes at least: the length of its name, one character, its type and one byte. */
    if (count > lv_gguf_cursor_left(cursor) / 13)
        return lv_fail(error, LEVER_E_FORMAT,
                       "the header counts %llu keys, more than the %llu bytes behind it can hold",
                       (unsigned long long)count, (unsigned long long)lv_gguf_cursor_left(cursor));
    if (count > LV_GGUF_KEYS_MAX)
        return lv_fail(error, LEVER_E_FORMAT, "the header has %llu keys; lever takes at most %u",
                       (unsigned long long)count, LV_GGUF_KEYS_MAX);
    if (count) {
        void *memory = NULL;
        LV_TRY(
            lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, count, sizeof *keys->items, "a table of keys", error));
        keys->items = memory;
        memory = NULL;
        LV_TRY(
            lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, count, sizeof *keys->by_name, "a table of keys", error));
        keys->by_name = memory;
    }
    for (uint32_t i = 0; i < count; i++) {
        LV_TRY(read_key(keys, &keys->items[i], i, cursor, error));
        keys->by_name[i] = i;
        keys->count++;
    }
    keys->end = cursor->position;
    lv_gguf_sort(keys->by_name, keys->count, key_less, keys->items);
    for (uint32_t i = 1; i < keys->count; i++)
        if (!strcmp(keys->items[keys->by_name[i - 1]].name, keys->items[keys->by_name[i]].name))
            return lv_fail(error, LEVER_E_FORMAT, "key '%.200s' stands in the header twice",
                           keys->items[keys->by_name[i]].name);
    return LEVER_OK;
}

void lv_gguf_keys_free(lv_gguf_keys *keys) {
    lv_free(keys->by_name);
    lv_free(keys->items);
    lv_gguf_pool_free(&keys->pool);
    *keys = (lv_gguf_keys){0};
}

/* --- Values ---------------------------------------------------------------------------------------------------------
 */

static const lv_gguf_key *find(const lv_gguf_keys *keys, const char *name) {
    uint32_t low = 0, high = keys->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const lv_gguf_key *key = &keys->items[keys->by_name[middle]];
        int order = strcmp(name, key->name);
        if (!order) return key;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Sets *key to NULL when it is not there and need not be. */
static lever_status look_up(const lv_gguf_keys *keys, const char *name, const lv_gguf_key **key, bool *found,
                            lever_error *error) {
    *key = find(keys, name);
    if (found) *found = *key != NULL;
    if (*key || found) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "%s: key '%s' is missing", keys->path, name);
}

static lever_status wrong_type(const lv_gguf_keys *keys, const lv_gguf_key *key, const char *wanted,
                               lever_error *error) {
    bool array = key->value.type == LV_GGUF_ARRAY;
    return lv_fail(error, LEVER_E_FORMAT, "%s: key '%s' is %s%s; %s is wanted", keys->path, key->name,
                   array ? "an array of " : "of type ", lv_gguf_type_name(array ? key->element_type : key->value.type),
                   wanted);
}

static bool is_integer(uint32_t type) {
    return type <= LV_GGUF_I32 || type == LV_GGUF_U64 || type == LV_GGUF_I64;
}

lever_status lv_gguf_keys_u32(const lv_gguf_keys *keys, const char *name, uint32_t *value, bool *found,
                              lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up(keys, name, &key, found, error));
    if (!key) return LEVER_OK;
    if (!is_integer(key->value.type)) return wrong_type(keys, key, "an integer", error);
    /* A negative value is a large unsigned one. */
    if (key->value.unsigned_integer > UINT32_MAX)
        return lv_fail(error, LEVER_E_FORMAT, "%s: key '%s' is %lld, out of range", keys->path, name,
                       (long long)key->value.integer);
    *value = (uint32_t)key->value.unsigned_integer;
    return LEVER_OK;
}

lever_status lv_gguf_get_u32(const lv_gguf *gguf, const char *key, uint32_t *value, bool *found, lever_error *error) {
    return lv_gguf_keys_u32(&gguf->keys, key, value, found, error);
}

lever_status lv_gguf_get_f32(const lv_gguf *gguf, const char *name, float *value, bool *found, lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up(&gguf->keys, name, &key, found, error));
    if (!key) return LEVER_OK;
    if (key->value.type != LV_GGUF_F32 && key->value.type != LV_GGUF_F64)
        return wrong_type(&gguf->keys, key, "a float", error);
    if (!(key->value.real >= (double)-FLT_MAX && key->value.real <= (double)FLT_MAX))
        return lv_fail(error, LEVER_E_FORMAT, "%s: key '%s' is not a finite number", gguf->path, name);
    *value = (float)key->value.real;
    return LEVER_OK;
}

lever_status lv_gguf_get_bool(const lv_gguf *gguf, const char *name, bool *value, bool *found, lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up(&gguf->keys, name, &key, found, error));
    if (!key) return LEVER_OK;
    if (key->value.type != LV_GGUF_BOOL) return wrong_type(&gguf->keys, key, "a boolean", error);
    *value = key->value.unsigned_integer != 0;
    return LEVER_OK;
}

lever_status lv_gguf_get_text(const lv_gguf *gguf, const char *name, const char **value, bool *found,
                              lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up(&gguf->keys, name, &key, found, error));
    if (!key) return LEVER_OK;
    if (key->value.type != LV_GGUF_TEXT) return wrong_type(&gguf->keys, key, "a text", error);
    *value = key->value.text;
    return LEVER_OK;
}

static lever_status look_up_array(const lv_gguf *gguf, const char *name, const lv_gguf_key **key, bool *found,
                                  lever_error *error) {
    LV_TRY(look_up(&gguf->keys, name, key, found, error));
    if (*key && (*key)->value.type != LV_GGUF_ARRAY) return wrong_type(&gguf->keys, *key, "an array", error);
    return LEVER_OK;
}

lever_status lv_gguf_get_array(const lv_gguf *gguf, const char *name, uint32_t *element_type, uint64_t *count,
                               bool *found, lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up_array(gguf, name, &key, found, error));
    if (!key) return LEVER_OK;
    *element_type = key->element_type;
    *count = key->elements_count;
    return LEVER_OK;
}

lever_status lv_gguf_walk_array(const lv_gguf *gguf, const char *name, lv_gguf_visit_fn visit, void *user,
                                lever_error *error) {
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up_array(gguf, name, &key, NULL, error));
    lv_gguf_cursor cursor;
    LV_TRY(lv_gguf_cursor_open(&cursor, gguf->files[0], key->value_begin, gguf->options.ledger, error));
    lever_status status = LEVER_OK;
    for (uint64_t i = 0; i < key->elements_count && status == LEVER_OK; i++) {
        lv_gguf_value value = {.type = key->element_type};
        if (key->element_type == LV_GGUF_TEXT)
            status =
                lv_gguf_cursor_text(&cursor, LV_GGUF_ELEMENT_BYTES_MAX, &value.text, &value.text_bytes, name, error);
        else
            status = lv_gguf_cursor_scalar(&cursor, key->element_type, &value, name, error);
        if (status == LEVER_OK && !visit(user, i, &value)) break;
    }
    lv_gguf_cursor_close(&cursor);
    return status;
}

lever_status lv_gguf_read_u64_array(const lv_gguf *gguf, const char *name, uint64_t **values, uint64_t *count,
                                    lever_error *error) {
    *values = NULL;
    *count = 0;
    const lv_gguf_key *key = NULL;
    LV_TRY(look_up_array(gguf, name, &key, NULL, error));
    if (key->element_type != LV_GGUF_U64) return wrong_type(&gguf->keys, key, "an array of u64", error);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, gguf->options.ledger, LV_MEM_METADATA, key->elements_count + 1, sizeof **values,
                            name, error)); /* one more: an empty array has an address too */
    size_t bytes = (size_t)key->elements_count * sizeof **values;
    lever_status status = bytes ? lv_file_read(gguf->files[0], memory, key->value_begin, bytes, error) : LEVER_OK;
    if (status != LEVER_OK) {
        lv_free(memory);
        return status;
    }
    *values = memory;
    *count = key->elements_count;
    return LEVER_OK;
}

void lv_gguf_keys_range(const lv_gguf *gguf, uint64_t *begin, uint64_t *end, uint64_t *count) {
    *begin = gguf->keys.begin;
    *end = gguf->keys.end;
    *count = gguf->keys.count;
}

uint32_t lv_gguf_keys_count(const lv_gguf *gguf) {
    return gguf->keys.count;
}

void lv_gguf_key_at(const lv_gguf *gguf, uint32_t index, const char **name, lv_gguf_value *value) {
    *name = gguf->keys.items[index].name;
    *value = gguf->keys.items[index].value;
}
