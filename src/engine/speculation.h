/* speculation.h - the draft's side of a session: its cache, what it has computed, and the thread that drafts ahead.
 *
 * Implements lv_drafter (spec/cycle.h) over the engine's draft model. Owns the session's draft cache, buffers for
 * candidates, room for the target's logits of a whole path, and a thread that sleeps unless a pass of the target runs.
 * All memory is taken at opening, and only cache and logits may be given back for a while. One thread at a time calls
 * in; the thread of its own touches tree, cache and buffers only between ahead_begin and ahead_end. */
#ifndef LV_ENGINE_SPECULATION_H
#define LV_ENGINE_SPECULATION_H

#include "engine/draft_model.h"
#include "spec/cycle.h"
#include "spec/sampler.h"

typedef struct lv_speculation lv_speculation;

typedef struct {
    lv_draft_model *draft;
    uint32_t context_tokens, vocabulary; /* of the target */
    uint32_t logits_columns;             /* of the target: its vocabulary with what pads it */
    uint32_t threads;
    const atomic_bool *cancel;
    lv_costs *costs; /* the session's: draft forwards are learned into it */
    const lv_calibration *calibration;
    /* What a forward over `rows`, of which `head_rows` go through the head, takes by another clock than this machine's;
     * NULL: it is measured. */
    double (*forward_seconds)(void *user, uint32_t rows, uint32_t head_rows, lv_split split);
    void *forward_user;
    lv_spans *spans; /* forwards are recorded here; may be NULL */
    lv_ledger *ledger;
} lv_speculation_options;

lever_status lv_speculation_open(lv_speculation **speculation, const lv_speculation_options *options,
                                 lever_error *error);
void lv_speculation_close(lv_speculation **speculation);
/* As it was opened. */
const lv_speculation_options *lv_speculation_get_options(const lv_speculation *speculation);

/* While the draft is away (residency.h): gives the cache and the logits back. Nothing of the text is computed then, and
 * only truncating and closing are allowed until they are taken again. */
void lv_speculation_rest(lv_speculation *speculation);
/* LEVER_E_BUDGET or LEVER_E_MEMORY: it goes on resting. */
lever_status lv_speculation_wake(lv_speculation *speculation, lever_error *error);
/* What resting gives back, and waking takes: of one that is to be opened, and of one that is open. */
uint64_t lv_speculation_rest_bytes(const lv_model *draft, uint32_t context_tokens, uint32_t logits_columns);
uint64_t lv_speculation_memory_bytes(const lv_speculation *speculation);
/* The same for one that rests, else 0. */
uint64_t lv_speculation_resting_bytes(const lv_speculation *speculation);

/* Room for the target's logits of LV_HEAD_ROWS_MAX rows; NULL while it rests. */
float *lv_speculation_target_logits(const lv_speculation *speculation);

/* The session's text was cut to, or agrees only up to, `tokens_count`. */
void lv_speculation_truncate(lv_speculation *speculation, size_t tokens_count);

/* Before an answer's cycles: `tokens` is the session's own array, which ends with the root. Rows of the draft's head
 * are read for tokens that have none. */
lever_status lv_speculation_begin(lv_speculation *speculation, const int32_t *tokens, size_t tokens_count,
                                  const lv_sampling *sampling, uint32_t children, lever_error *error);

/* Computes the draft's cache for the text so far, all but its last token, on one thread, until it is done or
 * lv_speculation_end_prefill: beside the target's own prefill. With frozen costs its end is waited for. */
void lv_speculation_begin_prefill(lv_speculation *speculation, const int32_t *tokens, size_t tokens_count);
lever_status lv_speculation_end_prefill(lv_speculation *speculation, lever_error *error);

lv_drafter lv_speculation_drafter(lv_speculation *speculation);

typedef struct {
    double seconds, hidden_seconds; /* drafting in all, and of it while a pass was running */
    uint64_t nodes;                 /* expanded */
} lv_speculation_counters;
void lv_speculation_get_counters(const lv_speculation *speculation, lv_speculation_counters *counters);

#endif
