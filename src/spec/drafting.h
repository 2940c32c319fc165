/* drafting.h - which nodes the draft expands next, and which are verified: the policies.
 *
 * Pure functions of tree, costs and calibration; they know neither models nor clock, so that a test can play both.
 *
 *     LEVER   Greedy by gain and cost (the paper's rule). The gain of a set of nodes is E = 1 + sum of W; its cost is
 *             T = drafting + pass + head. A forward of the draft over w nodes is worth it when the best E/T with its
 *             predicted children, merged into the ranked list of nodes, exceeds the best E/T without. Verified are the
 *             n best nodes with the largest E/T (or, by the long-run rule, the largest E - rate * T).
 *     CHAIN   The likeliest child of the likeliest child, chain_length times; then verify.
 *     EDGE    EdgeLLM-like: a node's children are the fewest, at most 4, whose probabilities reach 0.9; the tree grows
 *             level by level until its best path falls below theta; theta halves after a cycle that was accepted whole
 *             and doubles otherwise. While verifying, the draft goes on from the likeliest leaf.
 *     AR      Nothing is drafted. */
#ifndef LV_SPEC_DRAFTING_H
#define LV_SPEC_DRAFTING_H

#include "lever.h"
#include "spec/cost.h"
#include "spec/tree.h"

enum {
    LV_DRAFTING_WIDTH_MAX = 16, /* nodes of one forward of the draft */
    LV_DRAFTING_NODES_MAX = 95, /* verified in one pass, the root aside */
    LV_HEAD_ROWS_MAX = 16,      /* logits of the target that are computed at once */
};

typedef struct {
    lever_strategy strategy;
    lever_stop_rule stop_rule;
    uint32_t children;      /* that a node gets from the draft */
    uint32_t nodes_max;     /* verified in a pass, the root aside; at most LV_DRAFTING_NODES_MAX */
    uint32_t nodes_fixed;   /* LEVER: always as many; 0: by gain and cost */
    uint32_t head_rows_max; /* whose logits are computed at once, at most LV_HEAD_ROWS_MAX */
    uint32_t depth_max;     /* what the context and the answer's limit leave */
    uint32_t width_max;     /* nodes of one forward, at most LV_DRAFTING_WIDTH_MAX */
    uint32_t chain_length;  /* CHAIN */
    float theta;            /* EDGE */
    double rate;            /* tokens a second of the last cycles; 0: not known yet */
    double prune_before;    /* share of the layers behind which rows of a pass go; 0: none do */
    double prune_kept;      /* share of the nodes that goes on, in the last cycles */
} lv_drafting;

void lv_drafting_init(lv_drafting *drafting, lever_strategy strategy);

/* What the policy looks at. */
typedef struct {
    lv_tree *tree;
    const lv_costs *costs;
    const lv_calibration *calibration;
    lv_split split;         /* who computes the pass */
    lv_split draft_split;   /* and who the forwards before it */
    double drafted_seconds; /* exposed drafting of this cycle so far */
    double scored_after;    /* share of the pass behind which the drafter hears of scores (pruning.h); 0: it does not */
} lv_drafting_view;

/* The nodes of the next forward, parents before children; 0: enough is drafted. */
uint32_t lv_drafting_next(const lv_drafting *drafting, const lv_drafting_view *view,
                          uint32_t nodes[LV_DRAFTING_WIDTH_MAX]);

typedef struct {
    uint32_t nodes[LV_DRAFTING_NODES_MAX]; /* ascending, the root left out */
    uint32_t nodes_count;
    double tokens, seconds; /* expected of the cycle */
} lv_drafting_choice;

/* How many of `count` nodes, whose weights fall, go into the pass where a device computes fixed numbers of rows: all of
 * them, padded, or as many as fill a smaller number, whichever gives more tokens a second. */
uint32_t lv_drafting_fit(const lv_drafting *drafting, const lv_drafting_view *view, const float *weights,
                         uint32_t count);

void lv_drafting_choose(const lv_drafting *drafting, const lv_drafting_view *view, lv_drafting_choice *choice);

/* The nodes of the next forward while the pass runs: the outcomes by probability mass, in the width with the most mass
 * a second; 0: nothing is worth it, or the policy does not draft ahead. */
uint32_t lv_drafting_next_ahead(const lv_drafting *drafting, const lv_drafting_view *view,
                                uint32_t nodes[LV_DRAFTING_WIDTH_MAX]);

/* After a cycle that gave `tokens` in `seconds`; `whole`: its deepest path was accepted to the end. */
void lv_drafting_learn(lv_drafting *drafting, uint32_t tokens, double seconds, bool whole);

#endif
