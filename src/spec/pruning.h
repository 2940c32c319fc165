/* pruning.h - which rows of a pass go on behind the predictor's layer: the policy, and what it looks at.
 *
 * Before the pass a VIEW of the tree is taken: the rows of the pass, and the candidates behind each of them, in the
 * pass and shadow. From then on the tree may belong to who drafts ahead. In the middle of the pass the predictor turns
 * the view's candidates into shares, and West(row), the product of shares along its path, says how likely the walk is
 * to get there. A row then goes on if that is worth the layers that are left to it:
 *
 *     Rows by West, the best first, are a tree whatever their number, since West never grows from parent to child. The
 *     number with the best sum(West) - rate * (time of the rest of the pass) goes on; where rows cost nothing, up to
 *     the next step of the costs or while the pass waits for reading, it is all of them.
 *
 * The root and the backbone stay: the best path by West within the pass. A share of at most `cap` goes. Pure functions
 * of their structs; knows neither models nor clock. */
#ifndef LV_SPEC_PRUNING_H
#define LV_SPEC_PRUNING_H

#include "spec/cost.h"
#include "spec/drafting.h"
#include "spec/predictor.h"
#include "spec/tree.h"

enum {
    LV_PRUNING_ROWS_MAX = LV_DRAFTING_NODES_MAX + 1,
    LV_PRUNING_CANDIDATES_MAX = LV_PRUNING_ROWS_MAX * 12,
};

#define LV_PRUNING_SHADOW UINT32_MAX

typedef struct {
    uint32_t rows_count;
    uint32_t parents[LV_PRUNING_ROWS_MAX];              /* by row: the row of the parent; of the root 0 */
    uint32_t depths[LV_PRUNING_ROWS_MAX];               /* by row: below the root */
    uint32_t candidate_of[LV_PRUNING_ROWS_MAX];         /* by row: itself among the candidates; of the root unused */
    uint32_t candidates_first[LV_PRUNING_ROWS_MAX + 1]; /* by row: where the candidates behind it begin */
    struct {
        int32_t token;
        uint32_t node; /* of the tree */
        uint32_t row;  /* of the pass; LV_PRUNING_SHADOW */
        float a;       /* what the draft made of it */
        float share;   /* what the predictor makes of it; a, until it was asked */
        float features[LV_PREDICTOR_FEATURES];
    } candidates[LV_PRUNING_CANDIDATES_MAX];
    float west[LV_PRUNING_ROWS_MAX];
    bool scored;
} lv_pruning_view;

/* Of the root and the chosen nodes, whose rows stand in the tree. Candidates that do not fit are left out, none of them
 * in the pass. */
void lv_pruning_take(lv_pruning_view *view, const lv_tree *tree, const uint32_t *nodes, uint32_t count);

/* West of all rows from the candidates' shares. */
void lv_pruning_spread(lv_pruning_view *view);

/* Asks the predictor about the rows that may matter. `hidden` gives the hidden state of a row, `embedding` fills `row`
 * (the predictor's width) with a token's row of the embedding table. A failure leaves the view as it was taken. */
typedef struct {
    void *user;
    const float *(*hidden)(void *user, uint32_t row);
    lever_status (*embedding)(void *user, int32_t token, float *row, lever_error *error);
    float *rows; /* scratch: LV_PREDICTOR_CANDIDATES_MAX x width */
} lv_pruning_source;
lever_status lv_pruning_score(lv_pruning_view *view, lv_predictor *predictor, const lv_pruning_source *source,
                              lever_error *error);

/* For measurements: the shares of a predictor that knows what follows the root. */
void lv_pruning_know(lv_pruning_view *view, const int32_t *tokens, size_t tokens_count);

typedef struct {
    float before;        /* share of the layers in front of the predictor's */
    float cap;           /* share of the nodes that may go */
    bool forced;         /* for measurements: as many as may go, whether it pays or not */
    double rate;         /* tokens a second that the cycle was expected to give */
    double idle_seconds; /* in which the reader could fill the ring before the pass */
    lv_split split;
} lv_pruning;

/* The rows that go on, ascending, the root first. All of them when nothing is won. */
uint32_t lv_pruning_choose(const lv_pruning *pruning, const lv_pruning_view *view, const lv_costs *costs,
                           uint32_t keep[LV_PRUNING_ROWS_MAX]);

/* What the predictor found becomes what the tree holds likely: for drafting ahead and for the head. */
void lv_pruning_apply(const lv_pruning_view *view, lv_tree *tree);

/* Whether the predictor still keeps what it promised. A step is a token of the walk that stood in the pass: found, or
 * lost when its row had gone. After some hundred steps below the promise the cap is halved, in the end to nothing. */
typedef struct {
    float found, lost; /* fading counts */
    uint32_t level;    /* times that the cap was halved */
} lv_pruning_watch;

enum { LV_PRUNING_LEVELS = 3 };

float lv_pruning_cap(const lv_pruning_watch *watch, float cap);
/* True when the level rose just now. */
bool lv_pruning_watch_step(lv_pruning_watch *watch, uint32_t found, uint32_t lost, float promised);

#endif
