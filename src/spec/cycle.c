/* cycle.c - see design: the life of a cycle. */
#include "spec/cycle.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "spec/lookup.h"

enum { LOOKUP_NODES_MAX = 24, REJECTED_NODES_MAX = 8, RETRY_CYCLES = 32, PROBE_CYCLES = 24, TRY_ROWS = 8 };

static const float rejected_estimate = 0.15f;
/* Not even tried: a pass of a few nodes takes so much longer with one thread. */
#define HOPELESS 1.3
/* Drafting ahead that is expected to be better by more than this is not asked again. */
#define NEAR 1.2

/* A cycle that took longer by more than this factor, or less, was not what its costs are of. */
#define KNOWN_TIME 2.0

/* The predictor is asked when pruning could win this share of a cycle. */
#define WIN_LEAST 0.03

static const double mean_share = 0.1; /* of the newest value in a running mean */

lever_status lv_cycle_open(lv_cycle *cycle, lv_ledger *ledger, lever_error *error) {
    memset(cycle, 0, sizeof(*cycle));
    lv_calibration_init(&cycle->calibration);
    lv_drafting_init(&cycle->drafting, LEVER_STRATEGY_LEVER);
    return lv_tree_open(&cycle->tree, ledger, error);
}

void lv_cycle_close(lv_cycle *cycle) {
    lv_tree_close(&cycle->tree);
}

/* The other policies are kept as they are described. */
static bool looks_up(const lv_cycle *cycle) {
    return cycle->lookup && cycle->drafting.strategy == LEVER_STRATEGY_LEVER;
}

/* --- Free candidates --------------------------------------------------------------------------------------------- */

static uint32_t add_free(lv_cycle *cycle, uint32_t parent, int32_t token, lv_source source, float estimate) {
    const lv_feature feature = {
        .source = source,
        .depth = (uint16_t)(cycle->tree.nodes[parent].feature.depth + 1),
        .estimate = estimate,
        .margin = estimate,
    };
    return lv_tree_add(&cycle->tree, parent, token, &feature, lv_calibration_apply(&cycle->calibration, &feature));
}

/* A chain below the root: what followed when the text ended like this before. */
static void add_looked_up(lv_cycle *cycle, const int32_t *text, size_t text_count) {
    const lv_lookup_match match = lv_lookup_find(text, text_count);
    uint32_t node = LV_TREE_ROOT;
    for (size_t i = 0; i < match.count && i < LOOKUP_NODES_MAX && match.match_length > 0; i++) {
        const float estimate = lv_lookup_estimate(match.match_length + (uint32_t)i);
        node = add_free(cycle, node, text[match.begin + i], LV_SOURCE_LOOKUP, estimate);
        if (node == LV_TREE_NONE) return;
    }
}

/* --- Who computes ------------------------------------------------------------------------------------------------ */

static bool can_draft_ahead(const lv_cycle *cycle, const lv_drafter *drafter) {
    const lever_strategy strategy = cycle->drafting.strategy;
    if (!cycle->ahead || !drafter || !drafter->ahead_begin || cycle->drafting.depth_max == 0) return false;
    if (strategy == LEVER_STRATEGY_EDGE) return true;
    if (strategy != LEVER_STRATEGY_LEVER) return false;
    if (cycle->costs.ahead.is_due[1]) return true;
    const double one = lv_costs_pass(&cycle->costs, LV_SPLIT_ONE, TRY_ROWS, 0);
    const double all = lv_costs_pass(&cycle->costs, LV_SPLIT_ALL, TRY_ROWS, 0);
    return one <= all * HOPELESS;
}

/* How much there was left to draft behind the cycle before, when it was one of the same text. */
static void learn_drafted(lv_cycle *cycle, size_t text_count, double seconds) {
    if (cycle->last.text_count == text_count && cycle->drafting.strategy == LEVER_STRATEGY_LEVER) {
        const double steps = seconds / lv_costs_draft_step(&cycle->costs);
        lv_ahead_learn(&cycle->costs.ahead, cycle->last.level, cycle->last.ahead, steps);
    }
}

static void keep_last(lv_cycle *cycle, size_t text_count, const lv_cycle_result *result, double seconds) {
    cycle->last.text_count = text_count + result->path_count + 1;
    cycle->last.level = lv_ahead_level(cycle->tokens_recent);
    cycle->last.ahead = result->ahead;
    const double tokens = result->path_count + 1;
    /* The other policies choose without an eye on what is expected of them. A machine that has become another one,
     * which the costs do not know yet, says nothing of the way. */
    const double time = seconds / result->choice.seconds;
    const bool is_known = time <= KNOWN_TIME && time >= 1 / KNOWN_TIME;
    if (cycle->drafting.strategy == LEVER_STRATEGY_LEVER && is_known) {
        lv_ahead_keep(&cycle->costs.ahead, result->ahead, tokens / result->choice.tokens / time);
    }
    cycle->tokens_recent = cycle->tokens_recent > 0 ? (cycle->tokens_recent + tokens) / 2 : tokens;
}

/* --- Drafting ---------------------------------------------------------------------------------------------------- */

/* Now and then all threads are tried again. */
static lv_split draft_split(const lv_cycle *cycle, bool first) {
    if (first && !cycle->costs.frozen && cycle->cycles_count % RETRY_CYCLES == 0) return LV_SPLIT_ALL;
    return lv_costs_draft_split(&cycle->costs);
}

/* When drafting seemed too dear for some time, it is measured again: what was learned on a busy machine would else hold
 * for ever. */
static bool is_probe_due(const lv_cycle *cycle) {
    return !cycle->costs.frozen && cycle->drafting.strategy == LEVER_STRATEGY_LEVER && cycle->drafting.depth_max > 0 &&
           !cycle->tree.nodes[LV_TREE_ROOT].expanded && cycle->cycles_count - cycle->drafted_cycle >= PROBE_CYCLES;
}

static lever_status draft(lv_cycle *cycle, const lv_drafter *drafter, lv_drafting_view *view, lv_cycle_result *result,
                          lever_error *error) {
    view->draft_split = draft_split(cycle, true);
    for (;;) {
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX], expanded = 0;
        uint32_t count = lv_drafting_next(&cycle->drafting, view, nodes);
        if (count == 0 && is_probe_due(cycle)) nodes[count++] = LV_TREE_ROOT;
        if (count == 0) return LEVER_OK;
        cycle->drafted_cycle = cycle->cycles_count;
        double seconds = 0;
        LV_TRY(
            drafter->expand(drafter->user, &cycle->tree, nodes, count, view->draft_split, &expanded, &seconds, error));
        if (expanded == 0) return LEVER_OK;
        result->expanded_count += expanded;
        result->forwards_count++;
        result->draft_seconds += seconds;
        /* What it should have taken: had the machine been busy, the time spent would ask for more drafting still. */
        view->drafted_seconds += lv_cost_curve_at(&cycle->costs.draft[view->draft_split], count);
        view->draft_split = draft_split(cycle, false);
    }
}

/* --- Ahead or not ------------------------------------------------------------------------------------------------ */

/* Both ways with the tree as it is, and the tokens a second that each is expected to keep. */
typedef struct {
    lv_drafting_choice one, all;
    double ahead, not_ahead;
} two_ways;

static void weigh_ways(const lv_cycle *cycle, const lv_drafting_view *view, uint32_t level, two_ways *ways) {
    const lv_ahead_record *record = &cycle->costs.ahead;
    lv_drafting_view with = *view;
    with.split = LV_SPLIT_ONE;
    lv_drafting_choose(&cycle->drafting, &with, &ways->one);
    with.split = LV_SPLIT_ALL;
    lv_drafting_choose(&cycle->drafting, &with, &ways->all);
    double saved = lv_ahead_saved(record, level) * lv_costs_draft_step(&cycle->costs);
    /* Where nothing is worth drafting in front of a pass, none can be saved. Beside one that takes no longer with a
     * thread less, since reading is what it waits for, the same nodes cost nothing. */
    const bool is_free = ways->one.seconds <= ways->all.seconds;
    if (view->drafted_seconds <= 0 && is_free) {
        saved = fmax(saved, lv_cost_curve_at(&cycle->costs.draft[view->draft_split], 1));
    }
    const double rest = ways->one.seconds - fmin(saved, ways->one.seconds / 2);
    ways->ahead = lv_ahead_rate(record, true, ways->one.tokens / rest);
    ways->not_ahead = lv_ahead_rate(record, false, ways->all.tokens / ways->all.seconds);
}

/* The pass with all threads against one with a thread less and a part of the next drafting done. A tree that was grown
 * for one thread is too small for all of them: where the ways are near, it grows on before they are compared. */
static lever_status choose_way(lv_cycle *cycle, const lv_drafter *drafter, lv_drafting_view *view,
                               lv_cycle_result *result, lever_error *error) {
    const uint32_t level = lv_ahead_level(cycle->tokens_recent);
    const bool grown_for_one = view->split == LV_SPLIT_ONE;
    two_ways ways;
    weigh_ways(cycle, view, level, &ways);
    if (grown_for_one && ways.ahead < ways.not_ahead * NEAR) {
        view->split = LV_SPLIT_ALL;
        LV_TRY(draft(cycle, drafter, view, result, error));
        weigh_ways(cycle, view, level, &ways);
    }
    bool better = ways.ahead >= ways.not_ahead;
    /* A way that took another time than was known is asked again, until it is known what it takes now. */
    const lv_split last = cycle->last.ahead ? LV_SPLIT_ONE : LV_SPLIT_ALL;
    if (!cycle->costs.frozen && cycle->costs.layers[last].surprise.count > 0) better = cycle->last.ahead;
    result->ahead = lv_ahead_choose(&cycle->costs.ahead, level, better);
    view->split = result->ahead ? LV_SPLIT_ONE : LV_SPLIT_ALL;
    result->choice = result->ahead ? ways.one : ways.all;
    return LEVER_OK;
}

/* --- Pruning ----------------------------------------------------------------------------------------------------- */

typedef struct {
    lv_cycle *cycle;
    const lv_drafter *drafter; /* that drafts ahead; NULL: none does */
    lv_pruning policy;
    size_t text_count;
} prune_job;

static bool is_pruning_wanted(const lv_cycle *cycle, const lv_drafter *drafter, const lv_drafting_choice *choice) {
    const lv_cycle_pruning *p = &cycle->pruning;
    return p->predictor && drafter && cycle->drafting.strategy == LEVER_STRATEGY_LEVER && choice->nodes_count > 0;
}

/* Asking takes time as well, a tenth of a cycle where one thread computes: it is only worth it where enough can be won.
 * The draft hears of scores then, but is no reason to ask: it drafts ahead no better for them (docs/SPEED.md). */
static bool may_pay(const lv_cycle *cycle, const lv_pruning *policy, const lv_drafting_choice *choice) {
    const lv_cycle_pruning *p = &cycle->pruning;
    /* Where none may go by what was asked for, steering the draft is all that is wanted. */
    if (policy->forced || p->known || p->learning || p->cap <= 0) return true;
    const uint32_t all = choice->nodes_count + 1;
    const uint32_t least = all - (uint32_t)(policy->cap * (float)choice->nodes_count);
    const double before = (double)policy->before;
    const double now = lv_costs_pass(&cycle->costs, policy->split, all, policy->idle_seconds);
    const double then = lv_costs_pruned_pass(&cycle->costs, policy->split, all, least, before, policy->idle_seconds);
    return now - then > WIN_LEAST * choice->seconds;
}

static float before_share(const lv_predictor *predictor) {
    return (float)predictor->shape.layer / (float)predictor->shape.layers_count;
}

/* A predictor that was refined is watched anew. Where nothing may go, trees are not sized as if it did. */
static void begin_pruning(lv_cycle *cycle) {
    lv_cycle_pruning *p = &cycle->pruning;
    const uint32_t version = p->predictor ? atomic_load(&p->predictor->version) : p->version;
    if (version != p->version) {
        p->watch = (lv_pruning_watch){0};
        p->version = version;
    }
    if (lv_pruning_cap(&p->watch, p->cap) <= 0) cycle->drafting.prune_kept = 1;
}

static void learn_kept(lv_cycle *cycle, double share) {
    cycle->drafting.prune_kept = (1 - mean_share) * cycle->drafting.prune_kept + mean_share * share;
}

/* In the middle of the pass, on its thread. */
static lever_status prune(void *user, const lv_pruning_source *source, uint32_t keep[LV_PRUNING_ROWS_MAX],
                          uint32_t *keep_count, lever_error *error) {
    const prune_job *job = user;
    lv_cycle_pruning *p = &job->cycle->pruning;
    if (p->known) {
        const size_t done = job->text_count - p->known_first;
        const bool inside = done < p->known_count;
        lv_pruning_know(&p->view, inside ? p->known + done : p->known, inside ? p->known_count - done : 0);
    } else {
        LV_TRY(lv_pruning_score(&p->view, p->predictor, source, error));
    }
    p->scored = true;
    if (p->learning) lv_learning_keep(p->learning, &p->view, source);
    if (job->drafter) job->drafter->scored(job->drafter->user, &p->view);
    p->keep_count = lv_pruning_choose(&job->policy, &p->view, &job->cycle->costs, p->keep);
    memcpy(keep, p->keep, p->keep_count * sizeof(*keep));
    *keep_count = p->keep_count;
    return LEVER_OK;
}

/* The pass is over and nobody drafts any more: the tree hears what was seen and which rows went. */
static void take_pruning(lv_cycle *cycle, const lv_drafting_choice *choice, lv_cycle_result *result) {
    lv_cycle_pruning *p = &cycle->pruning;
    if (!p->scored) {
        learn_kept(cycle, 1);
        return;
    }
    lv_pruning_apply(&p->view, &cycle->tree);
    uint32_t kept = 1;
    for (uint32_t row = 1; row <= choice->nodes_count; row++) {
        if (kept < p->keep_count && p->keep[kept] == row) {
            kept++;
            continue;
        }
        cycle->tree.nodes[choice->nodes[row - 1]].row = LV_TREE_NONE;
        cycle->tree.nodes[choice->nodes[row - 1]].pruned = true;
        result->pruned_count++;
    }
    result->scored = true;
    learn_kept(cycle, 1 - (double)result->pruned_count / (double)choice->nodes_count);
}

/* What followed each visited row; rows stand by their node's place in the choice. */
static void learn_walk(lv_cycle *cycle, const lv_cycle_result *result) {
    lv_cycle_pruning *p = &cycle->pruning;
    for (uint32_t i = 0; p->learning && result->scored && i <= result->path_count; i++) {
        const uint32_t row = i == 0 ? 0 : cycle->tree.nodes[result->path[i - 1]].row;
        lv_learning_label(p->learning, &p->view, row, i < result->path_count ? result->path_tokens[i] : result->token);
    }
}

/* Where the walk ended: at a row that had gone? */
static void watch_pruning(lv_cycle *cycle, uint32_t last, lv_cycle_result *result) {
    lv_cycle_pruning *p = &cycle->pruning;
    if (!result->scored) return;
    const uint32_t child = lv_tree_child(&cycle->tree, last, result->token);
    result->lost_count = child != LV_TREE_NONE && cycle->tree.nodes[child].pruned;
    if (result->pruned_count == 0 || p->known || p->forced) return;
    result->milder = lv_pruning_watch_step(&p->watch, result->path_count, result->lost_count, p->predictor->recall);
}

/* --- Verification ------------------------------------------------------------------------------------------------ */

/* How many rows of the likely path the head takes at once: the number with the least expected time, a missing row being
 * one more head of a single row. */
static uint32_t head_rows_wanted(const lv_cycle *cycle, const uint32_t *path, uint32_t path_count) {
    const lv_cost_curve *head = &cycle->costs.head;
    const double single = lv_cost_curve_at(head, 1);
    uint32_t best = 1;
    double best_seconds = 0;
    for (uint32_t rows = 1; rows <= path_count; rows++) {
        double seconds = lv_cost_curve_at(head, rows);
        for (uint32_t i = rows; i < path_count; i++) seconds += (double)cycle->tree.nodes[path[i]].w * single;
        if (rows == 1 || seconds < best_seconds) {
            best = rows;
            best_seconds = seconds;
        }
    }
    return best;
}

/* The rows for the next call of the head: `node` first, then what is likely to follow, or whatever is in the pass. */
static uint32_t head_batch(const lv_cycle *cycle, const lv_drafting_choice *choice, uint32_t node,
                           uint32_t batch[LV_HEAD_ROWS_MAX]) {
    const uint32_t most = cycle->drafting.head_rows_max;
    uint32_t count = 0;
    batch[count++] = node;
    if (cycle->head == LEVER_HEAD_DEMAND) return count;
    if (cycle->head == LEVER_HEAD_ALL) {
        for (uint32_t i = 0; i < choice->nodes_count && count < most; i++) {
            const bool goes_on = cycle->tree.nodes[choice->nodes[i]].row != LV_TREE_NONE;
            if (choice->nodes[i] > node && goes_on) batch[count++] = choice->nodes[i];
        }
        return count;
    }
    for (uint32_t next = node; count < most; batch[count++] = next) {
        next = lv_tree_best_child(&cycle->tree, next, true);
        if (next == LV_TREE_NONE) break;
    }
    return cycle->head == LEVER_HEAD_PATH ? count : head_rows_wanted(cycle, batch, count);
}

/* Every candidate of a node whose token is known gets its label. */
static void learn_labels(lv_cycle *cycle, uint32_t node, int32_t token) {
    const lv_node *nodes = cycle->tree.nodes;
    for (uint32_t c = nodes[node].first_child; c != LV_TREE_NONE; c = nodes[c].next_sibling) {
        lv_calibration_learn(&cycle->calibration, &nodes[c].feature, nodes[c].token == token);
    }
}

static lever_status walk(lv_cycle *cycle, const lv_target *target, lv_cycle_result *result, lever_error *error) {
    lv_tree *tree = &cycle->tree;
    uint32_t batch[LV_HEAD_ROWS_MAX], batch_count = 0, node = LV_TREE_ROOT;
    for (;;) {
        uint32_t index = 0;
        while (index < batch_count && batch[index] != node) index++;
        if (index == batch_count) {
            batch_count = head_batch(cycle, &result->choice, node, batch);
            const double begin = target->now(target->user);
            LV_TRY(target->head(target->user, tree, batch, batch_count, error));
            const double seconds = target->now(target->user) - begin;
            lv_costs_learn_head(&cycle->costs, result->ahead ? LV_SPLIT_ONE : LV_SPLIT_ALL, batch_count, seconds);
            result->head_seconds += seconds;
            result->head_rows += batch_count;
            index = 0;
        }
        result->token = target->token(target->user, tree, node, index);
        learn_labels(cycle, node, result->token);
        const uint32_t child = lv_tree_child(tree, node, result->token);
        if (child == LV_TREE_NONE || tree->nodes[child].row == LV_TREE_NONE) return LEVER_OK;
        result->path_tokens[result->path_count] = result->token;
        result->path[result->path_count++] = child;
        node = child;
    }
}

/* --- The next root ----------------------------------------------------------------------------------------------- */

/* What the draft thought would follow another token may follow this one too. */
static uint32_t take_rejected(const lv_tree *tree, uint32_t node, int32_t tokens[REJECTED_NODES_MAX]) {
    uint32_t other = lv_tree_best_child(tree, node, false), count = 0;
    while (other != LV_TREE_NONE && count < REJECTED_NODES_MAX) {
        other = lv_tree_best_child(tree, other, false);
        if (other != LV_TREE_NONE) tokens[count++] = tree->nodes[other].token;
    }
    return count;
}

static void reroot(lv_cycle *cycle, const lv_drafter *drafter, lv_cycle_result *result) {
    lv_tree *tree = &cycle->tree;
    const uint32_t last = result->path_count > 0 ? result->path[result->path_count - 1] : LV_TREE_ROOT;
    uint32_t root = lv_tree_child(tree, last, result->token);
    int32_t rejected[REJECTED_NODES_MAX];
    uint32_t rejected_count = 0;
    if (root == LV_TREE_NONE || !tree->nodes[root].expanded) {
        /* The other policies draft from nodes that are expanded themselves. */
        if (drafter && looks_up(cycle)) rejected_count = take_rejected(tree, last, rejected);
    }
    result->hit = root != LV_TREE_NONE && tree->nodes[root].expanded;
    if (root == LV_TREE_NONE) {
        lv_tree_reset(tree, result->token);
    } else {
        lv_tree_reroot(tree, root);
    }
    for (uint32_t i = 0; i < tree->nodes_count; i++) {
        tree->nodes[i].row = LV_TREE_NONE;
        tree->nodes[i].ahead = tree->nodes[i].pruned = false;
    }
    uint32_t node = LV_TREE_ROOT;
    for (uint32_t i = 0; i < rejected_count && node != LV_TREE_NONE; i++) {
        node = add_free(cycle, node, rejected[i], LV_SOURCE_REJECTED, rejected_estimate);
    }
    assert(lv_tree_is_sound(tree));
}

/* --- The pass ---------------------------------------------------------------------------------------------------- */

static lever_status pass(lv_cycle *cycle, const lv_drafter *drafter, const lv_target *target, lv_drafting_view *view,
                         size_t text_count, lv_cycle_result *result, lever_error *error) {
    lv_tree *tree = &cycle->tree;
    lv_cycle_pruning *p = &cycle->pruning;
    const lv_drafting_choice *choice = &result->choice;
    bool prunes = is_pruning_wanted(cycle, drafter, choice);
    prune_job job = {.cycle = cycle, .drafter = result->ahead ? drafter : NULL, .text_count = text_count};
    lv_pause pause = {.view = &p->view, .user = &job, .middle = prune};
    p->scored = false;
    if (prunes) {
        const float before = before_share(p->predictor);
        job.policy = (lv_pruning){.before = before,
                                  .cap = lv_pruning_cap(&p->watch, p->cap),
                                  .forced = p->forced,
                                  .rate = choice->tokens / choice->seconds,
                                  .idle_seconds = view->drafted_seconds,
                                  .split = view->split};
        prunes = may_pay(cycle, &job.policy, choice);
    }
    if (prunes) {
        lv_pruning_take(&p->view, tree, choice->nodes, choice->nodes_count);
        pause.layers_before = p->predictor->shape.layer;
        view->scored_after = (double)job.policy.before;
    }
    const double begin = target->now(target->user);
    const double expected = lv_costs_pass(&cycle->costs, view->split, choice->nodes_count + 1, view->drafted_seconds);
    if (result->ahead) drafter->ahead_begin(drafter->user, &cycle->drafting, view, expected);
    lever_status status = target->verify(target->user, tree, choice->nodes, choice->nodes_count, view->split,
                                         prunes ? &pause : NULL, error);
    if (result->ahead) {
        const lever_status ended = drafter->ahead_end(drafter->user, status == LEVER_OK ? error : NULL);
        if (status == LEVER_OK) status = ended;
    }
    if (status != LEVER_OK) return status;
    result->pass_seconds = target->now(target->user) - begin;
    for (uint32_t i = 0; i < tree->nodes_count; i++) result->expanded_ahead_count += tree->nodes[i].ahead;
    take_pruning(cycle, choice, result);
    return LEVER_OK;
}

/* --- The cycle --------------------------------------------------------------------------------------------------- */

lever_status lv_cycle_run(lv_cycle *cycle, const lv_drafter *drafter, const lv_target *target, const int32_t *text,
                          size_t text_count, lv_cycle_watch_fn watch, void *watch_user, lv_cycle_result *result,
                          lever_error *error) {
    lv_tree *tree = &cycle->tree;
    assert(text_count > 0 && text[text_count - 1] == tree->nodes[LV_TREE_ROOT].token);
    memset(result, 0, sizeof(*result));
    cycle->cycles_count++;
    begin_pruning(cycle);
    const double begin = target->now(target->user);
    lv_drafting_view view = {.tree = tree, .costs = &cycle->costs, .calibration = &cycle->calibration};
    const bool can_ahead = can_draft_ahead(cycle, drafter), always = cycle->drafting.strategy == LEVER_STRATEGY_EDGE;
    /* While drafting the pass is thought to be like the last one. */
    view.split = can_ahead && (always || cycle->last.ahead) ? LV_SPLIT_ONE : LV_SPLIT_ALL;
    if (looks_up(cycle)) add_looked_up(cycle, text, text_count);
    if (drafter) LV_TRY(draft(cycle, drafter, &view, result, error));
    result->ahead = can_ahead;
    if (can_ahead && !always) {
        LV_TRY(choose_way(cycle, drafter, &view, result, error));
    } else {
        lv_drafting_choose(&cycle->drafting, &view, &result->choice);
    }
    if (drafter) learn_drafted(cycle, text_count, view.drafted_seconds);
    const lv_drafting_choice *choice = &result->choice;
    for (uint32_t i = 0; i < choice->nodes_count; i++) tree->nodes[choice->nodes[i]].row = i + 1;

    LV_TRY(pass(cycle, drafter, target, &view, text_count, result, error));
    LV_TRY(walk(cycle, target, result, error));
    const uint32_t last = result->path_count > 0 ? result->path[result->path_count - 1] : LV_TREE_ROOT;
    watch_pruning(cycle, last, result);
    learn_walk(cycle, result);
    result->seconds = target->now(target->user) - begin;
    if (watch) watch(watch_user, cycle, result);
    target->commit(target->user, tree, result->path, result->path_count);
    if (drafter) drafter->commit(drafter->user, tree, result->path, result->path_count);
    const bool whole = choice->nodes_count > 0 && lv_tree_best_child(tree, last, true) == LV_TREE_NONE;
    const double seconds = cycle->costs.frozen ? choice->seconds : result->seconds;
    lv_drafting_learn(&cycle->drafting, result->path_count + 1, seconds, whole);
    keep_last(cycle, text_count, result, seconds);
    reroot(cycle, drafter, result);
    if (drafter) drafter->rerooted(drafter->user, tree);
    return LEVER_OK;
}
