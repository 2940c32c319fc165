/* verification.c - a tree's rows in one pass. The root lies at its position; node i takes slot context + i, and moves
 * to its position when it is accepted. */
#include "engine/verification.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void lv_verification_begin(lv_verification *v, lever_session *session, const lv_sampling *sampling) {
    v->session = session;
    v->sampling = sampling;
    v->pass_end_ns = v->pass_end_read_ns = v->turn_ns = 0;
    v->holds_lock = false;
}

uint32_t lv_verification_nodes_max(const lever_session *session) {
    const uint32_t slots = lv_plan_cache_slots(session->context_tokens) - session->context_tokens;
    uint32_t most = session->engine->plan.rows_max - 1;
    if (most > session->engine->plan.batch_rows - 1) most = session->engine->plan.batch_rows - 1;
    if (most > slots) most = slots;
    return most < LV_DRAFTING_NODES_MAX ? most : LV_DRAFTING_NODES_MAX;
}

/* A session has room for the logits of a path together with its draft, else for those of one row. */
static float *path_logits(const lever_session *session) {
    float *several = session->speculation ? lv_speculation_target_logits(session->speculation) : NULL;
    return several ? several : session->logits;
}

uint32_t lv_verification_head_rows_max(const lever_session *session) {
    return path_logits(session) == session->logits ? 1 : LV_HEAD_ROWS_MAX;
}

lv_buckets lv_session_buckets(const lever_session *session) {
    const lv_phone *phone = session->engine->phone;
    return phone ? phone->profile.npu_buckets : lv_forward_buckets(session->engine->forward);
}

static void lock(lv_verification *v) {
    const uint64_t begin_ns = lv_clock_now_ns(v->session->clock);
    pthread_mutex_lock(&v->session->engine->pass_lock);
    v->turn_ns = lv_clock_now_ns(v->session->clock) - begin_ns;
    v->holds_lock = true;
}

static void unlock(lv_verification *v) {
    if (!v->holds_lock) return;
    v->holds_lock = false;
    pthread_mutex_unlock(&v->session->engine->pass_lock);
    lv_budget_on_block(v->session->engine);
}

void lv_verification_end(lv_verification *v) {
    unlock(v);
}

/* --- The pass ---------------------------------------------------------------------------------------------------- */

static void fill_rows(lv_verification *v, const lv_tree *tree, const uint32_t *nodes, uint32_t count) {
    lever_session *session = v->session;
    lv_row *rows = session->engine->rows;
    const uint32_t root = (uint32_t)session->tokens_count - 1;
    rows[0] = (lv_row){
        .token = tree->nodes[LV_TREE_ROOT].token,
        .position = root,
        .slot = root,
        .kv = &session->kv,
        .path = {.kv = &session->kv, .prefix_count = root + 1},
    };
    for (uint32_t i = 0; i < count; i++) {
        const lv_node *node = &tree->nodes[nodes[i]];
        const uint32_t depth = node->feature.depth;
        uint32_t at = nodes[i];
        for (uint32_t d = depth; d-- > 0;) {
            v->paths[i][d] = session->context_tokens + tree->nodes[at].row - 1;
            at = tree->nodes[at].parent;
        }
        rows[i + 1] = (lv_row){
            .token = node->token,
            .position = root + depth,
            .slot = session->context_tokens + i,
            .kv = &session->kv,
            .path = {.kv = &session->kv, .prefix_count = root + 1, .path_count = depth, .path = v->paths[i]},
        };
    }
}

typedef struct {
    uint64_t begin_ns, compute_ns, wait_ns, read_ns;
} pass_times;

static void take_times(lever_engine *engine, pass_times *times) {
    lv_store_counters store;
    lv_forward_counters forward;
    lv_store_get_counters(engine->store, &store);
    lv_forward_get_counters(engine->forward, &forward);
    *times = (pass_times){lv_clock_now_ns(&lv_clock_real), forward.compute_ns, store.wait_ns, store.busy_ns};
}

/* What a part of a pass said about its number of rows, as if all layers had been computed with it. */
static void learn_part(lv_costs *costs, lv_split split, uint32_t rows_count, const pass_times *from,
                       const pass_times *to, double share) {
    lv_costs_learn_layers(costs, split, rows_count, lv_seconds(to->compute_ns - from->compute_ns) / share);
}

/* The pass, whose rows were `rows_count` up to `middle`, a share `before` of its layers, and `rows_after` from there.
 */
static void learn_pass(lv_verification *v, uint32_t rows_count, uint32_t rows_after, double before, lv_split split,
                       const pass_times *begin, const pass_times *middle) {
    lv_costs *costs = &v->session->cycle.costs;
    if (costs->frozen) return;
    pass_times now;
    take_times(v->session->engine, &now);
    lv_pass_seconds took = {.pass = lv_seconds(now.begin_ns - begin->begin_ns),
                            .compute = lv_seconds(now.compute_ns - begin->compute_ns),
                            .wait = lv_seconds(now.wait_ns - begin->wait_ns),
                            .idle = v->pass_end_ns ? lv_seconds(begin->begin_ns - v->pass_end_ns) : 0,
                            .read = v->pass_end_ns ? lv_seconds(now.read_ns - v->pass_end_read_ns) : (double)INFINITY};
    v->pass_end_ns = now.begin_ns;
    v->pass_end_read_ns = now.read_ns;
    /* A single thread is all of them: decisions ask what all take. */
    const lever_engine *engine = v->session->engine;
    if (engine->threads > 1 && lv_forward_computed_single(engine->forward)) split = LV_SPLIT_ONE;
    if (rows_after < rows_count) {
        learn_part(costs, split, rows_count, begin, middle, before);
        took.compute = lv_seconds(now.compute_ns - middle->compute_ns) / (1 - before);
    }
    lv_costs_learn_pass(costs, split, rows_after, &took);
}

static const float *source_hidden(void *user, uint32_t row) {
    const lever_session *session = user;
    return lv_forward_hidden(session->engine->forward, row);
}

static lever_status source_embedding(void *user, int32_t token, float *row, lever_error *error) {
    const lever_session *session = user;
    return lv_forward_embedding(session->engine->forward, token, row, error);
}

lv_pruning_source lv_verification_source(lever_session *session) {
    return (lv_pruning_source){
        .user = session, .hidden = source_hidden, .embedding = source_embedding, .rows = session->candidate_rows};
}

/* Rows of shadow candidates that are not in memory yet: better now than in the middle of the pass. */
static lever_status fetch_rows(const lever_session *session, const lv_pruning_view *view, lever_error *error) {
    for (uint32_t c = 0; c < view->candidates_first[view->rows_count]; c++) {
        LV_TRY(
            lv_forward_embedding(session->engine->forward, view->candidates[c].token, session->candidate_rows, error));
    }
    return LEVER_OK;
}

/* All layers, or those behind the pause with the rows that it kept. */
static lever_status run_layers(lv_verification *v, uint32_t rows_count, const lv_pause *pause, uint32_t *rows_after,
                               pass_times *middle, lever_error *error) {
    lever_session *session = v->session;
    lever_engine *engine = session->engine;
    const uint32_t layers = engine->model->hparams.layers_count;
    uint32_t keep[LV_PRUNING_ROWS_MAX];
    *rows_after = rows_count;
    for (uint32_t i = 0; i < rows_count; i++) v->rows[i] = i;
    if (!pause) return lv_forward_layers(engine->forward, 0, layers, error);
    const lv_pruning_source source = lv_verification_source(session);
    LV_TRY(lv_forward_layers(engine->forward, 0, pause->layers_before, error));
    LV_TRY(pause->middle(pause->user, &source, keep, rows_after, error));
    for (uint32_t i = 0; i < *rows_after; i++) v->rows[keep[i]] = i;
    if (*rows_after < rows_count) lv_forward_keep_rows(engine->forward, keep, *rows_after);
    take_times(engine, middle);
    return lv_forward_layers(engine->forward, pause->layers_before, layers - pause->layers_before, error);
}

static lever_status target_verify(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                                  lv_split split, const lv_pause *pause, lever_error *error) {
    lv_verification *v = user;
    lever_session *session = v->session;
    lever_engine *engine = session->engine;
    assert(count <= lv_verification_nodes_max(session));
    lock(v);
    fill_rows(v, tree, nodes, count);
    const lv_pass pass = {.rows = engine->rows, .rows_count = count + 1, .cancel = &session->cancelled};
    const double layers = engine->model->hparams.layers_count;
    uint32_t rows_after;
    pass_times before, middle = {0};
    take_times(engine, &before);
    lv_store_set_head_wanted(engine->store, true);
    lv_forward_set_threads(engine->forward, split == LV_SPLIT_ONE ? LV_COMPUTE_ONE : LV_COMPUTE_AUTO);
    if (pause) LV_TRY(fetch_rows(session, pause->view, error));
    const uint64_t begin_ns = lv_spans_begin(engine->spans);
    LV_TRY(lv_forward_begin(engine->forward, &pass, error));
    LV_TRY(run_layers(v, count + 1, pause, &rows_after, &middle, error));
    lv_spans_end(engine->spans, LV_TRACK_MAIN, "pass rows", count + 1, begin_ns);
    session->cycle.costs.buckets = lv_session_buckets(session);
    learn_pass(v, count + 1, rows_after, pause ? pause->layers_before / layers : 1, split, &before, &middle);
    session->statistics.nodes_padded += lv_forward_padded_rows(engine->forward, count + 1) - (count + 1);
    session->statistics.cycles++;
    session->statistics.nodes_verified += count + 1;
    return LEVER_OK;
}

/* --- Logits and tokens ------------------------------------------------------------------------------------------- */

static lever_status target_head(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                                lever_error *error) {
    lv_verification *v = user;
    lever_session *session = v->session;
    uint32_t rows[LV_HEAD_ROWS_MAX];
    assert(count <= lv_verification_head_rows_max(session));
    for (uint32_t i = 0; i < count; i++) rows[i] = nodes[i] == LV_TREE_ROOT ? 0 : v->rows[tree->nodes[nodes[i]].row];
    session->logits_count = 0;
    lv_forward_set_threads(session->engine->forward, LV_COMPUTE_ALL);
    return lv_forward_logits(session->engine->forward, rows, count, path_logits(session), error);
}

static int32_t target_token(void *user, const lv_tree *tree, uint32_t node, uint32_t index) {
    lv_verification *v = user;
    lever_session *session = v->session;
    const float *logits = path_logits(session) + (size_t)index * session->engine->model->hparams.vocabulary;
    uint32_t path[LV_TREE_DEPTH_MAX];
    const uint32_t depth = lv_tree_path(tree, node, path);
    /* The session's array has room behind its tokens: a path never leads beyond the context. */
    const size_t count = session->tokens_count + depth;
    if (lv_sampling_penalises(v->sampling)) {
        for (uint32_t i = 0; i < depth; i++) session->tokens[session->tokens_count + i] = tree->nodes[path[i]].token;
    }
    return lv_sampler_pick(session->sampler, v->sampling, logits, session->tokens, count, count);
}

static void target_commit(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    lv_verification *v = user;
    lever_session *session = v->session;
    uint32_t slots[LV_TREE_DEPTH_MAX];
    for (uint32_t i = 0; i < path_count; i++) slots[i] = session->context_tokens + tree->nodes[path[i]].row - 1;
    lv_kv_commit(&session->kv, (uint32_t)session->tokens_count, slots, path_count);
    session->computed_count = session->tokens_count + path_count;
    unlock(v);
}

static double target_now(void *user) {
    const lv_verification *v = user;
    return lv_seconds(lv_clock_now_ns(v->session->clock));
}

lv_target lv_verification_target(lv_verification *v) {
    return (lv_target){
        .user = v,
        .verify = target_verify,
        .head = target_head,
        .token = target_token,
        .commit = target_commit,
        .now = target_now,
    };
}
