/* cycle.h - draft, verify, walk, commit: one cycle of speculation, or of plain decoding when nothing is drafted.
 *
 * Owns the tree and what was learned (costs, calibration, policy). Sees the two models only through the interfaces
 * below, so that tests play both. One thread at a time; between ahead_begin and ahead_end the tree is the drafter's.
 *
 * Exactness: a token is decided by its parent's logits alone, which the target computes; what is in the tree changes
 * how many tokens a cycle gives, never which. */
#ifndef LV_SPEC_CYCLE_H
#define LV_SPEC_CYCLE_H

#include "spec/drafting.h"
#include "spec/learning.h"
#include "spec/pruning.h"

/* The draft. Functions return LEVER_OK or pass a failure up. */
typedef struct {
    void *user;
    /* Computes what follows each of the nodes, parents before children, and adds it below them (lv_candidates_add);
     * marks them expanded. May expand fewer when it runs out of room; none: *expanded = 0. *seconds: what it took. */
    lever_status (*expand)(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                           uint32_t *expanded, double *seconds, lever_error *error);
    /* Goes on by itself with what lv_drafting_next_ahead names, until ahead_end or for about `seconds`. */
    void (*ahead_begin)(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds);
    lever_status (*ahead_end)(void *user, lever_error *error);
    /* The nodes of the path became text; `tree` still has its old root. Then the tree was rerooted. */
    void (*commit)(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count);
    void (*rerooted)(void *user, lv_tree *tree);
    /* The view of the running pass has its scores, which the drafter may apply to its tree (lv_pruning_apply). Called
     * by the pass's thread between ahead_begin and ahead_end; the view stays as it is until ahead_end. */
    void (*scored)(void *user, const lv_pruning_view *view);
} lv_drafter;

/* What happens in the middle of a pass. The embedding rows of the view's tokens will be asked for: the target may fetch
 * them before. Rows that are not kept get no logits, and their nodes are never part of a path. */
typedef struct {
    uint32_t layers_before;
    const lv_pruning_view *view;
    void *user;
    lever_status (*middle)(void *user, const lv_pruning_source *source, uint32_t keep[LV_PRUNING_ROWS_MAX],
                           uint32_t *keep_count, lever_error *error);
} lv_pause;

/* The target. */
typedef struct {
    void *user;
    /* One pass over the root and the nodes, whose row is 1 + their index here. `pause` may be NULL. */
    lever_status (*verify)(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                           const lv_pause *pause, lever_error *error);
    /* Computes the logits behind some nodes of the pass, at most drafting.head_rows_max. Valid until the next call. */
    lever_status (*head)(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lever_error *error);
    /* The target's token behind a node, from the logits at `index` of the last call of head. */
    int32_t (*token)(void *user, const lv_tree *tree, uint32_t node, uint32_t index);
    /* The nodes of the path became text. */
    void (*commit)(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count);
    double (*now)(void *user); /* seconds; the only clock of a cycle */
} lv_target;

/* Pruning in the middle of the passes, and drafting ahead by what was seen there. */
typedef struct {
    lv_predictor *predictor; /* NULL: none; the pass's thread uses it alone */
    lv_learning *learning;   /* NULL: nothing is learned */
    float cap;               /* share of the nodes that may go; 0: none does, the predictor steers the draft */
    bool forced;             /* for measurements */
    const int32_t *known;    /* for measurements: the text that will follow `known_first`; NULL */
    size_t known_first, known_count;
    lv_pruning_watch watch;
    uint32_t version; /* of the predictor that is watched */
    lv_pruning_view view;
    uint32_t keep[LV_PRUNING_ROWS_MAX], keep_count; /* of the last pass */
    bool scored;                                    /* the last pass was, without a failure */
} lv_cycle_pruning;

typedef struct {
    lv_tree tree;
    lv_costs costs;
    lv_calibration calibration;
    lv_drafting drafting;
    lever_head_mode head;
    bool ahead, lookup;                   /* wanted */
    uint64_t cycles_count, drafted_cycle; /* so far, and the last one in which the draft was asked */
    lv_cycle_pruning pruning;

    double tokens_recent; /* a cycle: a mean in which the last one weighs half */
    struct {
        size_t text_count; /* behind it; 0: none */
        uint32_t level;
        bool ahead;
    } last; /* cycle, for what the drafting behind it takes */
} lv_cycle;

lever_status lv_cycle_open(lv_cycle *cycle, lv_ledger *ledger, lever_error *error);
void lv_cycle_close(lv_cycle *cycle);

typedef struct {
    uint32_t path[LV_TREE_DEPTH_MAX]; /* accepted nodes, by their index before the tree was rerooted */
    int32_t path_tokens[LV_TREE_DEPTH_MAX];
    uint32_t path_count;
    int32_t token; /* behind the last of them: the new root */
    lv_drafting_choice choice;
    uint32_t expanded_count, forwards_count, expanded_ahead_count;
    uint32_t pruned_count, lost_count; /* rows that went; 1 when the walk ended at one */
    bool scored, milder;               /* the predictor was asked; and it did not keep its promise any more */
    bool ahead, hit;                   /* drafted ahead; and the new root had been expanded */
    double draft_seconds, pass_seconds, head_seconds, seconds;
    uint32_t head_rows;
} lv_cycle_result;

/* Called with the tree as it was verified, before it is rerooted; may be NULL. */
typedef void (*lv_cycle_watch_fn)(void *user, const lv_cycle *cycle, const lv_cycle_result *result);

/* One cycle from the tree's root. `text` ends with the root's token. `drafter` NULL: at most what is looked up. After a
 * failure the tree is as good as lost: lv_tree_reset. */
lever_status lv_cycle_run(lv_cycle *cycle, const lv_drafter *drafter, const lv_target *target, const int32_t *text,
                          size_t text_count, lv_cycle_watch_fn watch, void *watch_user, lv_cycle_result *result,
                          lever_error *error);

#endif
