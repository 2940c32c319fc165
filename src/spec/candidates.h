/* candidates.h - the children of a node: what the draft holds likeliest to be the target's token.
 *
 * The target's token is argmax(log p + Gumbel(seed, position, token)); the candidates are the first of log q + the same
 * noise, where q has passed the same penalties, temperature, top-k, top-p and min-p (algorithms: shared noise, Daliri
 * et al., arXiv 2408.07978). What q excludes is still offered, after the rest: p may hold it. Choosing them well
 * changes the speed and never the text. Owns scratch memory; one thread at a time. */
#ifndef LV_SPEC_CANDIDATES_H
#define LV_SPEC_CANDIDATES_H

#include "spec/sampler.h"
#include "spec/tree.h"

typedef struct {
    int32_t token;
    float estimate; /* of the probability that the target's token is this one */
} lv_candidate;

/* Which token a logit belongs to: the first tokens_first are their own, the rest stand in a table (-1: none). */
typedef struct {
    uint32_t logits_count, tokens_first;
    const int32_t *tokens; /* logits_count - tokens_first; NULL when there are none */
} lv_logits_tokens;

typedef struct lv_candidates lv_candidates;

size_t lv_candidates_bytes(uint32_t logits_max); /* booked as LV_MEM_SESSION */
lever_status lv_candidates_open(lv_candidates **candidates, uint32_t logits_max, lv_ledger *ledger, lever_error *error);
void lv_candidates_close(lv_candidates **candidates);

/* Up to `most` (at most LV_TREE_CHILDREN_MAX) candidates for absolute position `position`, the likeliest first. The
 * history is that of the node's own path. */
uint32_t lv_candidates_pick(lv_candidates *candidates, const lv_sampling *sampling, const float *logits,
                            const lv_logits_tokens *tokens, const int32_t *history, size_t history_count,
                            uint64_t position, uint32_t most, lv_candidate *out);

/* Adds them below `node`, with what calibration makes of them. */
void lv_candidates_add(lv_tree *tree, uint32_t node, lv_source source, const lv_calibration *calibration,
                       const lv_candidate *candidates, uint32_t count);

#endif
