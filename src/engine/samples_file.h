/* samples_file.h - the file of what training learns from, and its blocks in memory.
 *
 *     heading   magic, hashes of both models, width, vocabulary, layers
 *     block     hash of the text that was given, counts, checksum; then the text's tokens, the samples, and for each
 *               layer their hidden states as halfs
 *
 * It is read by the machine that wrote it, within days: numbers lie as the machine has them. A block that is not whole
 * ends the file. A block whose checksum is right and whose numbers cannot be is nobody's accident: it is refused, since
 * they become indices. Candidates are numbered by token. Knows no models. One thread. */
#ifndef LV_ENGINE_SAMPLES_FILE_H
#define LV_ENGINE_SAMPLES_FILE_H

#include <stdio.h>

#include "spec/training.h"

enum { LV_SAMPLES_LAYERS_MAX = 4, LV_SAMPLES_TOKENS_MAX = 512 /* of one text */, LV_SAMPLES_MAGIC = 0x4c56534e };

/* Written as it is, so nothing in it is left unset. */
typedef struct {
    uint32_t magic, width, vocabulary, layers_count, sample_bytes, block_bytes;
    uint64_t target_hash, draft_hash;
    uint32_t layers[LV_SAMPLES_LAYERS_MAX];
} lv_samples_heading;

typedef struct {
    uint32_t magic, samples_count, tokens_count, zero;
    uint64_t text_hash, checksum;
} lv_samples_block;

/* What a block holds, in memory for the largest. */
typedef struct {
    int32_t *tokens;
    lv_sample *samples;
    uint16_t *hidden; /* [layer][sample][width] */
} lv_samples_parts;

/* FNV-1a, from LV_SAMPLES_HASH_FIRST on. */
#define LV_SAMPLES_HASH_FIRST UINT64_C(0xcbf29ce484222325)
uint64_t lv_samples_hash(uint64_t hash, const void *data, size_t bytes);

/* Memory for the largest block, booked as LV_MEM_SESSION. What failed to open is closed like the rest. */
uint64_t lv_samples_parts_bytes(uint32_t width, uint32_t layers_count);
lever_status lv_samples_parts_open(lv_samples_parts *parts, const lv_samples_heading *heading, lv_ledger *ledger,
                                   lever_error *error);
void lv_samples_parts_close(lv_samples_parts *parts);

/* True when `count` items of so many bytes were read. */
bool lv_samples_read_items(FILE *file, void *to, size_t bytes, size_t count);

/* Reads the block where the file stands; false when it is not whole. */
bool lv_samples_read(FILE *file, const lv_samples_heading *heading, lv_samples_block *block,
                     const lv_samples_parts *parts);

/* LEVER_E_FORMAT when its numbers cannot be. */
lever_status lv_samples_check(const char *path, const lv_samples_heading *heading, const lv_samples_block *block,
                              const lv_samples_parts *parts, lever_error *error);

/* Writes a block where the file stands, all of it before this returns; magic and checksum are filled in. */
lever_status lv_samples_append(const char *path, FILE *file, const lv_samples_heading *heading, lv_samples_block *block,
                               const lv_samples_parts *parts, lever_error *error);

/* Goes through the first `texts_count` blocks of a file; the function sees each, after it was checked. */
typedef lever_status (*lv_samples_fn)(void *user, const lv_samples_heading *heading, const lv_samples_block *block,
                                      const lv_samples_parts *parts, lever_error *error);
typedef struct {
    const char *path;
    FILE *file;
    uint32_t texts_count;
    uint32_t width, vocabulary, layers_count; /* that the heading must have */
} lv_samples_reader;
lever_status lv_samples_each(const lv_samples_reader *reader, lv_samples_fn fn, void *user, lv_ledger *ledger,
                             lever_error *error);

/* LEVER_E_IO: the path, "cannot be" `what`, and errno. */
lever_status lv_samples_fail(const char *path, const char *what, lever_error *error);

#endif
