/* session_state.h - what session.c, generate.c and the files of a cycle share of a session. Not for others.
 *
 * Three numbers say where a session stands. tokens_count: the tokens that it holds. computed_count: how many of them
 * have keys and values in the cache. logits_count: the number of tokens that `logits` follow, 0 for none. Whatever is
 * done moves them forward only after a pass has succeeded, so that an error or a cancellation leaves a session that can
 * go on. Rewinding is just a smaller count: cache slots behind it are overwritten later. */
#ifndef LV_ENGINE_SESSION_STATE_H
#define LV_ENGINE_SESSION_STATE_H

#include "base/clock.h"
#include "engine/engine_state.h"
#include "engine/simulation.h"
#include "engine/speculation.h"
#include "spec/cycle.h"
#include "spec/sampler.h"

struct lever_session {
    lever_engine *engine;
    bool answer_is_booked;
    uint32_t context_tokens;
    lv_kv kv;
    int32_t *tokens; /* context_tokens */
    size_t tokens_count, computed_count, logits_count;
    float *logits; /* of one row: what the caller sees */
    lv_sampler *sampler;
    lv_cycle cycle;
    uint64_t costs_read_bytes;   /* what a pass streamed when it took up its costs */
    lv_speculation *speculation; /* NULL: no draft */
    lv_learning *learning;       /* NULL: none */
    float *candidate_rows;       /* LV_PREDICTOR_CANDIDATES_MAX embedding rows; NULL: no predictor */
    lv_simulation *simulation;   /* NULL: this machine's own time and costs */
    const lv_clock *clock;
    atomic_bool cancelled;
    atomic_bool in_call; /* between lv_session_begin_call and _end_call */
    uint64_t prompt_begin_ns;
    lever_statistics statistics;
};

static inline double lv_session_seconds_since(const lever_session *session, uint64_t begin_ns) {
    return lv_seconds(lv_clock_now_ns(session->clock) - begin_ns);
}

/* session.c: one pass over tokens that the session holds, from `first` on, without logits unless they are the last. */
lever_status lv_session_compute(lever_session *session, size_t first, size_t count, lever_error *error);

/* session.c: takes up the costs of passes that stream what they do now. Not with a simulation, which has its own. */
void lv_session_take_costs(lever_session *session);
/* The same where a pass streams something else since the session took them up. False: nothing was done. With `give`
 * what it learned until then goes back first. */
bool lv_session_follow_costs(lever_session *session, bool give);
/* What it learned since it took them up goes back. */
void lv_session_give_costs(lever_session *session);

/* verification.c: the numbers of rows that a pass computes, of the device or the simulated phone; none: any. */
lv_buckets lv_session_buckets(const lever_session *session);

/* session.c: a function of lever.h that changes the session begins, and ends with `status`, which is returned. There is
 * one at a time: what a callback tries meanwhile is LEVER_E_ARGUMENT. A cancellation is obeyed once. */
lever_status lv_session_begin_call(lever_session *session, const char *function, lever_error *error);
lever_status lv_session_end_call(lever_session *session, lever_status status);

#endif
