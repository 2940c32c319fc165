/* gguf.h - the metadata and tensor table of a model file, or of a split set of them.
 *
 * Owns the open files (lv_file), the table of keys and the table of tensors. Reads GGUF version 2 and 3, little-endian,
 * and lever's packed files, which are the same container under another magic (docs/FORMAT.md). Every length, count,
 * type and offset in the file is hostile until checked: sums are checked for overflow, counts against the bytes that
 * are left, names for duplicates, tensors for overlap and for the end of the file. Nothing here aborts. Large arrays
 * (vocabulary) are not kept: they stay in the file and are read when asked for. ggml's own reader is not used: it
 * demands that tensors stand in file order, reports to stderr, and allocates what the file says. Opening is
 * single-threaded; after it, const access from any thread. Names of keys and tensors hold no control characters, so
 * that they can stand in messages. */
#ifndef LV_MODEL_GGUF_H
#define LV_MODEL_GGUF_H

#include "base/file.h"

/* Types of values, by the numbers of the GGUF specification. */
typedef enum {
    LV_GGUF_U8 = 0,
    LV_GGUF_I8 = 1,
    LV_GGUF_U16 = 2,
    LV_GGUF_I16 = 3,
    LV_GGUF_U32 = 4,
    LV_GGUF_I32 = 5,
    LV_GGUF_F32 = 6,
    LV_GGUF_BOOL = 7,
    LV_GGUF_TEXT = 8,
    LV_GGUF_ARRAY = 9,
    LV_GGUF_U64 = 10,
    LV_GGUF_I64 = 11,
    LV_GGUF_F64 = 12,
    LV_GGUF_TYPES_COUNT = 13
} lv_gguf_type;

/* How the rows of a matrix lie in its bytes. The size is the same. */
typedef enum {
    LV_LAYOUT_ROWS = 0,  /* row after row, as in a GGUF */
    LV_LAYOUT_TILES = 1, /* 16 rows interleaved, compute/kernels/kernel.h */
} lv_weight_layout;

#define LV_TENSOR_TYPE_F32 0 /* GGML_TYPE_F32, for those who do not include ggml.h */

typedef struct lv_tensor {
    const char *name;
    int32_t type; /* enum ggml_type */
    uint32_t dims_count;
    uint64_t dims[4];   /* dims[0]: elements of a row; unused ones are 1 */
    uint64_t row_bytes; /* of dims[0] elements */
    uint64_t rows_count;
    uint64_t bytes; /* row_bytes * rows_count */
    uint32_t file_index;
    uint64_t offset; /* in its file */
    lv_weight_layout layout;
} lv_tensor;

typedef struct lv_gguf lv_gguf;

/* `path` is a file, or the first file of a split set (name-00001-of-0000N.gguf; any other part: LEVER_E_FORMAT naming
 * the first). `options` is copied. */
lever_status lv_gguf_open(lv_gguf **gguf, const char *path, const lv_file_options *options, lever_error *error);
void lv_gguf_close(lv_gguf **gguf);

bool lv_gguf_is_packed(const lv_gguf *gguf);
const char *lv_gguf_path(const lv_gguf *gguf);
uint32_t lv_gguf_files_count(const lv_gguf *gguf);
lv_file *lv_gguf_file(const lv_gguf *gguf, uint32_t index);
uint32_t lv_gguf_tensors_count(const lv_gguf *gguf);
const lv_tensor *lv_gguf_tensor(const lv_gguf *gguf, uint32_t index); /* one array, in the order of the headers */
const lv_tensor *lv_gguf_find(const lv_gguf *gguf, const char *name); /* NULL: not there */

/* Keys. `found` may be NULL: the key is then required. A key of the wrong type is LEVER_E_FORMAT in either case, naming
 * key, type found and type wanted. Integers of any width and sign are accepted where the value fits. */
lever_status lv_gguf_get_u32(const lv_gguf *gguf, const char *key, uint32_t *value, bool *found, lever_error *error);
lever_status lv_gguf_get_f32(const lv_gguf *gguf, const char *key, float *value, bool *found, lever_error *error);
lever_status lv_gguf_get_bool(const lv_gguf *gguf, const char *key, bool *value, bool *found, lever_error *error);
/* Borrowed from `gguf`, terminated. */
lever_status lv_gguf_get_text(const lv_gguf *gguf, const char *key, const char **value, bool *found,
                              lever_error *error);
/* The number of elements of an array and its element type (lv_gguf_type). */
lever_status lv_gguf_get_array(const lv_gguf *gguf, const char *key, uint32_t *element_type, uint64_t *count,
                               bool *found, lever_error *error);

/* One value. Integers of any width, and booleans, stand in `integer` where they fit (in `unsigned_integer` always, as
 * 64 bits), floats in `real`; texts are not terminated and borrowed for the duration of the call. */
typedef struct {
    uint32_t type; /* lv_gguf_type */
    int64_t integer;
    uint64_t unsigned_integer;
    double real;
    const char *text;
    size_t text_bytes;
} lv_gguf_value;

/* Calls `visit` for each element of an array, read from the file as it goes, until it returns false. */
typedef bool (*lv_gguf_visit_fn)(void *user, uint64_t index, const lv_gguf_value *value);
lever_status lv_gguf_walk_array(const lv_gguf *gguf, const char *key, lv_gguf_visit_fn visit, void *user,
                                lever_error *error);

/* Reads a whole array of 64-bit unsigned integers (checksums); allocated, the caller lv_free's it. */
lever_status lv_gguf_read_u64_array(const lv_gguf *gguf, const char *key, uint64_t **values, uint64_t *count,
                                    lever_error *error);

uint32_t lv_gguf_keys_count(const lv_gguf *gguf);
/* The name and a printable rendering of a key's value (arrays: type, count, first elements), for inspection. */
lever_status lv_gguf_describe_key(const lv_gguf *gguf, uint32_t index, const char **name, char *value,
                                  size_t value_capacity, lever_error *error);

/* The name and value of a key, both borrowed from `gguf`; of an array only the type LV_GGUF_ARRAY. */
void lv_gguf_key_at(const lv_gguf *gguf, uint32_t index, const char **name, lv_gguf_value *value);

/* Writes a GGUF without tensors that holds keys of the (first) file, byte for byte as they stand there: those whose
 * name begins with one of `prefixes` and equals none of `left_out` (both end with NULL; `left_out` may be NULL). It is
 * what libllama needs to load a vocabulary. */
lever_status lv_gguf_write_keys(const lv_gguf *gguf, int descriptor, const char *const *prefixes,
                                const char *const *left_out, lever_error *error);
/* How many bytes that writes. */
uint64_t lv_gguf_written_bytes(const lv_gguf *gguf, const char *const *prefixes, const char *const *left_out);

/* The first bytes of a text from a file, fit for a message: control characters become '?'. Returns `buffer`. */
char *lv_gguf_printable(const char *text, size_t text_bytes, char *buffer, size_t capacity);

/* The name of a tensor type ("q4_K"), or "type 77". Returns static text for known types, else `buffer`. */
const char *lv_gguf_tensor_type_name(int32_t type, char *buffer, size_t capacity);
/* Whether ggml's CPU backend multiplies by matrices of this type. */
bool lv_gguf_tensor_type_computes(int32_t type);

/* Where the keys lie in the first file, for lv_pack to copy: [begin, end), and how many. */
void lv_gguf_keys_range(const lv_gguf *gguf, uint64_t *begin, uint64_t *end, uint64_t *count);

/* Keys and values of packed files (docs/FORMAT.md). Their data section and every tensor begin at multiples of
 * LV_PACK_ALIGN, whatever general.alignment says. The checksums cover the chunks of flash/layout.h. */
#define LV_PACK_MAGIC "LVRP"
#define LV_PACK_VERSION 1u
#define LV_PACK_ALIGN 4096u
#define LV_PACK_KEY_VERSION "lever.pack.version"     /* u32 */
#define LV_PACK_KEY_SOURCE "lever.pack.source"       /* text: name, size and type of what was packed */
#define LV_PACK_KEY_LAYOUTS "lever.pack.layouts"     /* array u8: lv_weight_layout of each tensor */
#define LV_PACK_KEY_CHECKSUMS "lever.pack.checksums" /* array u64: of each chunk of each tensor, in table order */
#define LV_PACK_KEY_HEADER_SUM "lever.pack.header_checksum" /* array of one u64; the last key */

#endif
