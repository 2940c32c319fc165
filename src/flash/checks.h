/* checks.h - the checksums of a packed file.
 *
 * Owns the list of checksums, one for each chunk of each tensor (layout.h) in the order of the tensor table, and a mark
 * for each chunk that was found right. A chunk is checked when it is first read; what was right once is not checked
 * again. The header (keys and tensor table) has a checksum of its own. A GGUF has none of this: every check then
 * succeeds at once. Checking is possible from any number of threads at a time.
 *
 * A wrong checksum is LEVER_E_FORMAT and names the tensor, its rows and the file. */
#ifndef LV_FLASH_CHECKS_H
#define LV_FLASH_CHECKS_H

#include <stdatomic.h>

#include "base/memory.h"
#include "flash/layout.h"

typedef struct {
    const lv_gguf *gguf;
    uint64_t *sums;        /* NULL: nothing to check */
    uint64_t *chunk_first; /* tensors_count + 1 entries: index into `sums` */
    atomic_uchar *checked; /* one for each chunk */
    lv_area scratch;       /* for chunks that are read only to be checked; the consumer's thread */
} lv_checks;

/* Reads the list, checks the header and all one-dimensional tensors. `enabled` false: nothing will be checked. */
lever_status lv_checks_open(lv_checks *checks, const lv_gguf *gguf, bool enabled, lv_ledger *ledger,
                            lever_error *error);
void lv_checks_close(lv_checks *checks); /* a zeroed one is accepted */

/* `data` holds rows [row_first, row_first + rows_count) of the tensor: whole chunks. */
lever_status lv_checks_rows(lv_checks *checks, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                            const uint8_t *data, lever_error *error);
/* `data` holds the block. */
lever_status lv_checks_block(lv_checks *checks, const lv_layout *layout, uint32_t block, const uint8_t *data,
                             lever_error *error);
/* Reads what is not checked yet of the chunks that hold these rows. One thread at a time. */
lever_status lv_checks_read(lv_checks *checks, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                            lever_error *error);

/* The checksum of bytes: XXH3 with 64 bits, seed 0. */
uint64_t lv_checksum(const void *data, size_t bytes);
/* The checksum of a header that reaches up to `header_bytes`: all of it but the eight bytes of the checksum itself,
 * which stand at `sum_offset`. */
lever_status lv_checksum_header(lv_file *file, uint64_t sum_offset, uint64_t header_bytes, uint64_t *sum,
                                lever_error *error);

/* Checks every byte of a packed file: header and all chunks. LEVER_E_ARGUMENT for a file that has no checksums. */
lever_status lv_checks_verify_file(const lv_gguf *gguf, lever_progress_fn progress, void *progress_user,
                                   lever_error *error);

#endif
