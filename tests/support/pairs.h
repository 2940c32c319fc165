/* pairs.h - the generated pair, and the many ways in which it can decode: all of them give the text of plain decoding.
 *
 * A way is a level for each factor. pairs_covering makes few ways in which any two levels of any two factors meet.
 * Functions fail the running test, with the library's message, when they cannot do their work. One thread at a time. */
#ifndef LV_TESTS_PAIRS_H
#define LV_TESTS_PAIRS_H

#include "lever.h"

#define PAIR_TARGET LEVER_TINY_DIR "/pair-target.gguf"
#define PAIR_DRAFT LEVER_TINY_DIR "/pair-draft.gguf"
/* Of the same vocabulary as the draft, and so large that most of what a process with it takes is layers. */
#define PAIR_LARGE LEVER_TINY_DIR "/large/pair-large.gguf"

typedef enum {
    PAIR_STRATEGY,  /* lever, chain, edge */
    PAIR_TREE,      /* nodes of a tree, or length of a chain: by itself, 1, 5, 40 */
    PAIR_HEAD,      /* lever_head_mode */
    PAIR_BUDGET,    /* share of the layers that is pinned: 0, 50, 100 % */
    PAIR_LOOKUP,    /* 1: none */
    PAIR_AHEAD,     /* 1: none */
    PAIR_SAMPLING,  /* see pairs_sampling */
    PAIR_THREADS,   /* 1, 2 */
    PAIR_COSTS,     /* measured, or frozen ones by which much is drafted */
    PAIR_STOP_RULE, /* lever_stop_rule */
    PAIR_PRUNING,   /* without a predictor; by cost; forced, half of the nodes; forced, all but the backbone */
    PAIR_FACTORS
} pair_factor;

enum { PAIR_SAMPLINGS = 4, PAIR_PROMPT = 36, PAIR_PROMPTS = 3, PAIR_ANSWER_MAX = 256, PAIR_WAYS_MAX = 256 };

typedef struct {
    uint8_t level[PAIR_FACTORS];
} pair_way;

uint32_t pairs_levels(pair_factor factor);

/* At least `least` ways, at most `capacity`; returns how many. */
uint32_t pairs_covering(pair_way *ways, uint32_t least, uint32_t capacity);

/* For messages: "strategy 0, tree 3, ...". Valid until the next call. */
const char *pairs_describe(const pair_way *way);

/* Writes the frozen costs, of a slow flash and a fast draft, into the scratch folder; valid until the program ends. */
const char *pairs_costs_path(void);

/* A predictor of the pair whose scores mean nothing, in the scratch folder; valid until the program ends. */
const char *pairs_predictor_path(void);

/* Options of an engine with both models, and of an answer of `tokens_max` tokens. */
void pairs_engine_options(lever_engine_options *options, const pair_way *way);
/* The same with the large target, whose memory is the plan's choice. */
void pairs_large_options(lever_engine_options *options, const pair_way *way);
void pairs_sampling(lever_generate_options *options, uint32_t sampling, uint32_t tokens_max);
void pairs_generate_options(lever_generate_options *options, const pair_way *way, uint32_t tokens_max);

/* PAIR_PROMPT tokens; each prompt ends as it began, so that look-ups find something. */
void pairs_prompt(const lever_engine *engine, uint32_t prompt, int32_t *tokens);

typedef struct {
    int32_t ids[PAIR_ANSWER_MAX];
    size_t count;
    char text[PAIR_ANSWER_MAX * 16];
    size_t bytes;
    lever_finish finish;
    lever_statistics statistics;
    size_t stop_after; /* the receiver ends the answer then; 0: never */
} pair_answer;

/* Goes on with the session's tokens; `to->stop_after` is read, the rest written. */
lever_status pairs_generate(lever_session *session, const lever_generate_options *options, pair_answer *to,
                            lever_error *error);

/* Ids, text and finish are the same; else the test fails, saying where, after `what`. */
void pairs_check_same(const pair_answer *got, const pair_answer *wanted, const char *what);

#endif
