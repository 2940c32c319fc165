/* verification.h - the target's side of a cycle: the pass over a tree, the head, and the token behind a node.
 *
 * Implements lv_target (spec/cycle.h) over the engine's forward pass. Holds the engine's pass lock from verify to
 * commit, because the logits come from what the pass left behind; who runs the cycle calls lv_verification_end in any
 * case. Lives for one answer, in the memory of the session. */
#ifndef LV_ENGINE_VERIFICATION_H
#define LV_ENGINE_VERIFICATION_H

#include "engine/session_state.h"

typedef struct {
    lever_session *session;
    const lv_sampling *sampling;
    uint64_t pass_end_ns;      /* of the last pass; 0: none */
    uint64_t pass_end_read_ns; /* that something had been read until then */
    uint64_t turn_ns;          /* that it waited for passes of other sessions, by the session's clock */
    bool holds_lock;
    uint32_t paths[LV_DRAFTING_NODES_MAX][LV_TREE_DEPTH_MAX];
    uint32_t rows[LV_PRUNING_ROWS_MAX]; /* by row at the beginning of the pass: its row at the end */
} lv_verification;

void lv_verification_begin(lv_verification *verification, lever_session *session, const lv_sampling *sampling);
lv_target lv_verification_target(lv_verification *verification);
void lv_verification_end(lv_verification *verification); /* gives back the lock after a failure */

/* What a pass of this session gives the predictor; its hidden states are those of the pass that is running. */
lv_pruning_source lv_verification_source(lever_session *session);

/* Nodes that a pass of this session can take beside the root. */
uint32_t lv_verification_nodes_max(const lever_session *session);

/* Rows whose logits the session has room for at once: those of a path while its draft is in memory, else one. */
uint32_t lv_verification_head_rows_max(const lever_session *session);

#endif
