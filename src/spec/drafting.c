/* drafting.c - the ranked list of the tree's nodes is all that the LEVER policy needs: its prefix sums are the gain of
 * every size of tree, and a forward that is not made yet is judged by merging the children that it would bring.
 *
 * For every size the whole rate is computed, not the difference to the size before: costs are staircases, and a group
 * of nodes up to the next step can pay where its first node does not. What was drafted is sunk only within the cycle:
 * it is part of T for every size alike. */
#include "spec/drafting.h"

#include <assert.h>
#include <string.h>

enum {
    CHAIN_LENGTH_DEFAULT = 12,
    EDGE_CHILDREN_MAX = 4,
    EDGE_NODES_MAX = 32, /* more take one thread longer than reading takes, on the machine it was tuned on */
    MERGED_MAX = LV_DRAFTING_NODES_MAX + LV_DRAFTING_WIDTH_MAX * LV_TREE_CHILDREN_MAX,
};

static const float edge_reach = 0.9f, edge_theta_first = 0.1f, edge_theta_least = 0.01f, edge_theta_most = 0.9f;

/* Below this a node is not worth looking at: an expansion costs as much as some hundredth of a pass. */
static const float w_least = 0.002f;

/* A forward must promise this much more: predictions are noisy, and time spent is certain. */
static const double gain_least = 1.002;

/* A tree of a fixed size: a forward is made while it promises this much more, over at most so many nodes. */
#define FIXED_GAIN_LEAST 1.01
enum { FIXED_WIDTH_MAX = 4 };

void lv_drafting_init(lv_drafting *drafting, lever_strategy strategy) {
    *drafting = (lv_drafting){
        .strategy = strategy,
        .children = LV_TREE_CHILDREN_MAX,
        .nodes_max = LV_DRAFTING_NODES_MAX,
        .head_rows_max = LV_HEAD_ROWS_MAX,
        .depth_max = LV_TREE_DEPTH_MAX,
        .width_max = 8,
        .chain_length = CHAIN_LENGTH_DEFAULT,
        .theta = edge_theta_first,
        .prune_kept = 1,
    };
}

/* --- Gain and cost ----------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t nodes_count;
    double tokens, seconds, score;
} best_size;

/* Logits of as many rows, in as few calls as may be; more than LV_HEAD_ROWS_MAX of them cost no more. */
static double head_seconds_of(const lv_drafting *d, const lv_drafting_view *view, double tokens) {
    const uint32_t rows = tokens < LV_HEAD_ROWS_MAX ? (uint32_t)(tokens + 0.999) : LV_HEAD_ROWS_MAX;
    const uint32_t calls = rows / d->head_rows_max;
    return calls * lv_cost_curve_at(&view->costs->head, d->head_rows_max) +
           lv_cost_curve_at(&view->costs->head, rows % d->head_rows_max);
}

static double seconds_of(const lv_drafting *d, const lv_drafting_view *view, double drafted, uint32_t nodes_count,
                         double tokens) {
    const double head = head_seconds_of(d, view, tokens);
    const uint32_t kept = d->prune_before > 0 ? (uint32_t)(d->prune_kept * nodes_count + 0.5) : nodes_count;
    return drafted + head +
           lv_costs_pruned_pass(view->costs, view->split, nodes_count + 1, kept + 1, d->prune_before, drafted + head);
}

/* The long-run rule, once there is a rate: scores are then differences, not rates. */
static bool follows_rate(const lv_drafting *d) {
    return d->stop_rule == LEVER_STOP_LONGRUN && d->rate > 0;
}

static double score_of(const lv_drafting *d, double tokens, double seconds) {
    if (follows_rate(d)) return tokens - d->rate * seconds;
    return tokens / seconds;
}

/* The best size of a tree over the weights, which fall. */
static best_size best_of(const lv_drafting *d, const lv_drafting_view *view, const float *weights, uint32_t count,
                         double drafted) {
    best_size best = {.tokens = 1};
    best.seconds = seconds_of(d, view, drafted, 0, 1);
    best.score = score_of(d, 1, best.seconds);
    double tokens = 1;
    for (uint32_t n = 1; n <= count && n <= d->nodes_max; n++) {
        tokens += (double)weights[n - 1];
        if (d->nodes_fixed > 0 && n < d->nodes_fixed && n < count) continue;
        const double seconds = seconds_of(d, view, drafted, n, tokens);
        const double score = score_of(d, tokens, seconds);
        if (score > best.score || d->nodes_fixed > 0) best = (best_size){n, tokens, seconds, score};
        if (d->nodes_fixed > 0 && n >= d->nodes_fixed) break;
    }
    return best;
}

static uint32_t take_weights(const lv_tree *tree, const uint32_t *ranked, uint32_t ranked_count, uint32_t most,
                             float *weights) {
    uint32_t count = 0;
    while (count < ranked_count && count < most) {
        weights[count] = tree->nodes[ranked[count]].w;
        count++;
    }
    return count;
}

/* Inserts a weight into a falling list of at most `most`. */
static uint32_t merge_weight(float *weights, uint32_t count, uint32_t most, float weight) {
    if (count == most) {
        if (weights[count - 1] >= weight) return count;
        count--;
    }
    uint32_t at = count;
    while (at > 0 && weights[at - 1] < weight) {
        weights[at] = weights[at - 1];
        at--;
    }
    weights[at] = weight;
    return count + 1;
}

/* Unexpanded nodes, the best first, parents before children; the root comes first when it is one. */
static uint32_t find_frontier(const lv_drafting *d, const lv_tree *tree, const uint32_t *ranked, uint32_t ranked_count,
                              uint32_t most, uint32_t *nodes) {
    uint32_t count = 0;
    if (!tree->nodes[LV_TREE_ROOT].expanded) nodes[count++] = LV_TREE_ROOT;
    for (uint32_t i = 0; i < ranked_count && count < most; i++) {
        const lv_node *node = &tree->nodes[ranked[i]];
        if (node->w < w_least) break;
        if (node->expanded || node->feature.depth >= d->depth_max) continue;
        nodes[count++] = ranked[i];
    }
    return count;
}

/* --- LEVER ------------------------------------------------------------------------------------------------------- */

static const uint32_t widths[] = {1, 2, 3, 4, 6, 8, 12, 16};
enum { WIDTHS_COUNT = sizeof(widths) / sizeof(widths[0]) };

static uint32_t next_by_gain(const lv_drafting *d, const lv_drafting_view *view, uint32_t *nodes) {
    lv_tree *tree = view->tree;
    uint32_t ranked_count;
    const uint32_t *ranked = lv_tree_ranked(tree, d->depth_max, &ranked_count);
    float weights[MERGED_MAX], merged[MERGED_MAX];
    const uint32_t count = take_weights(tree, ranked, ranked_count, d->nodes_max, weights);
    const uint32_t frontier = find_frontier(d, tree, ranked, ranked_count, d->width_max, nodes);
    const best_size now = best_of(d, view, weights, count, view->drafted_seconds);
    const bool fixed = d->nodes_fixed > 0;
    double best_score = now.score;
    uint32_t best_width = 0, merged_count = count, taken = 0;
    memcpy(merged, weights, count * sizeof(*weights));
    for (uint32_t i = 0; i < WIDTHS_COUNT && widths[i] <= frontier; i++) {
        for (; taken < widths[i]; taken++) {
            const float w = tree->nodes[nodes[taken]].w;
            for (uint8_t rank = 0; rank < d->children; rank++) {
                const float child = w * lv_calibration_rank_share(view->calibration, rank);
                merged_count = merge_weight(merged, merged_count, d->nodes_max, child);
            }
        }
        const double drafted =
            view->drafted_seconds + lv_cost_curve_at(&view->costs->draft[view->draft_split], widths[i]);
        const best_size then = best_of(d, view, merged, merged_count, drafted);
        const double least = best_width == 0 && !follows_rate(d) ? best_score * gain_least : best_score;
        const bool better =
            fixed ? then.tokens > now.tokens * FIXED_GAIN_LEAST && best_width < FIXED_WIDTH_MAX : then.score > least;
        if (better) {
            best_score = then.score;
            best_width = widths[i];
        }
    }
    return best_width;
}

/* --- CHAIN ------------------------------------------------------------------------------------------------------- */

/* The end of the likeliest path, at most `depth_most` deep, or its first node that is not expanded. */
static uint32_t best_path_end(const lv_tree *tree, uint32_t node, uint32_t depth_most) {
    while (tree->nodes[node].feature.depth < depth_most && tree->nodes[node].expanded) {
        const uint32_t child = lv_tree_best_child(tree, node, false);
        if (child == LV_TREE_NONE) break;
        node = child;
    }
    return node;
}

static uint32_t chain_depth(const lv_drafting *d) {
    uint32_t depth = d->chain_length < d->nodes_max ? d->chain_length : d->nodes_max;
    return depth < d->depth_max ? depth : d->depth_max;
}

static uint32_t next_of_chain(const lv_drafting *d, const lv_drafting_view *view, uint32_t *nodes) {
    const uint32_t depth = chain_depth(d);
    const uint32_t end = best_path_end(view->tree, LV_TREE_ROOT, depth);
    const lv_node *node = &view->tree->nodes[end];
    if (node->feature.depth >= depth || node->expanded) return 0;
    nodes[0] = end;
    return 1;
}

static void choose_chain(const lv_drafting *d, const lv_drafting_view *view, lv_drafting_choice *choice) {
    uint32_t path[LV_TREE_DEPTH_MAX];
    const uint32_t end = best_path_end(view->tree, LV_TREE_ROOT, chain_depth(d));
    choice->nodes_count = lv_tree_path(view->tree, end, path);
    memcpy(choice->nodes, path, choice->nodes_count * sizeof(*path));
}

/* --- EDGE -------------------------------------------------------------------------------------------------------- */

static uint32_t edge_nodes_max(const lv_drafting *d) {
    return d->nodes_max < EDGE_NODES_MAX ? d->nodes_max : EDGE_NODES_MAX;
}

/* Whether a child is among the fewest whose probabilities reach the mark. */
static bool edge_takes(const lv_tree *tree, uint32_t node) {
    const lv_node *one = &tree->nodes[node];
    float sum = 0;
    uint32_t before = 0;
    for (uint32_t c = tree->nodes[one->parent].first_child; c != LV_TREE_NONE; c = tree->nodes[c].next_sibling) {
        if (c == node) continue;
        const lv_node *other = &tree->nodes[c];
        if (other->feature.estimate > one->feature.estimate ||
            (other->feature.estimate == one->feature.estimate && c < node)) {
            sum += other->feature.estimate;
            before++;
        }
    }
    return before < EDGE_CHILDREN_MAX && sum < edge_reach;
}

/* The tree of the policy within the tree of all candidates: parents come first, so one sweep does. */
static uint32_t edge_members(const lv_drafting *d, const lv_tree *tree, bool members[LV_TREE_NODES_MAX]) {
    uint32_t count = 0;
    members[LV_TREE_ROOT] = true;
    for (uint32_t i = 1; i < tree->nodes_count; i++) {
        const lv_node *node = &tree->nodes[i];
        members[i] = members[node->parent] && node->feature.depth <= d->depth_max && edge_takes(tree, i);
        count += members[i];
    }
    return count;
}

static uint32_t next_of_edge(const lv_drafting *d, const lv_drafting_view *view, uint32_t *nodes) {
    bool members[LV_TREE_NODES_MAX];
    lv_tree *tree = view->tree;
    const uint32_t members_count = edge_members(d, tree, members);
    if (members_count >= edge_nodes_max(d)) return 0;
    if (!tree->nodes[LV_TREE_ROOT].expanded) {
        nodes[0] = LV_TREE_ROOT;
        return 1;
    }
    /* The next level is that of the members that are not expanded; their best path decides. */
    uint32_t ranked_count, count = 0;
    const uint32_t *ranked = lv_tree_ranked(tree, d->depth_max, &ranked_count);
    for (uint32_t i = 0; i < ranked_count && count < d->width_max; i++) {
        const lv_node *node = &tree->nodes[ranked[i]];
        if (!members[ranked[i]] || node->expanded || node->feature.depth >= d->depth_max) continue;
        if (count == 0 && node->w < d->theta) return 0;
        if (node->w < edge_theta_least) break;
        nodes[count++] = ranked[i];
    }
    return count;
}

static void choose_edge(const lv_drafting *d, const lv_drafting_view *view, lv_drafting_choice *choice) {
    bool members[LV_TREE_NODES_MAX];
    lv_tree *tree = view->tree;
    edge_members(d, tree, members);
    uint32_t ranked_count;
    const uint32_t *ranked = lv_tree_ranked(tree, d->depth_max, &ranked_count);
    for (uint32_t i = 0; i < ranked_count && choice->nodes_count < edge_nodes_max(d); i++) {
        if (members[ranked[i]]) choice->nodes[choice->nodes_count++] = ranked[i];
    }
}

/* The likeliest leaf of the pass, and from there the likeliest path. */
static uint32_t ahead_of_edge(const lv_drafting *d, const lv_drafting_view *view, uint32_t *nodes) {
    const lv_tree *tree = view->tree;
    uint32_t leaf = LV_TREE_ROOT;
    for (uint32_t child = LV_TREE_ROOT; child != LV_TREE_NONE; child = lv_tree_best_child(tree, leaf, true))
        leaf = child;
    const uint32_t end = best_path_end(tree, leaf, d->depth_max);
    if (tree->nodes[end].expanded || tree->nodes[end].feature.depth >= d->depth_max) return 0;
    nodes[0] = end;
    return 1;
}

/* --- For all ----------------------------------------------------------------------------------------------------- */

uint32_t lv_drafting_next(const lv_drafting *d, const lv_drafting_view *view, uint32_t nodes[LV_DRAFTING_WIDTH_MAX]) {
    if (d->depth_max == 0 || d->nodes_max == 0) return 0;
    switch (d->strategy) {
    case LEVER_STRATEGY_LEVER:
        return next_by_gain(d, view, nodes);
    case LEVER_STRATEGY_CHAIN:
        return next_of_chain(d, view, nodes);
    case LEVER_STRATEGY_EDGE:
        return next_of_edge(d, view, nodes);
    case LEVER_STRATEGY_AR:
        break;
    }
    return 0;
}

uint32_t lv_drafting_fit(const lv_drafting *d, const lv_drafting_view *view, const float *weights, uint32_t count) {
    if (view->costs->buckets.count == 0) return count;
    double tokens = 1;
    for (uint32_t i = 0; i < count; i++) tokens += (double)weights[i];
    uint32_t best = count;
    double best_rate = tokens / seconds_of(d, view, view->drafted_seconds, count, tokens);
    /* Rows are the nodes and the root. */
    for (uint32_t at = count, below = count + 1; (below = lv_buckets_below(&view->costs->buckets, below)) > 0;) {
        while (at > below - 1) tokens -= (double)weights[--at];
        const double rate = tokens / seconds_of(d, view, view->drafted_seconds, at, tokens);
        if (rate > best_rate) {
            best_rate = rate;
            best = at;
        }
    }
    return best;
}

/* The policies that do not look at costs: their list, the best first, is cut where a smaller bucket pays. */
static void fit_choice(const lv_drafting *d, const lv_drafting_view *view, lv_drafting_choice *choice) {
    if (view->costs->buckets.count == 0) return;
    float weights[LV_DRAFTING_NODES_MAX];
    for (uint32_t i = 0; i < choice->nodes_count; i++) weights[i] = view->tree->nodes[choice->nodes[i]].w;
    choice->nodes_count = lv_drafting_fit(d, view, weights, choice->nodes_count);
}

static void sort_ascending(uint32_t *nodes, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        const uint32_t moving = nodes[i];
        uint32_t at = i;
        for (; at > 0 && nodes[at - 1] > moving; at--) nodes[at] = nodes[at - 1];
        nodes[at] = moving;
    }
}

void lv_drafting_choose(const lv_drafting *d, const lv_drafting_view *view, lv_drafting_choice *choice) {
    choice->nodes_count = 0;
    if (d->depth_max > 0 && d->strategy == LEVER_STRATEGY_LEVER) {
        uint32_t ranked_count;
        const uint32_t *ranked = lv_tree_ranked(view->tree, d->depth_max, &ranked_count);
        float weights[LV_DRAFTING_NODES_MAX];
        const uint32_t count = take_weights(view->tree, ranked, ranked_count, d->nodes_max, weights);
        choice->nodes_count = best_of(d, view, weights, count, view->drafted_seconds).nodes_count;
        memcpy(choice->nodes, ranked, choice->nodes_count * sizeof(*ranked));
    } else if (d->depth_max > 0 && d->strategy == LEVER_STRATEGY_CHAIN) {
        choose_chain(d, view, choice);
        fit_choice(d, view, choice);
    } else if (d->depth_max > 0 && d->strategy == LEVER_STRATEGY_EDGE) {
        choose_edge(d, view, choice);
        fit_choice(d, view, choice);
    }
    sort_ascending(choice->nodes, choice->nodes_count);
    choice->tokens = 1;
    for (uint32_t i = 0; i < choice->nodes_count; i++) {
        choice->tokens += (double)view->tree->nodes[choice->nodes[i]].w;
    }
    choice->seconds = seconds_of(d, view, view->drafted_seconds, choice->nodes_count, choice->tokens);
}

uint32_t lv_drafting_next_ahead(const lv_drafting *d, const lv_drafting_view *view,
                                uint32_t nodes[LV_DRAFTING_WIDTH_MAX]) {
    if (d->strategy == LEVER_STRATEGY_EDGE) return ahead_of_edge(d, view, nodes);
    if (d->strategy != LEVER_STRATEGY_LEVER || d->depth_max == 0) return 0;
    uint32_t ranked_count;
    const uint32_t *ranked = lv_tree_ranked(view->tree, d->depth_max, &ranked_count);
    const uint32_t frontier = find_frontier(d, view->tree, ranked, ranked_count, d->width_max, nodes);
    uint32_t best_width = 0, taken = 0;
    double mass = 0, best_rate = 0;
    for (uint32_t i = 0; i < WIDTHS_COUNT && widths[i] <= frontier; i++) {
        for (; taken < widths[i]; taken++) mass += (double)view->tree->nodes[nodes[taken]].w;
        const double rate = mass / lv_cost_curve_at(&view->costs->draft[LV_SPLIT_ONE], widths[i]);
        if (rate > best_rate) {
            best_rate = rate;
            best_width = widths[i];
        }
    }
    return best_width;
}

void lv_drafting_learn(lv_drafting *d, uint32_t tokens, double seconds, bool whole) {
    d->theta = whole ? d->theta / 2 : d->theta * 2;
    if (d->theta < edge_theta_least) d->theta = edge_theta_least;
    if (d->theta > edge_theta_most) d->theta = edge_theta_most;
    if (seconds <= 0) return;
    const double rate = (double)tokens / seconds;
    d->rate = d->rate > 0 ? 0.9 * d->rate + 0.1 * rate : rate;
}
