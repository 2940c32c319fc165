/* gguf_cursor.c - walking through a header that may lie about every length.
 *
 * Bytes come through a window of 256 KiB that begins at a multiple of 4 KiB, so that reads can be direct and a
 * vocabulary of 150 000 texts costs some thirty of them. Everything is asked through need(), which compares with the
 * bytes that are left first. Numbers in a GGUF are little-endian, as on every machine that lever runs on. */
#include "model/gguf_internal.h"

#include <string.h>

#include "base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are read as they stand");

#define WINDOW_BYTES ((size_t)256 << 10)
_Static_assert(WINDOW_BYTES >= LV_GGUF_ELEMENT_BYTES_MAX + LV_FILE_ALIGN, "a text must fit the window");

lever_status lv_gguf_cursor_open(lv_gguf_cursor *cursor, lv_file *file, uint64_t position, lv_ledger *ledger,
                                 lever_error *error) {
    *cursor = (lv_gguf_cursor){.file = file, .position = position, .end = lv_file_bytes(file)};
    void *memory = NULL;
    LV_TRY(
        lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, WINDOW_BYTES + LV_FILE_ALIGN, "reading a header", error));
    cursor->memory = memory;
    cursor->window = cursor->memory + (LV_FILE_ALIGN - (uintptr_t)memory % LV_FILE_ALIGN) % LV_FILE_ALIGN;
    return LEVER_OK;
}

void lv_gguf_cursor_close(lv_gguf_cursor *cursor) {
    lv_free(cursor->memory);
    *cursor = (lv_gguf_cursor){0};
}

uint64_t lv_gguf_cursor_left(const lv_gguf_cursor *cursor) {
    return cursor->end - cursor->position;
}

static lever_status need(const lv_gguf_cursor *cursor, uint64_t bytes, const char *what, lever_error *error) {
    if (bytes <= lv_gguf_cursor_left(cursor)) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT,
                   "the header is cut short or damaged: %s wants %llu bytes at offset %llu, but the file ends at %llu",
                   what, (unsigned long long)bytes, (unsigned long long)cursor->position,
                   (unsigned long long)cursor->end);
}

/* Makes `bytes` (at most WINDOW_BYTES - LV_FILE_ALIGN, and known to be in the file) from the position on stand in the
 * window, at *data. */
static lever_status fill(lv_gguf_cursor *cursor, size_t bytes, const uint8_t **data, lever_error *error) {
    uint64_t window_end = cursor->window_offset + cursor->window_bytes;
    if (cursor->position < cursor->window_offset || cursor->position + bytes > window_end) {
        uint64_t offset = cursor->position & ~(uint64_t)(LV_FILE_ALIGN - 1);
        uint64_t left = cursor->end - offset;
        size_t wanted = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        cursor->window_bytes = 0;
        LV_TRY(lv_file_read(cursor->file, cursor->window, offset, wanted, error));
        cursor->window_offset = offset;
        cursor->window_bytes = wanted;
    }
    *data = cursor->window + (cursor->position - cursor->window_offset);
    return LEVER_OK;
}

lever_status lv_gguf_cursor_copy(lv_gguf_cursor *cursor, void *data, uint64_t bytes, const char *what,
                                 lever_error *error) {
    LV_TRY(need(cursor, bytes, what, error));
    uint8_t *out = data;
    while (bytes) {
        size_t step = bytes < LV_GGUF_ELEMENT_BYTES_MAX ? (size_t)bytes : (size_t)LV_GGUF_ELEMENT_BYTES_MAX;
        const uint8_t *in = NULL;
        LV_TRY(fill(cursor, step, &in, error));
        memcpy(out, in, step);
        out += step;
        cursor->position += step;
        bytes -= step;
    }
    return LEVER_OK;
}

lever_status lv_gguf_cursor_skip(lv_gguf_cursor *cursor, uint64_t bytes, const char *what, lever_error *error) {
    LV_TRY(need(cursor, bytes, what, error));
    cursor->position += bytes;
    return LEVER_OK;
}

lever_status lv_gguf_cursor_u32(lv_gguf_cursor *cursor, uint32_t *value, const char *what, lever_error *error) {
    return lv_gguf_cursor_copy(cursor, value, sizeof *value, what, error);
}

lever_status lv_gguf_cursor_u64(lv_gguf_cursor *cursor, uint64_t *value, const char *what, lever_error *error) {
    return lv_gguf_cursor_copy(cursor, value, sizeof *value, what, error);
}

lever_status lv_gguf_cursor_text(lv_gguf_cursor *cursor, uint64_t bytes_max, const char **text, size_t *bytes,
                                 const char *what, lever_error *error) {
    uint64_t length = 0;
    LV_TRY(lv_gguf_cursor_u64(cursor, &length, what, error));
    LV_TRY(need(cursor, length, what, error));
    if (length > bytes_max)
        return lv_fail(error, LEVER_E_FORMAT, "%s has %llu bytes; lever takes at most %llu", what,
                       (unsigned long long)length, (unsigned long long)bytes_max);
    const uint8_t *data = NULL;
    LV_TRY(fill(cursor, (size_t)length, &data, error));
    *text = (const char *)data;
    *bytes = (size_t)length;
    cursor->position += length;
    return LEVER_OK;
}

static const struct {
    const char *name;
    uint32_t bytes;
} types[LV_GGUF_TYPES_COUNT] = {
    [LV_GGUF_U8] = {"u8", 1},       [LV_GGUF_I8] = {"i8", 1},     [LV_GGUF_U16] = {"u16", 2},
    [LV_GGUF_I16] = {"i16", 2},     [LV_GGUF_U32] = {"u32", 4},   [LV_GGUF_I32] = {"i32", 4},
    [LV_GGUF_F32] = {"f32", 4},     [LV_GGUF_BOOL] = {"bool", 1}, [LV_GGUF_TEXT] = {"text", 0},
    [LV_GGUF_ARRAY] = {"array", 0}, [LV_GGUF_U64] = {"u64", 8},   [LV_GGUF_I64] = {"i64", 8},
    [LV_GGUF_F64] = {"f64", 8},
};

uint32_t lv_gguf_type_bytes(uint32_t type) {
    return type < LV_GGUF_TYPES_COUNT ? types[type].bytes : 0;
}

const char *lv_gguf_type_name(uint32_t type) {
    return type < LV_GGUF_TYPES_COUNT ? types[type].name : "unknown type";
}

static int64_t signed_of(const uint8_t *data, uint32_t bytes) {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (bytes) {
    case 1:
        memcpy(&i8, data, 1);
        return i8;
    case 2:
        memcpy(&i16, data, 2);
        return i16;
    case 4:
        memcpy(&i32, data, 4);
        return i32;
    default:
        memcpy(&i64, data, 8);
        return i64;
    }
}

lever_status lv_gguf_cursor_scalar(lv_gguf_cursor *cursor, uint32_t type, lv_gguf_value *value, const char *what,
                                   lever_error *error) {
    uint8_t data[8] = {0};
    uint32_t bytes = lv_gguf_type_bytes(type);
    LV_TRY(lv_gguf_cursor_copy(cursor, data, bytes, what, error));
    *value = (lv_gguf_value){.type = type};
    memcpy(&value->unsigned_integer, data, sizeof data); /* the unused high bytes are zero */
    float f32;
    switch (type) {
    case LV_GGUF_F32:
        memcpy(&f32, data, sizeof f32);
        value->real = (double)f32;
        break;
    case LV_GGUF_F64:
        memcpy(&value->real, data, sizeof value->real);
        break;
    case LV_GGUF_I8:
    case LV_GGUF_I16:
    case LV_GGUF_I32:
    case LV_GGUF_I64:
        value->integer = signed_of(data, bytes);
        value->unsigned_integer = (uint64_t)value->integer;
        break;
    default:
        value->integer = (int64_t)value->unsigned_integer;
        break;
    }
    return LEVER_OK;
}

/* --- Texts of a table, and order ---------------------------------------------------------------------------------- */

#define POOL_BLOCK_BYTES ((size_t)32 << 10)

struct lv_gguf_pool_block {
    struct lv_gguf_pool_block *older;
    size_t used, capacity;
    char text[];
};

lever_status lv_gguf_pool_take(lv_gguf_pool *pool, size_t bytes, char **room, lever_error *error) {
    struct lv_gguf_pool_block *block = pool->blocks;
    if (!block || block->capacity - block->used <= bytes) {
        size_t capacity = bytes < POOL_BLOCK_BYTES ? POOL_BLOCK_BYTES : bytes + 1;
        void *memory = NULL;
        LV_TRY(lv_alloc_checked(&memory, pool->ledger, LV_MEM_METADATA, 1, sizeof *block + capacity,
                                "the texts of a header", error));
        block = memory;
        block->older = pool->blocks;
        block->capacity = capacity;
        pool->blocks = block;
    }
    *room = block->text + block->used; /* zeroed: terminated */
    block->used += bytes + 1;
    return LEVER_OK;
}

lever_status lv_gguf_pool_add(lv_gguf_pool *pool, const char *text, size_t bytes, const char **copy,
                              lever_error *error) {
    char *room = NULL;
    LV_TRY(lv_gguf_pool_take(pool, bytes, &room, error));
    memcpy(room, text, bytes);
    *copy = room;
    return LEVER_OK;
}

void lv_gguf_pool_free(lv_gguf_pool *pool) {
    while (pool->blocks) {
        struct lv_gguf_pool_block *block = pool->blocks;
        pool->blocks = block->older;
        lv_free(block);
    }
}

static void sift_down(uint32_t *index, uint32_t root, uint32_t count, lv_gguf_less_fn less, const void *table) {
    for (;;) {
        uint64_t child = 2 * (uint64_t)root + 1;
        if (child >= count) return;
        if (child + 1 < count && less(table, index[child], index[child + 1])) child++;
        if (!less(table, index[root], index[child])) return;
        uint32_t moved = index[root];
        index[root] = index[child];
        index[child] = moved;
        root = (uint32_t)child;
    }
}

void lv_gguf_sort(uint32_t *index, uint32_t count, lv_gguf_less_fn less, const void *table) {
    for (uint32_t root = count / 2; root-- > 0;) sift_down(index, root, count, less, table);
    for (uint32_t last = count; last-- > 1;) {
        uint32_t largest = index[0];
        index[0] = index[last];
        index[last] = largest;
        sift_down(index, 0, last, less, table);
    }
}
