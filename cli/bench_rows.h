/* bench_rows.h - the file of raw rows of `lever bench`: one JSON object a line, appended as it is measured.
 *
 * A run that is broken off keeps what it measured; the last line may be half-written then, and is cut off when the file
 * is gone on with. The schema is that of docs/BENCHMARKS.md. */
#ifndef CLI_BENCH_ROWS_H
#define CLI_BENCH_ROWS_H

#include <stdio.h>

#include "json.h"
#include "sha256.h"

enum { BENCH_SCHEMA = 2, BENCH_REASON_BYTES = 256 };

typedef enum { BENCH_MISSING, BENCH_OK, BENCH_FAILED } bench_status;

/* What is needed of a row to make the table: read back from a file, or just measured. */
typedef struct {
    bench_status status;
    double decode_tokens_per_second, tokens_per_cycle, bytes_per_token, seconds;
    char tokens_sha256[SHA256_TEXT_BYTES];
    char reason[BENCH_REASON_BYTES];
} bench_result;

typedef struct {
    FILE *file;
    const char *path; /* borrowed */
} bench_rows;

/* For each row of a file that is gone on with. */
typedef void (*bench_row_fn)(void *user, const char *id, const bench_result *result);

/* With `resume` the file must be there and is read first; without, it must not be there. False: `message` says why. */
bool bench_rows_open(bench_rows *rows, const char *path, bool resume, bench_row_fn on_row, void *user, char *message,
                     size_t message_bytes);
/* Appends one row at once. False: writing failed. */
bool bench_rows_append(const bench_rows *rows, const json *row);
bool bench_rows_close(bench_rows *rows); /* false: writing had failed */

#endif
