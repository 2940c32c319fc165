/* bench_trace.h - the cycles of `lever bench --trace`: those of answers that have a row of their own, and no others.
 *
 * The lines of an answer stay only when it went well: they are written before its row is, and are taken back when it
 * has none. A run that was killed leaves at most those of its last answer, which are cut off when it is gone on with.
 * Main thread. */
#ifndef CLI_BENCH_TRACE_H
#define CLI_BENCH_TRACE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "sha256.h"

typedef struct {
    FILE *file; /* NULL: no trace is written */
    bool failed;
    const char *id; /* of the row of the answer that is being measured; borrowed */
    off_t answer;   /* where its lines begin */

    /* Of a file that is gone on with: the row of its last lines, where these begin, where the last whole one ends. */
    char last_id[SHA256_TEXT_BYTES];
    off_t last_begin, whole;
} bench_trace;

/* Without `resume` the file begins anew; with it, it is read, and made when it is not there. False: `message` says why.
 */
bool bench_trace_open(bench_trace *trace, const char *path, bool resume, char *message, size_t message_bytes);
/* Then the end of the file is put right: `last_has_row`: there is a row, of an answer that went well, of `last_id`. */
void bench_trace_settle(bench_trace *trace, bool last_has_row);

/* Around each answer. */
void bench_trace_begin(bench_trace *trace, const char *id);
void bench_trace_line(bench_trace *trace, const char *line);
void bench_trace_end(bench_trace *trace, bool keep);

bool bench_trace_close(bench_trace *trace); /* false: writing had failed, and it is not complete */

#endif
