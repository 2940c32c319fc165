/* gguf_internal.h - what the files gguf*.c share, and nobody else.
 *
 * A CURSOR walks through the header of one file: it reads ahead into a window, never past the end of the file, and
 * checks every length against the bytes that are left before anything is allocated or copied. A KEYS object is the
 * table of keys of one file. Both belong to one thread while opening. */
#ifndef LV_MODEL_GGUF_INTERNAL_H
#define LV_MODEL_GGUF_INTERNAL_H

#include "model/gguf.h"

/* Limits on what a header may ask for; each far above what real files hold. */
#define LV_GGUF_KEYS_MAX 65536u
#define LV_GGUF_TENSORS_MAX 1000000u
#define LV_GGUF_PARTS_MAX 512u
#define LV_GGUF_KEY_BYTES_MAX 65535u
#define LV_GGUF_TENSOR_NAME_BYTES_MAX 64u              /* the specification's own limit */
#define LV_GGUF_TEXT_BYTES_MAX ((uint64_t)1 << 20)     /* of a text that stands alone */
#define LV_GGUF_TEXTS_BYTES_MAX ((uint64_t)16 << 20)   /* of all of these together */
#define LV_GGUF_ELEMENT_BYTES_MAX ((uint64_t)64 << 10) /* of a text in an array */

/* --- Cursor ------------------------------------------------------------------------------------------------------- */

typedef struct {
    lv_file *file;
    uint64_t position;
    uint64_t end; /* of the file */
    uint8_t *memory;
    uint8_t *window; /* inside memory, aligned for direct reads */
    uint64_t window_offset;
    size_t window_bytes; /* valid ones */
} lv_gguf_cursor;

lever_status lv_gguf_cursor_open(lv_gguf_cursor *cursor, lv_file *file, uint64_t position, lv_ledger *ledger,
                                 lever_error *error);
void lv_gguf_cursor_close(lv_gguf_cursor *cursor); /* a zeroed one is accepted */

uint64_t lv_gguf_cursor_left(const lv_gguf_cursor *cursor);
/* `what` names what is read, for the message: "the value of key 'x'". */
lever_status lv_gguf_cursor_copy(lv_gguf_cursor *cursor, void *data, uint64_t bytes, const char *what,
                                 lever_error *error);
lever_status lv_gguf_cursor_skip(lv_gguf_cursor *cursor, uint64_t bytes, const char *what, lever_error *error);
lever_status lv_gguf_cursor_u32(lv_gguf_cursor *cursor, uint32_t *value, const char *what, lever_error *error);
lever_status lv_gguf_cursor_u64(lv_gguf_cursor *cursor, uint64_t *value, const char *what, lever_error *error);
/* Reads a length and the text behind it: at most `bytes_max` (at most LV_GGUF_ELEMENT_BYTES_MAX), borrowed from the
 * window until the next call. */
lever_status lv_gguf_cursor_text(lv_gguf_cursor *cursor, uint64_t bytes_max, const char **text, size_t *bytes,
                                 const char *what, lever_error *error);
/* Reads one value of a type that is neither text nor array. */
lever_status lv_gguf_cursor_scalar(lv_gguf_cursor *cursor, uint32_t type, lv_gguf_value *value, const char *what,
                                   lever_error *error);

uint32_t lv_gguf_type_bytes(uint32_t type); /* of a scalar; 0 for texts, arrays and unknown types */
const char *lv_gguf_type_name(uint32_t type);

/* --- Tables ------------------------------------------------------------------------------------------------------- */

/* Texts of a table: blocks that are freed together. */
typedef struct lv_gguf_pool {
    struct lv_gguf_pool_block *blocks; /* the newest first */
    lv_ledger *ledger;
} lv_gguf_pool;

/* A terminated copy that lives as long as the pool. */
lever_status lv_gguf_pool_add(lv_gguf_pool *pool, const char *text, size_t bytes, const char **copy,
                              lever_error *error);
/* Room for `bytes` and a terminator. */
lever_status lv_gguf_pool_take(lv_gguf_pool *pool, size_t bytes, char **room, lever_error *error);
void lv_gguf_pool_free(lv_gguf_pool *pool);

/* Sorts `index` (numbers below the table's count) so that less(table, index[i + 1], index[i]) never holds. Heapsort: no
 * allocation, and no order of names in a hostile file makes it slow. */
typedef bool (*lv_gguf_less_fn)(const void *table, uint32_t a, uint32_t b);
void lv_gguf_sort(uint32_t *index, uint32_t count, lv_gguf_less_fn less, const void *table);

typedef struct {
    const char *name;
    uint64_t record_begin, record_end; /* name, type and value in the file */
    uint64_t value_begin;              /* of an array: its first element */
    uint64_t elements_count;           /* of an array */
    uint32_t element_type;
    lv_gguf_value value; /* unless it is an array; its text is terminated and lives in the pool */
} lv_gguf_key;

typedef struct {
    const char *path; /* borrowed */
    lv_gguf_key *items;
    uint32_t *by_name;
    uint32_t count;
    uint64_t begin, end; /* in the file */
    lv_gguf_pool pool;
    uint64_t texts_bytes;
    lv_ledger *ledger;
} lv_gguf_keys;

/* Reads `count` keys where the cursor stands. On failure `keys` still wants lv_gguf_keys_free. */
lever_status lv_gguf_keys_read(lv_gguf_keys *keys, lv_gguf_cursor *cursor, uint64_t count, const char *path,
                               lv_ledger *ledger, lever_error *error);
void lv_gguf_keys_free(lv_gguf_keys *keys);
/* As lv_gguf_get_u32. */
lever_status lv_gguf_keys_u32(const lv_gguf_keys *keys, const char *name, uint32_t *value, bool *found,
                              lever_error *error);

struct lv_gguf {
    char *path;
    lv_file_options options;
    bool packed;
    lv_file **files;
    uint32_t files_count;
    lv_gguf_keys keys; /* of the first file */
    lv_tensor *tensors;
    uint32_t *tensors_by_name;
    uint32_t tensors_count;
    lv_gguf_pool names;
};

/* Reads `count` tensor descriptions of file `file_index` where the cursor stands, appends them, and checks their places
 * in the file. `alignment` is that of the data section. */
lever_status lv_gguf_tensors_read(lv_gguf *gguf, lv_gguf_cursor *cursor, uint64_t count, uint32_t file_index,
                                  uint64_t alignment, lever_error *error);
/* Sorts the finished table by name and refuses duplicates. */
lever_status lv_gguf_tensors_finish(lv_gguf *gguf, lever_error *error);

/* The path of part `part` (from 1) of the set that `path` belongs to, if its name ends in -0000P-of-0000N.gguf; `room`
 * holds strlen(path) + 1. False when it does not. `named_part` and `named_count` (from the name) may be NULL. */
bool lv_gguf_part_path(const char *path, uint32_t part, char *room, uint32_t *named_part, uint32_t *named_count);

#endif
