/* tree.h - the token tree of a cycle: what may follow the last emitted token.
 *
 * Node 0 is the root, the last token of the text. Nodes stand in topological order: a parent comes before its children.
 * Every candidate that the draft (or a look-up) proposed is a node, whether it will be verified or not; those that are
 * not are the shadow candidates. A node is EXPANDED once the draft has computed what follows it. W(v), the product of
 * a(u) along the path, is the probability that the walk of verification reaches v; it never grows from parent to child,
 * so the n best nodes always form a tree with the root. Knows neither models nor clock. One thread at a time. */
#ifndef LV_SPEC_TREE_H
#define LV_SPEC_TREE_H

#include "base/memory.h"
#include "spec/calibration.h"

enum {
    LV_TREE_NODES_MAX = 3072,
    LV_TREE_DEPTH_MAX = 96,
    LV_TREE_CHILDREN_MAX = 8, /* that one source proposes for one node */
};

#define LV_TREE_ROOT ((uint32_t)0)
#define LV_TREE_NONE UINT32_MAX

typedef struct {
    int32_t token;
    uint32_t parent;                    /* LV_TREE_NONE for the root */
    uint32_t first_child, next_sibling; /* LV_TREE_NONE: none */
    float a;            /* P(matches | its parent matched): drafted, or as the target's layers score it */
    float drafted;      /* the same as the sources say it, calibrated */
    float w;            /* product of a along the path; 1 for the root */
    lv_feature feature; /* what `a` was derived from; its depth is the node's */
    uint32_t slot;      /* of the draft's cache, LV_TREE_NONE: none (the root's is its position) */
    bool expanded;
    bool ahead;   /* expanded while a pass was running */
    bool pruned;  /* was in the pass, and went in its middle */
    uint32_t row; /* of the pass that is running; LV_TREE_NONE: not in it */
} lv_node;

typedef struct lv_tree {
    lv_node *nodes; /* LV_TREE_NODES_MAX */
    uint32_t nodes_count;
    uint32_t *order; /* scratch: LV_TREE_NODES_MAX */
} lv_tree;

size_t lv_tree_bytes(void); /* what lv_tree_open books, as LV_MEM_SESSION */
lever_status lv_tree_open(lv_tree *tree, lv_ledger *ledger, lever_error *error);
void lv_tree_close(lv_tree *tree); /* zeroed is accepted */

/* Nothing but a root. */
void lv_tree_reset(lv_tree *tree, int32_t root_token);

/* Adds a child, or returns the one that has this token already: its `drafted` is then the larger of both. LV_TREE_NONE
 * when the tree is full or too deep. `feature->depth` is set here. */
uint32_t lv_tree_add(lv_tree *tree, uint32_t parent, int32_t token, const lv_feature *feature, float a);

uint32_t lv_tree_child(const lv_tree *tree, uint32_t parent, int32_t token); /* or LV_TREE_NONE */

/* The nodes by W, the best first, the root left out; of equal ones the lower index, so that a parent always comes
 * before its children. Those deeper than depth_max are left out. Borrowed until the next call. */
const uint32_t *lv_tree_ranked(lv_tree *tree, uint32_t depth_max, uint32_t *count);

/* Node `node` becomes the root: its subtree stays, everything else goes. */
void lv_tree_reroot(lv_tree *tree, uint32_t node);

/* The nodes from below the root down to `node`, in order; returns its depth. */
uint32_t lv_tree_path(const lv_tree *tree, uint32_t node, uint32_t path[LV_TREE_DEPTH_MAX]);

/* The child most likely to match, of those in the running pass when `in_pass`; LV_TREE_NONE: none. */
uint32_t lv_tree_best_child(const lv_tree *tree, uint32_t node, bool in_pass);

/* Whether everything that is promised above holds: for assertions and tests. */
bool lv_tree_is_sound(const lv_tree *tree);

#endif
