/* gguf_writer.h - puts GGUF files together in memory, honest ones and hostile ones.
 *
 * A writer holds keys and tensors in order; tests change them and then save. What a file says may differ from what it
 * holds: counts, offsets and raw values can be set freely. Adding a key or a tensor that is there replaces it, except
 * through gguf_writer_add_key_again and gguf_writer_add_tensor_again. Aborts when memory runs out. */
#ifndef LV_TESTS_GGUF_WRITER_H
#define LV_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_WRITER_AUTO UINT64_MAX

typedef struct {
    char *name;
    uint32_t type; /* lv_gguf_type */
    uint8_t *value;
    size_t value_bytes;
} gguf_writer_key;

typedef struct {
    char *name;
    uint32_t type; /* enum ggml_type */
    uint32_t dims_count;
    uint64_t dims[4];
    uint64_t offset; /* in the data section; GGUF_WRITER_AUTO: behind the one before */
    size_t data_bytes;
} gguf_writer_tensor;

typedef struct {
    char magic[4];
    uint32_t version;
    uint64_t keys_claimed, tensors_claimed; /* GGUF_WRITER_AUTO: as many as there are */
    uint32_t alignment;
    size_t trailing_bytes;
    gguf_writer_key *keys;
    size_t keys_count;
    gguf_writer_tensor *tensors;
    size_t tensors_count;
} gguf_writer;

gguf_writer *gguf_writer_create(void);
void gguf_writer_free(gguf_writer *writer);

void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_f32(gguf_writer *writer, const char *key, float value);
void gguf_writer_bool(gguf_writer *writer, const char *key, bool value);
void gguf_writer_text(gguf_writer *writer, const char *key, const char *value);
void gguf_writer_texts(gguf_writer *writer, const char *key, const char *const *values, size_t count);
/* An array of numbers, `element_bytes` each. */
void gguf_writer_array(gguf_writer *writer, const char *key, uint32_t element_type, const void *values, size_t count,
                       size_t element_bytes);
/* A value as raw bytes, whatever they say. */
void gguf_writer_raw(gguf_writer *writer, const char *key, uint32_t type, const void *value, size_t value_bytes);
void gguf_writer_add_key_again(gguf_writer *writer, const char *key);
void gguf_writer_remove_key(gguf_writer *writer, const char *key);
gguf_writer_key *gguf_writer_find_key(gguf_writer *writer, const char *key); /* NULL: not there */

/* Data of the right size for F32 (zero filled); for other types set data_bytes. Unused dimensions are 0. */
gguf_writer_tensor *gguf_writer_add_tensor(gguf_writer *writer, const char *name, uint32_t type, uint64_t dim0,
                                           uint64_t dim1);
void gguf_writer_add_tensor_again(gguf_writer *writer, const char *name);
void gguf_writer_remove_tensor(gguf_writer *writer, const char *name);
gguf_writer_tensor *gguf_writer_find_tensor(gguf_writer *writer, const char *name);

/* Keys and F32 tensors of a model of two layers: embedding 64, 4 heads of 16, 2 key/value heads, feed forward 96,
 * `vocabulary` rows. `arch` is "llama", "qwen2" or "qwen3". */
void gguf_writer_model(gguf_writer *writer, const char *arch, uint64_t vocabulary);

/* The number of tokens that gguf_writer_bpe and gguf_writer_spm make. */
#define GGUF_WRITER_BPE_TOKENS 272u
#define GGUF_WRITER_SPM_TOKENS 273u

/* A byte-level BPE vocabulary: the 256 bytes, a few merges, <|endoftext|>, <|im_start|>, <|im_end|> and the
 * user-defined <tool>; pre-split as `pre` (NULL: no such key). */
void gguf_writer_bpe(gguf_writer *writer, const char *pre);
/* A SentencePiece vocabulary: <unk>, <s>, </s>, the 256 byte tokens, a few pieces. */
void gguf_writer_spm(gguf_writer *writer);

/* Adds the keys of a file on disk whose name begins with `prefix`. False when it cannot be read. */
bool gguf_writer_load_keys(gguf_writer *writer, const char *path, const char *prefix);

/* The file, to be freed by the caller. */
uint8_t *gguf_writer_build(const gguf_writer *writer, size_t *bytes);
/* Writes it into the scratch folder and returns its path, in `path`. */
char *gguf_writer_save(const gguf_writer *writer, const char *name, char *path, size_t capacity);

#endif
