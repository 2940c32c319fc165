/* pruning.c - see pruning.h. */
#include "spec/pruning.h"

#include <assert.h>
#include <string.h>

/* Rows that the walk reaches less often than this are not worth asking for: what the draft made of them stands. */
static const float asked_least = 0.002f;

static const float share_least = 0.0005f, share_most = 0.9995f;

/* The promise was made on other texts: it is broken when this much is missing, seen over so many steps. */
static const float promise_slack = 0.02f;
enum { WATCH_STEPS_LEAST = 100, WATCH_STEPS_MOST = 400 };

/* --- The view ---------------------------------------------------------------------------------------------------- */

static void take_candidate(lv_pruning_view *view, const lv_tree *tree, uint32_t *count, uint32_t node) {
    const lv_node *one = &tree->nodes[node];
    const bool shadow = one->row == LV_TREE_NONE;
    if (!shadow) view->candidate_of[one->row] = *count;
    view->candidates[*count].token = one->token;
    view->candidates[*count].node = node;
    view->candidates[*count].row = shadow ? LV_PRUNING_SHADOW : one->row;
    view->candidates[*count].a = view->candidates[*count].share = one->drafted;
    lv_predictor_features(&one->feature, one->drafted, view->candidates[*count].features);
    (*count)++;
}

void lv_pruning_take(lv_pruning_view *view, const lv_tree *tree, const uint32_t *nodes, uint32_t count) {
    assert(count < LV_PRUNING_ROWS_MAX);
    view->rows_count = count + 1;
    view->parents[0] = view->candidate_of[0] = 0;
    view->scored = false;
    uint32_t candidates = 0, in_pass_left = count;
    for (uint32_t row = 0; row <= count; row++) {
        const uint32_t node = row == 0 ? LV_TREE_ROOT : nodes[row - 1];
        const lv_node *one = &tree->nodes[node];
        if (row > 0) view->parents[row] = one->parent == LV_TREE_ROOT ? 0 : tree->nodes[one->parent].row;
        view->depths[row] = one->feature.depth;
        view->candidates_first[row] = candidates;
        for (uint32_t c = one->first_child; c != LV_TREE_NONE; c = tree->nodes[c].next_sibling) {
            const bool in_pass = tree->nodes[c].row != LV_TREE_NONE;
            const uint32_t of_row = candidates - view->candidates_first[row];
            if (!in_pass &&
                (candidates + in_pass_left >= LV_PRUNING_CANDIDATES_MAX || of_row >= LV_PREDICTOR_CANDIDATES_MAX)) {
                continue;
            }
            in_pass_left -= in_pass;
            take_candidate(view, tree, &candidates, c);
        }
    }
    view->candidates_first[count + 1] = candidates;
    assert(in_pass_left == 0);
    lv_pruning_spread(view);
}

void lv_pruning_spread(lv_pruning_view *view) {
    view->west[0] = 1;
    for (uint32_t row = 1; row < view->rows_count; row++) {
        view->west[row] = view->west[view->parents[row]] * view->candidates[view->candidate_of[row]].share;
    }
}

/* --- Scores ------------------------------------------------------------------------------------------------------ */

static lever_status score_row(lv_pruning_view *view, uint32_t row, lv_predictor *predictor,
                              const lv_pruning_source *source, lever_error *error) {
    lv_predictor_candidate asked[LV_PREDICTOR_CANDIDATES_MAX];
    float shares[LV_PREDICTOR_CANDIDATES_MAX], other;
    const size_t width = predictor->shape.width;
    const uint32_t first = view->candidates_first[row];
    uint32_t count = view->candidates_first[row + 1] - first;
    if (count > LV_PREDICTOR_CANDIDATES_MAX) count = LV_PREDICTOR_CANDIDATES_MAX;
    if (count == 0) return LEVER_OK;
    for (uint32_t c = 0; c < count; c++) {
        memcpy(asked[c].features, view->candidates[first + c].features, sizeof(asked[c].features));
        LV_TRY(source->embedding(source->user, view->candidates[first + c].token, source->rows + c * width, error));
        asked[c].row = source->rows + c * width;
        asked[c].token = view->candidates[first + c].token;
    }
    lv_predictor_score(predictor, source->hidden(source->user, row), asked, count, shares, &other);
    for (uint32_t c = 0; c < count; c++) {
        const float share = shares[c] > share_least ? shares[c] : share_least;
        view->candidates[first + c].share = share < share_most ? share : share_most;
    }
    return LEVER_OK;
}

lever_status lv_pruning_score(lv_pruning_view *view, lv_predictor *predictor, const lv_pruning_source *source,
                              lever_error *error) {
    lever_status status = LEVER_OK;
    for (uint32_t row = 0; row < view->rows_count && status == LEVER_OK; row++) {
        if (row > 0) {
            view->west[row] = view->west[view->parents[row]] * view->candidates[view->candidate_of[row]].share;
        }
        if (view->west[row] >= asked_least) status = score_row(view, row, predictor, source, error);
    }
    if (status != LEVER_OK) {
        for (uint32_t c = 0; c < view->candidates_first[view->rows_count]; c++) {
            view->candidates[c].share = view->candidates[c].a;
        }
    }
    view->scored = status == LEVER_OK;
    lv_pruning_spread(view);
    return status;
}

void lv_pruning_know(lv_pruning_view *view, const int32_t *tokens, size_t tokens_count) {
    bool on_path[LV_PRUNING_ROWS_MAX] = {true};
    for (uint32_t row = 0; row < view->rows_count; row++) {
        const size_t depth = view->depths[row];
        if (row > 0) {
            const int32_t token = view->candidates[view->candidate_of[row]].token;
            on_path[row] = on_path[view->parents[row]] && depth <= tokens_count && tokens[depth - 1] == token;
        }
        for (uint32_t c = view->candidates_first[row]; c < view->candidates_first[row + 1]; c++) {
            const bool follows = on_path[row] && depth < tokens_count && tokens[depth] == view->candidates[c].token;
            view->candidates[c].share = follows ? share_most : share_least;
        }
    }
    view->scored = true;
    lv_pruning_spread(view);
}

void lv_pruning_apply(const lv_pruning_view *view, lv_tree *tree) {
    if (!view->scored) return;
    for (uint32_t c = 0; c < view->candidates_first[view->rows_count]; c++) {
        tree->nodes[view->candidates[c].node].a = view->candidates[c].share;
    }
    for (uint32_t i = 1; i < tree->nodes_count; i++) {
        tree->nodes[i].w = tree->nodes[tree->nodes[i].parent].w * tree->nodes[i].a;
    }
}

/* --- The choice -------------------------------------------------------------------------------------------------- */

/* What the rest of the pass takes with so many rows: the layers that are left of computing, or of reading. */
static double rest_seconds(const lv_pruning *p, const lv_costs *costs, uint32_t rows) {
    return (1 - (double)p->before) * lv_costs_pass(costs, p->split, rows, p->idle_seconds);
}

static bool goes_before(const lv_pruning_view *view, const bool *backbone, uint32_t a, uint32_t b) {
    if (backbone[a] != backbone[b]) return backbone[a];
    if (view->west[a] != view->west[b]) return view->west[a] > view->west[b];
    return a < b; /* so that a parent comes first */
}

/* The root, and below it the likeliest row of each level, as long as there is one. */
static uint32_t mark_backbone(const lv_pruning_view *view, bool *backbone) {
    uint32_t count = 1;
    backbone[0] = true;
    for (uint32_t at = 0;;) {
        uint32_t best = LV_PRUNING_SHADOW;
        for (uint32_t c = view->candidates_first[at]; c < view->candidates_first[at + 1]; c++) {
            const uint32_t row = view->candidates[c].row;
            if (row == LV_PRUNING_SHADOW) continue;
            if (best == LV_PRUNING_SHADOW || view->west[row] > view->west[best]) best = row;
        }
        if (best == LV_PRUNING_SHADOW) return count;
        backbone[best] = true;
        count++;
        at = best;
    }
}

static void sort_rows(const lv_pruning_view *view, const bool *backbone, uint32_t *order) {
    for (uint32_t i = 0; i < view->rows_count; i++) {
        uint32_t at = i;
        for (; at > 0 && goes_before(view, backbone, i, order[at - 1]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

uint32_t lv_pruning_choose(const lv_pruning *p, const lv_pruning_view *view, const lv_costs *costs,
                           uint32_t keep[LV_PRUNING_ROWS_MAX]) {
    bool backbone[LV_PRUNING_ROWS_MAX] = {false}, stays[LV_PRUNING_ROWS_MAX] = {false};
    uint32_t order[LV_PRUNING_ROWS_MAX];
    const uint32_t rows = view->rows_count;
    const uint32_t may_go = (uint32_t)((double)p->cap * (double)(rows - 1) + 1e-6);
    uint32_t least = mark_backbone(view, backbone), kept = rows, count = 0;
    if (least < rows - may_go) least = rows - may_go;
    sort_rows(view, backbone, order);
    double lost = 0, best = 0; /* against all rows going on */
    const double all_seconds = rest_seconds(p, costs, rows);
    for (uint32_t n = rows; n-- > least;) {
        lost += (double)view->west[order[n]];
        const double won = p->rate * (all_seconds - rest_seconds(p, costs, n)) - lost;
        if (won > best || p->forced) {
            best = won;
            kept = n;
        }
    }
    for (uint32_t i = 0; i < kept; i++) stays[order[i]] = true;
    for (uint32_t row = 0; row < rows; row++) {
        if (stays[row]) keep[count++] = row;
    }
    return count;
}

/* --- The watch --------------------------------------------------------------------------------------------------- */

float lv_pruning_cap(const lv_pruning_watch *watch, float cap) {
    if (watch->level >= LV_PRUNING_LEVELS) return 0;
    return cap / (float)(1u << watch->level);
}

bool lv_pruning_watch_step(lv_pruning_watch *watch, uint32_t found, uint32_t lost, float promised) {
    watch->found += (float)found;
    watch->lost += (float)lost;
    const float steps = watch->found + watch->lost;
    if (watch->level >= LV_PRUNING_LEVELS || steps < WATCH_STEPS_LEAST) return false;
    const bool broken = watch->found < (promised - promise_slack) * steps;
    if (broken) {
        watch->level++;
        watch->found = watch->lost = 0;
    } else if (steps > WATCH_STEPS_MOST) {
        watch->found /= 2;
        watch->lost /= 2;
    }
    return broken;
}
