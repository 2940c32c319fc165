/* part.h - a file that is not whole yet: NAME.part, and NAME.part.from, which says where it comes from.
 *
 * What was fetched survives an interruption, and goes on only when it still comes from the same source. Owns the open
 * and locked NAME.part: a second `lever pull` is refused. */
#ifndef CLI_PART_H
#define CLI_PART_H

#include "lever.h"
#include "models.h"
#include "progress.h"
#include "sha256.h"

#define PART_SOURCE_BYTES 600

typedef struct {
    char final_path[PATH_BYTES];
    char path[PATH_BYTES], from_path[PATH_BYTES];
    int descriptor;                 /* -1: not open */
    char source[PART_SOURCE_BYTES]; /* one line; "": nothing was fetched yet */
    unsigned pieces;                /* how many pieces of that source are in the file */
    uint64_t bytes;                 /* in the file and written down; appending goes on behind them */
    uint64_t bytes_there;           /* in the file, when it was opened: an interruption leaves more than written down */
} part;

lever_status part_open(part *file, const char *final_path, lever_error *error);
void part_close(part *file); /* keeps what is there; a zeroed one is not accepted: open first */

/* What is there stays when it came from the same source, else it is dropped. A source whose bytes come in one piece may
 * go on from `bytes_there`. */
lever_status part_begin(part *file, const char *source, lever_error *error);

lever_status part_append(part *file, const void *data, size_t bytes, lever_error *error);

/* Drops what lies behind `bytes`. */
lever_status part_cut(part *file, uint64_t bytes, lever_error *error);

/* Writes down that `pieces` pieces are in the file, safely on the disk. */
lever_status part_record(part *file, unsigned pieces, lever_error *error);

/* The file is whole: checks it against `sha256`, makes sure it is on the disk, gives it its name and leaves the
 * checksum beside it (NAME.sha256). What is wrong is deleted: LEVER_E_FORMAT. */
lever_status part_finish(part *file, const char *checksum, progress *bar, lever_error *error);

/* The checksum of a file. */
lever_status file_checksum(const char *path, char checksum[SHA256_TEXT_BYTES], progress *bar, lever_error *error);

/* The checksum that NAME.sha256 states, if it is there and is one. */
bool file_stated_checksum(const char *final_path, char checksum[SHA256_TEXT_BYTES]);

#endif
