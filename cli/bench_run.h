/* bench_run.h - `lever bench` at work: opens engines, measures answers, writes a row of each.
 *
 * Each answer gets an engine of its own, which has the whole budget: what an engine gives up for an answer (a draft
 * that did not pay) is nothing to the next, and what it learns only to those of the same arm and budget. Opening and a
 * short warm-up stand outside of every clock. Main thread. */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H

#include "bench_caches.h"
#include "bench_cases.h"
#include "bench_rows.h"
#include "bench_trace.h"
#include "limits.h"
#include "talk.h"

/* What stays the same in all rows. */
typedef struct {
    const cli_options *options;
    limits *held;
    lever_engine_options engine; /* without budget; its draft is that of the arms that have one */
    talk_paths paths;
    char target_sha256[SHA256_TEXT_BYTES], draft_sha256[SHA256_TEXT_BYTES], program_sha256[SHA256_TEXT_BYTES];
    bench_lists lists;
    bench_prompts prompts;
    bench_case *cases;
    size_t cases_count;
    bench_result *results; /* one for each case */
    bench_rows rows;
    bench_trace trace;
    bench_caches caches;
} bench_setup;

/* What tells a measurement from every other one: program, models, settings, prompt, arm, repetition. */
void bench_case_id(const bench_setup *setup, const bench_case *c, char id[SHA256_TEXT_BYTES]);

/* Measures every case that has no result yet. Returns the exit code. */
int bench_run(bench_setup *setup);

#endif
