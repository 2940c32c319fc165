/* residency.h - who has the memory: the draft, or more of the target.
 *
 * A plan decides before the first token whether a draft is worth its memory; what a text is like is known only later.
 * Where an answer is written slower with the draft than the target alone is expected to write it with that memory, the
 * draft's weights and the session's draft cache leave in the middle of the answer and blocks of the target are pinned
 * instead, as they pass by. The weights are read again for a later answer: the next but one after the first time, then
 * ever more seldom as long as it does not pay; the cache is computed anew from the text. Caches of other sessions stay.
 * Text does not depend on it. Where the system is so short of memory that all pinned blocks are not enough (watch.h),
 * the draft leaves as well, with the caches of those who write with it, until there is room for it again.
 * Where layers are not pinned (LEVER_CACHE_LRU), the draft may leave all the same; its memory then stays unused.
 *
 * Who computes with the draft has entered; it leaves only when nobody else is in. While it is read for one call, others
 * go on without it. Any thread, with no lock held: messages and progress are given out from here. */
#ifndef LV_ENGINE_RESIDENCY_H
#define LV_ENGINE_RESIDENCY_H

#include "engine/engine_state.h"
#include "engine/speculation.h"

/* Reads the draft's weights, if there is a draft. `cancel` may be NULL. */
lever_status lv_residency_open(lever_engine *engine, const atomic_bool *cancel, lever_error *error);

typedef enum {
    LV_RESIDENCY_PROMPT, /* a prompt is computed */
    LV_RESIDENCY_ANSWER  /* an answer begins: counted, for when the draft is read again */
} lv_residency_use;

/* True: the draft is here, and what the session has of it, and stays until lv_residency_leave. Reads its weights when
 * it is their turn to come back, unless the session is cancelled. False: there is none at present. */
bool lv_residency_enter(lever_engine *engine, lv_speculation *speculation, lv_residency_use use);
/* Where nobody else is in and a lower budget waits for the weights (draft_unwanted), these leave too.
 * `paid`: an answer was written with it to the end, and lv_residency_is_better_without had nothing against it. */
void lv_residency_leave(lever_engine *engine, bool paid);

/* What an answer was like so far, its first cycle left out. */
typedef struct {
    uint64_t tokens, cycles;
    double seconds; /* of its own cycles, without what they waited for others */
    uint64_t bytes_read;
    double reading_seconds;  /* in which a read was in flight */
    uint64_t streamed_bytes; /* of a pass, now: the budget may have changed since the plan */
} lv_residency_progress;

/* Whether the plan leaves a choice, and the answer is long enough to judge the draft by. */
bool lv_residency_is_judged(const lever_engine *engine, const lv_residency_progress *progress);

/* What a pass of the target reads as long as the blocks stay pinned that are. */
uint64_t lv_residency_streamed_bytes(const lever_engine *engine);

/* Whether the target alone is expected to be faster by a clear margin, with the draft's memory for its blocks:
 * `tokens_per_second` is what it is expected to give, by the session's costs. */
bool lv_residency_is_better_without(const lever_engine *engine, const lv_speculation *speculation,
                                    const lv_residency_progress *progress, double *tokens_per_second);

/* Gives the weights, and what the session has of the draft, up for the target's blocks. By who has entered; true: it is
 * done, and the caller has left. */
bool lv_residency_drop(lever_engine *engine, lv_speculation *speculation);

/* Memory is short, and the pinned blocks were not enough: the caller, who has entered, leaves, and gives up what its
 * session has of the draft. The weights leave with the last one. */
void lv_residency_yield(lever_engine *engine, lv_speculation *speculation);

/* The same where nobody is in. */
void lv_residency_give_way(lever_engine *engine);

/* A session ends: the memory that it gave up is kept free for another one. NULL is accepted. */
void lv_residency_forget(lever_engine *engine, lv_speculation *speculation);

#endif
