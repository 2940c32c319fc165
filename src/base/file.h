/* file.h - a file on flash, read at offsets past the page cache.
 *
 * Owns one or two descriptors. Reads use O_DIRECT where the system allows it; where it refuses, at opening or at the
 * first read (EINVAL), reading goes on buffered, dropping its pages behind it, with one warning through the log. Short
 * reads and EINTR are continued. Any number of threads may read one file at once. A file that changed since it was
 * opened (size or modification time; a path that names another file now does no harm) is reported, not read. Reads
 * reach the system only through os_file.h, and take as long as a pacer says. */
#ifndef LV_BASE_FILE_H
#define LV_BASE_FILE_H

#include "base/ledger.h"
#include "base/log.h"
#include "base/pacer.h"

#define LV_FILE_ALIGN ((size_t)4096) /* of offset, size and memory for direct reads */

typedef struct lv_file lv_file;

typedef struct {
    bool direct;       /* try O_DIRECT */
    const lv_log *log; /* copied; may be NULL */
    lv_ledger *ledger; /* may be NULL */
    lv_pacer *pacer;   /* borrowed; NULL: the disk is as fast as it is */
} lv_file_options;

/* Only regular files: a folder, FIFO or device is refused at once, without blocking. A path that names no file that can
 * be opened is LEVER_E_FORMAT; a system that fails (EIO, too many open files) is LEVER_E_IO. */
lever_status lv_file_open(lv_file **file, const char *path, const lv_file_options *options, lever_error *error);
void lv_file_close(lv_file **file);

uint64_t lv_file_bytes(const lv_file *file);
const char *lv_file_path(const lv_file *file);
bool lv_file_is_direct(const lv_file *file); /* false once reading has fallen back */

/* Reads exactly `bytes` at `offset` into `data`: any alignment, through a bounce buffer on the stack of at most 64 KiB
 * a step where the request is not aligned. LEVER_E_IO with path, offset and what the system said; past the end of the
 * file: LEVER_E_IO saying that the file was cut. */
lever_status lv_file_read(lv_file *file, void *data, uint64_t offset, size_t bytes, lever_error *error);

/* Reads the aligned superset of [offset, offset + bytes) with one large request: `data` is aligned to LV_FILE_ALIGN and
 * holds lv_file_superset_bytes(offset, bytes); the wanted bytes then start at data + *skip. The part past the end of
 * the file is left as it is. */
lever_status lv_file_read_superset(lv_file *file, void *data, uint64_t offset, size_t bytes, size_t *skip,
                                   lever_error *error);
size_t lv_file_superset_bytes(uint64_t offset, size_t bytes);

#endif
