/* bench_cases.h - what `lever bench` measures: lists from the options, and their product in the order of measuring.
 *
 * An arm is a strategy with what is switched off or fixed in it. Arms of one round (the same prompt, budget,
 * temperature, length and repetition) follow each other, in alternating order from round to round. Pure functions. */
#ifndef CLI_BENCH_CASES_H
#define CLI_BENCH_CASES_H

#include "bench_prompts.h"
#include "lever.h"
#include "options.h"

enum { BENCH_LIST_MAX = 16, BENCH_NAME_BYTES = 64, BENCH_MESSAGE_BYTES = 1024 };

typedef struct {
    char name[BENCH_NAME_BYTES]; /* as given: "lever+no-ahead" */
    bool drafts;                 /* false: plain, and no draft in memory */
    lever_generate_options how;  /* only what says how tokens are found is set */
    lever_cache cache;           /* of its engines */
} bench_arm;

typedef struct {
    char name[BENCH_NAME_BYTES]; /* as given: "900M", "50%", "none" */
    uint64_t bytes;              /* 0: no budget */
    int percent;                 /* share of the layers in memory; -1: as the plan decides */
} bench_budget;

typedef struct {
    bench_arm arms[BENCH_LIST_MAX];
    bench_budget budgets[BENCH_LIST_MAX];
    float temperatures[BENCH_LIST_MAX];
    uint32_t lengths[BENCH_LIST_MAX];
    size_t arms_count, budgets_count, temperatures_count, lengths_count;
    uint32_t repetitions;
} bench_lists;

/* Without --budgets the one budget is 7/8 of the target's bytes: less than the whole, as lever is meant for. */
bool bench_lists_parse(bench_lists *lists, const cli_options *options, uint64_t target_bytes,
                       char message[BENCH_MESSAGE_BYTES]);

/* One measurement, by indices into the lists and the prompts. */
typedef struct {
    size_t arm, budget, temperature, length, prompt;
    uint32_t repetition;
    size_t round; /* of this number are all that are compared side by side */
} bench_case;

/* All of them in the order of measuring; *count is set. Owned by the caller, freed with free. NULL: no memory. */
bench_case *bench_cases_make(const bench_lists *lists, size_t prompts_count, size_t *count);

/* "900M/t0/n128": what the rows of a table share. */
void bench_case_name(const bench_lists *lists, const bench_case *c, char name[BENCH_NAME_BYTES]);

#endif
