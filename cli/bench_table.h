/* bench_table.h - what `lever bench` makes of its results: the table, and whether all strategies wrote the same text.
 *
 * Pure functions of cases and results; nothing is measured here. */
#ifndef CLI_BENCH_TABLE_H
#define CLI_BENCH_TABLE_H

#include "bench_cases.h"
#include "bench_rows.h"

typedef struct {
    const bench_lists *lists;
    const bench_prompts *prompts;
    const bench_case *cases;
    const bench_result *results; /* one for each case */
    size_t count;
} bench_outcome;

/* Sorts the values. Their median; 0 for none. */
double bench_median(double *values, size_t count);

/* A table for each budget, temperature and length: rates by task with their spread, the mean over the tasks of the
 * median ratio to the plain arm (or the last one), tokens a cycle, bytes a token. */
void bench_table_print(FILE *out, const bench_outcome *outcome);

/* All arms of a round that were measured must have given the same tokens. How many rounds do not; the first of them is
 * told in `message`. */
size_t bench_count_differing(const bench_outcome *outcome, char message[BENCH_MESSAGE_BYTES]);

#endif
