/* speculation.c - expanding nodes with the draft's forward pass.
 *
 * Slots of the draft's cache: [0, context) is the text by position, the root included; behind it lie
 * LV_DRAFT_TREE_SLOTS for nodes. A node that is accepted moves to its position. Tokens that became text without having
 * been expanded (the last of a cycle as a rule) are caught up with in the forward that needs them.
 *
 * The thread of its own computes with one thread while the target computes with the other; it never starts a forward
 * that is not expected to end within the pass, or shortly behind it. */
#include "engine/speculation.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "spec/candidates.h"

enum { CATCH_UP_ROWS_MAX = LV_DRAFT_ROWS_MAX - LV_DRAFTING_WIDTH_MAX, PREFILL_CHUNK_ROWS = 32 };

/* A forward is started as long as this share of it is expected to fit. */
static const double fit_share = 0.8;

typedef enum { JOB_NONE, JOB_AHEAD, JOB_PREFILL, JOB_QUIT } job_kind;

struct lv_speculation {
    lv_speculation_options options;
    lv_kv kv;
    size_t computed_count; /* leading tokens of the text whose keys and values are in the cache */
    const int32_t *tokens; /* the session's text; valid up to text_count */
    size_t text_count;
    const lv_sampling *sampling;
    uint32_t children;
    bool slot_used[LV_DRAFT_TREE_SLOTS];
    lv_candidates *candidates;
    lv_area logits_area, target_logits_area;
    float *logits;        /* there: LV_DRAFTING_WIDTH_MAX x rows of the head; NULL while it rests */
    float *target_logits; /* there: LV_HEAD_ROWS_MAX x logits_columns; the same */
    lv_logits_tokens head_tokens;
    int32_t *head_table; /* the tokens of all rows of the head, as they were at this version of it */
    uint64_t head_version;
    size_t head_text_count; /* leading tokens of the text that have rows of the head */
    int32_t *history;       /* context_tokens + LV_TREE_DEPTH_MAX; for penalties */
    uint32_t paths[LV_DRAFTING_WIDTH_MAX][LV_TREE_DEPTH_MAX];
    lv_speculation_counters counters;

    double lock_seconds; /* that were waited for other sessions' forwards */
    bool in_own_thread;  /* who works: the thread, between begin and end of a job, or the caller */

    lv_thread thread;
    pthread_mutex_t lock; /* guards job and changes of it */
    pthread_cond_t changed;
    job_kind job; /* what the thread is doing; NONE: it sleeps */
    atomic_bool stop;
    const lv_drafting *drafting; /* JOB_AHEAD */
    lv_drafting_view view;
    double seconds;
    const lv_pruning_view *scores; /* of the pass, from its middle on; guarded by `lock` */
    bool pass_is_over;             /* guarded by `lock` */
    lever_status job_status;
    lever_error job_error;
};

static double now_seconds(void) {
    return lv_seconds(lv_clock_now_ns(&lv_clock_real));
}

/* Forwards of several sessions take turns. What that takes is no cost of a forward. */
static void lock_draft(lv_speculation *s) {
    const double begin = now_seconds();
    pthread_mutex_lock(&s->options.draft->lock);
    s->lock_seconds += now_seconds() - begin;
}

/* --- Forward ----------------------------------------------------------------------------------------------------- */

static int32_t drafts_token(const lv_speculation *s, int32_t token) {
    /* A token that the draft does not have is one of a padded tail: never seen in text. */
    return (uint32_t)token < s->options.draft->model->hparams.vocabulary ? token : 0;
}

static lv_row row_of_text(lv_speculation *s, size_t position) {
    const uint32_t slot = (uint32_t)position;
    return (lv_row){
        .token = drafts_token(s, s->tokens[position]),
        .position = slot,
        .slot = slot,
        .kv = &s->kv,
        .path = {.kv = &s->kv, .prefix_count = slot + 1},
    };
}

static lever_status run_rows(lv_speculation *s, size_t rows_count, lv_compute_threads threads, lever_error *error) {
    lv_draft_model *draft = s->options.draft;
    const lv_pass pass = {.rows = draft->rows, .rows_count = rows_count, .cancel = s->options.cancel};
    const uint64_t begin_ns = lv_spans_begin(s->options.spans);
    lv_forward_set_threads(draft->forward, threads);
    lever_status status = lv_forward_begin(draft->forward, &pass, error);
    if (status == LEVER_OK) {
        status = lv_forward_layers(draft->forward, 0, draft->model->hparams.layers_count, error);
    }
    lv_spans_end(s->options.spans, s->in_own_thread ? LV_TRACK_DRAFT : LV_TRACK_MAIN, "draft rows",
                 (uint32_t)rows_count, begin_ns);
    return status;
}

/* Text up to (not including) `end`, so that at most `left` tokens before it are missing. */
static lever_status catch_up(lv_speculation *s, size_t end, size_t left, size_t chunk, lv_compute_threads threads,
                             const atomic_bool *stop, lever_error *error) {
    lv_draft_model *draft = s->options.draft;
    while (s->computed_count + left < end && !(stop && atomic_load(stop))) {
        const size_t missing = end - s->computed_count;
        const size_t count = missing < chunk ? missing : chunk;
        lock_draft(s);
        for (size_t i = 0; i < count; i++) draft->rows[i] = row_of_text(s, s->computed_count + i);
        const lever_status status = run_rows(s, count, threads, error);
        pthread_mutex_unlock(&draft->lock);
        if (status != LEVER_OK) return status;
        s->computed_count += count;
    }
    return LEVER_OK;
}

static uint32_t take_slot(lv_speculation *s) {
    for (uint32_t i = 0; i < LV_DRAFT_TREE_SLOTS; i++) {
        if (s->slot_used[i]) continue;
        s->slot_used[i] = true;
        return s->options.context_tokens + i;
    }
    return LV_TREE_NONE;
}

static lv_row row_of_node(lv_speculation *s, const lv_tree *tree, uint32_t index, uint32_t path[LV_TREE_DEPTH_MAX]) {
    const lv_node *node = &tree->nodes[index];
    const size_t root = s->text_count - 1;
    if (index == LV_TREE_ROOT) return row_of_text(s, root);
    uint32_t at = index;
    for (uint32_t d = node->feature.depth; d-- > 0;) {
        path[d] = tree->nodes[at].slot;
        at = tree->nodes[at].parent;
    }
    return (lv_row){
        .token = drafts_token(s, node->token),
        .position = (uint32_t)root + node->feature.depth,
        .slot = node->slot,
        .kv = &s->kv,
        .path = {.kv = &s->kv, .prefix_count = (uint32_t)root + 1, .path_count = node->feature.depth, .path = path},
    };
}

/* Gives slots to as many of the nodes as there are. */
static uint32_t take_slots(lv_speculation *s, lv_tree *tree, const uint32_t *nodes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i] == LV_TREE_ROOT) continue;
        tree->nodes[nodes[i]].slot = take_slot(s);
        if (tree->nodes[nodes[i]].slot == LV_TREE_NONE) return i;
    }
    return count;
}

static void give_back_slots(lv_speculation *s, lv_tree *tree, const uint32_t *nodes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        lv_node *node = &tree->nodes[nodes[i]];
        if (node->slot == LV_TREE_NONE || node->expanded) continue;
        s->slot_used[node->slot - s->options.context_tokens] = false;
        node->slot = LV_TREE_NONE;
    }
}

static const int32_t *history_of(lv_speculation *s, const lv_tree *tree, uint32_t node, size_t *count) {
    *count = s->text_count + tree->nodes[node].feature.depth;
    if (!lv_sampling_penalises(s->sampling) || node == LV_TREE_ROOT) return s->tokens;
    uint32_t path[LV_TREE_DEPTH_MAX];
    const uint32_t depth = lv_tree_path(tree, node, path);
    memcpy(s->history, s->tokens, s->text_count * sizeof(*s->tokens));
    for (uint32_t i = 0; i < depth; i++) s->history[s->text_count + i] = tree->nodes[path[i]].token;
    return s->history;
}

static void add_children(lv_speculation *s, lv_tree *tree, uint32_t index, const float *logits) {
    size_t history_count;
    const int32_t *history = history_of(s, tree, index, &history_count);
    lv_candidate found[LV_TREE_CHILDREN_MAX];
    const uint32_t count = lv_candidates_pick(s->candidates, s->sampling, logits, &s->head_tokens, history,
                                              history_count, history_count, s->children, found);
    lv_candidates_add(tree, index, LV_SOURCE_DRAFT, s->options.calibration, found, count);
}

/* The tokens of the head's rows change when tokens are added; ids that the target does not have are left out. The first
 * rows are those of their own numbers. */
static void copy_head_tokens(lv_speculation *s) {
    const lv_draft_head *head = s->options.draft->head;
    const uint32_t rows = lv_draft_head_rows_count(head);
    for (uint32_t row = 0; row < rows; row++) {
        const int32_t token = lv_draft_head_token(head, row);
        s->head_table[row] = token >= 0 && (uint32_t)token < s->options.vocabulary ? token : -1;
    }
    uint32_t first = 0;
    while (first < rows && s->head_table[first] == (int32_t)first) first++;
    s->head_version = lv_draft_head_version(head);
    s->head_tokens = (lv_logits_tokens){.logits_count = rows, .tokens_first = first, .tokens = s->head_table + first};
}

/* What became text without having a row gets one, before the draft goes on: a name that was written once will be
 * written again. Other sessions add theirs to the same head. The draft's lock is held. */
static lever_status add_head_tokens(lv_speculation *s, lever_error *error) {
    lv_draft_head *head = s->options.draft->head;
    if (s->head_text_count < s->text_count) {
        LV_TRY(lv_draft_head_add(head, s->tokens + s->head_text_count, s->text_count - s->head_text_count, error));
        s->head_text_count = s->text_count;
    }
    if (s->head_version != lv_draft_head_version(head)) copy_head_tokens(s);
    return LEVER_OK;
}

static lever_status forward_nodes(lv_speculation *s, lv_tree *tree, const uint32_t *nodes, uint32_t count,
                                  lv_compute_threads threads, lever_error *error) {
    lv_draft_model *draft = s->options.draft;
    const size_t root = s->text_count - 1;
    size_t rows_count = 0;
    uint32_t wanted[LV_DRAFTING_WIDTH_MAX];
    LV_TRY(add_head_tokens(s, error));
    for (size_t position = s->computed_count; position < root; position++) {
        draft->rows[rows_count++] = row_of_text(s, position);
    }
    for (uint32_t i = 0; i < count; i++) {
        wanted[i] = (uint32_t)rows_count;
        draft->rows[rows_count++] = row_of_node(s, tree, nodes[i], s->paths[i]);
    }
    LV_TRY(run_rows(s, rows_count, threads, error));
    LV_TRY(lv_forward_logits(draft->forward, wanted, count, s->logits, error));
    if (s->computed_count < root) s->computed_count = root;
    const size_t stride = lv_forward_logits_count(draft->forward);
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i] == LV_TREE_ROOT) s->computed_count = root + 1;
        add_children(s, tree, nodes[i], s->logits + i * stride);
        tree->nodes[nodes[i]].expanded = true;
    }
    return LEVER_OK;
}

static lever_status drafter_expand(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                                   uint32_t *expanded, double *seconds, lever_error *error) {
    lv_speculation *s = user;
    const size_t root = s->text_count - 1;
    const size_t behind = s->computed_count < root ? root - s->computed_count : 0;
    assert(count <= LV_DRAFTING_WIDTH_MAX);
    const lv_compute_threads threads = split == LV_SPLIT_ONE ? LV_COMPUTE_ONE : LV_COMPUTE_ALL;
    const double begin = now_seconds(), waited = s->lock_seconds;
    *expanded = take_slots(s, tree, nodes, count);
    if (*expanded == 0) return LEVER_OK;
    lever_status status = catch_up(s, root, CATCH_UP_ROWS_MAX, CATCH_UP_ROWS_MAX, threads, NULL, error);
    const size_t missing = s->computed_count < root ? root - s->computed_count : 0;
    if (status == LEVER_OK) {
        lock_draft(s);
        status = forward_nodes(s, tree, nodes, *expanded, threads, error);
        pthread_mutex_unlock(&s->options.draft->lock);
    }
    give_back_slots(s, tree, nodes, *expanded);
    *seconds = now_seconds() - begin - (s->lock_seconds - waited);
    if (s->options.forward_seconds) {
        const uint32_t rows = (uint32_t)behind + *expanded;
        *seconds = s->options.forward_seconds(s->options.forward_user, rows, *expanded, split);
    }
    s->counters.seconds += *seconds;
    if (status != LEVER_OK) return status;
    s->counters.nodes += *expanded;
    /* A forward that also catches up with much text says little about its width. */
    if (!s->options.costs->frozen && missing <= 2) {
        lv_costs_learn_draft(s->options.costs, split, *expanded, *seconds);
    }
    return LEVER_OK;
}

/* --- The thread of its own --------------------------------------------------------------------------------------- */

/* Applies what the middle of the pass has found, once. With frozen costs it is waited for where a count says that the
 * middle is, so that every run has the same cycles. True when nothing more is to come. */
static bool take_scores(lv_speculation *s, double spent, double expected) {
    const bool waits = s->options.costs->frozen && spent + expected > s->seconds * s->view.scored_after;
    pthread_mutex_lock(&s->lock);
    while (waits && !s->scores && !s->pass_is_over) pthread_cond_wait(&s->changed, &s->lock);
    const lv_pruning_view *scores = s->scores;
    const bool over = s->pass_is_over;
    pthread_mutex_unlock(&s->lock);
    if (s->options.costs->frozen && !waits) return false;
    if (scores) lv_pruning_apply(scores, s->view.tree);
    return scores != NULL || over;
}

static lever_status draft_ahead(lv_speculation *s, lever_error *error) {
    const double begin = now_seconds();
    const bool frozen = s->options.costs->frozen;
    double spent = 0;
    bool scored = s->view.scored_after <= 0;
    while (!atomic_load(&s->stop)) {
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX], expanded = 0;
        const uint32_t count = lv_drafting_next_ahead(s->drafting, &s->view, nodes);
        if (count == 0) break;
        const double expected = lv_cost_curve_at(&s->options.costs->draft[LV_SPLIT_ONE], count);
        if (!frozen) spent = now_seconds() - begin;
        if (!scored && (scored = take_scores(s, spent, expected))) continue;
        if (spent + expected * fit_share > s->seconds) break;
        double seconds = 0;
        LV_TRY(drafter_expand(s, s->view.tree, nodes, count, LV_SPLIT_ONE, &expanded, &seconds, error));
        if (expanded == 0) break;
        for (uint32_t i = 0; i < expanded; i++) s->view.tree->nodes[nodes[i]].ahead = true;
        s->counters.hidden_seconds += seconds;
        if (frozen) spent += expected;
    }
    return LEVER_OK;
}

static lever_status run_job(lv_speculation *s, job_kind job, lever_error *error) {
    if (job == JOB_AHEAD) return draft_ahead(s, error);
    return catch_up(s, s->text_count - 1, 0, PREFILL_CHUNK_ROWS, LV_COMPUTE_ONE, &s->stop, error);
}

static void *run_thread(void *user) {
    lv_speculation *s = user;
    pthread_mutex_lock(&s->lock);
    while (s->job != JOB_QUIT) {
        if (s->job == JOB_NONE) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const job_kind job = s->job;
        pthread_mutex_unlock(&s->lock);
        s->in_own_thread = true;
        const lever_status status = run_job(s, job, &s->job_error);
        s->in_own_thread = false;
        pthread_mutex_lock(&s->lock);
        s->job_status = status;
        if (s->job == job) s->job = JOB_NONE;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void start_job(lv_speculation *s, job_kind job) {
    pthread_mutex_lock(&s->lock);
    assert(s->job == JOB_NONE);
    atomic_store(&s->stop, false);
    s->job_status = LEVER_OK;
    s->job = job;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static lever_status finish_job(lv_speculation *s, lever_error *error) {
    pthread_mutex_lock(&s->lock);
    while (s->job != JOB_NONE) pthread_cond_wait(&s->changed, &s->lock);
    const lever_status status = s->job_status;
    pthread_mutex_unlock(&s->lock);
    if (status != LEVER_OK && error) *error = s->job_error;
    return status;
}

/* --- The drafter ------------------------------------------------------------------------------------------------- */

static void drafter_ahead_begin(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds) {
    lv_speculation *s = user;
    s->drafting = drafting;
    s->view = *view;
    s->seconds = seconds;
    s->scores = NULL;
    s->pass_is_over = false;
    start_job(s, JOB_AHEAD);
}

static lever_status drafter_ahead_end(void *user, lever_error *error) {
    lv_speculation *s = user;
    /* With frozen costs a count decides, and its end is waited for. */
    if (!s->options.costs->frozen) atomic_store(&s->stop, true);
    pthread_mutex_lock(&s->lock);
    s->pass_is_over = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return finish_job(s, error);
}

static void drafter_scored(void *user, const lv_pruning_view *view) {
    lv_speculation *s = user;
    pthread_mutex_lock(&s->lock);
    s->scores = view;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void drafter_commit(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    lv_speculation *s = user;
    const size_t root = s->text_count - 1;
    for (uint32_t i = 0; i < path_count && s->computed_count == root + 1 + i; i++) {
        const lv_node *node = &tree->nodes[path[i]];
        if (!node->expanded) break;
        lv_kv_move(&s->kv, node->slot, (uint32_t)(root + 1 + i));
        s->computed_count++;
    }
    s->text_count += path_count + 1;
}

static void drafter_rerooted(void *user, lv_tree *tree) {
    lv_speculation *s = user;
    lv_node *root = &tree->nodes[LV_TREE_ROOT];
    const size_t position = s->text_count - 1;
    if (root->expanded && root->slot != LV_TREE_NONE) {
        if (s->computed_count == position) {
            lv_kv_move(&s->kv, root->slot, (uint32_t)position);
            s->computed_count++;
        }
        root->slot = LV_TREE_NONE;
    }
    memset(s->slot_used, 0, sizeof(s->slot_used));
    for (uint32_t i = 1; i < tree->nodes_count; i++) {
        if (tree->nodes[i].slot != LV_TREE_NONE) {
            s->slot_used[tree->nodes[i].slot - s->options.context_tokens] = true;
        }
    }
}

lv_drafter lv_speculation_drafter(lv_speculation *s) {
    return (lv_drafter){
        .user = s,
        .expand = drafter_expand,
        .ahead_begin = s->options.threads > 1 || s->options.forward_seconds ? drafter_ahead_begin : NULL,
        .ahead_end = drafter_ahead_end,
        .scored = drafter_scored,
        .commit = drafter_commit,
        .rerooted = drafter_rerooted,
    };
}

/* --- Opening, closing, text --------------------------------------------------------------------------------------- */

static size_t logits_bytes(const lv_model *draft) {
    /* The head itself may be away. */
    return (size_t)LV_DRAFTING_WIDTH_MAX * lv_draft_model_head_rows(draft) * sizeof(float);
}

static size_t target_logits_bytes(uint32_t columns) {
    return (size_t)LV_HEAD_ROWS_MAX * columns * sizeof(float);
}

uint64_t lv_speculation_rest_bytes(const lv_model *draft, uint32_t context_tokens, uint32_t logits_columns) {
    return lv_draft_model_session_bytes(draft, context_tokens) + lv_area_booked_bytes(logits_bytes(draft)) +
           lv_area_booked_bytes(target_logits_bytes(logits_columns));
}

/* Areas of their own, like the cache: what rests is to be back with the system, and not in the allocator's heap. */
static lever_status open_logits(const lv_speculation *s, size_t bytes, const char *what, lv_area *area,
                                lever_error *error) {
    const lv_area_options options = {.huge_pages = true, .touch = true};
    return lv_area_open(area, s->options.ledger, LV_MEM_LOGITS, bytes, &options, what, error);
}

void lv_speculation_rest(lv_speculation *s) {
    lv_kv_close(&s->kv);
    lv_area_close(&s->logits_area);
    lv_area_close(&s->target_logits_area);
    s->logits = s->target_logits = NULL;
    s->computed_count = 0;
}

lever_status lv_speculation_wake(lv_speculation *s, lever_error *error) {
    const lv_speculation_options *o = &s->options;
    const lv_kv_shape shape = lv_draft_model_cache_shape(o->draft->model, o->context_tokens);
    lever_status status = open_logits(s, logits_bytes(o->draft->model), "logits of the draft", &s->logits_area, error);
    if (status == LEVER_OK) {
        status =
            open_logits(s, target_logits_bytes(o->logits_columns), "logits of a path", &s->target_logits_area, error);
    }
    if (status == LEVER_OK) status = lv_kv_open(&s->kv, o->ledger, &shape, error);
    if (status != LEVER_OK) {
        lv_speculation_rest(s);
        return status;
    }
    s->logits = (float *)(void *)s->logits_area.data;
    s->target_logits = (float *)(void *)s->target_logits_area.data;
    return LEVER_OK;
}

uint64_t lv_speculation_memory_bytes(const lv_speculation *s) {
    const lv_speculation_options *o = &s->options;
    return lv_speculation_rest_bytes(o->draft->model, o->context_tokens, o->logits_columns);
}

float *lv_speculation_target_logits(const lv_speculation *s) {
    return s->target_logits;
}

uint64_t lv_speculation_resting_bytes(const lv_speculation *s) {
    return s->logits ? 0 : lv_speculation_memory_bytes(s);
}

static lever_status open_memory(lv_speculation *s, lever_error *error) {
    const lv_speculation_options *o = &s->options;
    const uint32_t rows = lv_draft_model_head_rows(o->draft->model);
    LV_TRY(lv_speculation_wake(s, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, o->ledger, LV_MEM_SESSION, rows, sizeof(int32_t), "the draft's tokens", error));
    s->head_table = memory;
    LV_TRY(lv_alloc_checked(&memory, o->ledger, LV_MEM_SESSION, o->context_tokens + LV_TREE_DEPTH_MAX, sizeof(int32_t),
                            "the draft's history", error));
    s->history = memory;
    LV_TRY(lv_candidates_open(&s->candidates, rows, o->ledger, error));
    return lv_thread_start(&s->thread, o->ledger, run_thread, s, "lever-draft", error);
}

lever_status lv_speculation_open(lv_speculation **out, const lv_speculation_options *options, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_SESSION, 1, sizeof(lv_speculation), "speculation", error));
    lv_speculation *s = memory;
    s->options = *options;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    atomic_init(&s->stop, false);
    const lever_status status = open_memory(s, error);
    if (status != LEVER_OK) {
        lv_speculation_close(&s);
        return status;
    }
    *out = s;
    return LEVER_OK;
}

void lv_speculation_close(lv_speculation **out) {
    if (!out || !*out) return;
    lv_speculation *s = *out;
    if (s->thread.running) {
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->stop, true);
        s->job = JOB_QUIT;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        lv_thread_join(&s->thread);
    }
    lv_candidates_close(&s->candidates);
    lv_free(s->history);
    lv_free(s->head_table);
    lv_speculation_rest(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    lv_free(s);
    *out = NULL;
}

const lv_speculation_options *lv_speculation_get_options(const lv_speculation *s) {
    return &s->options;
}

void lv_speculation_truncate(lv_speculation *s, size_t tokens_count) {
    if (s && s->computed_count > tokens_count) s->computed_count = tokens_count;
}

lever_status lv_speculation_begin(lv_speculation *s, const int32_t *tokens, size_t tokens_count,
                                  const lv_sampling *sampling, uint32_t children, lever_error *error) {
    s->tokens = tokens;
    s->text_count = tokens_count;
    s->sampling = sampling;
    s->children = children;
    memset(s->slot_used, 0, sizeof(s->slot_used));
    memset(&s->counters, 0, sizeof(s->counters));
    lv_speculation_truncate(s, tokens_count - 1);
    s->head_text_count = 0;
    s->head_version = UINT64_MAX; /* not copied yet: it may be another head */
    pthread_mutex_lock(&s->options.draft->lock);
    const lever_status status = add_head_tokens(s, error);
    pthread_mutex_unlock(&s->options.draft->lock);
    return status;
}

void lv_speculation_begin_prefill(lv_speculation *s, const int32_t *tokens, size_t tokens_count) {
    s->tokens = tokens;
    s->text_count = tokens_count;
    start_job(s, JOB_PREFILL);
}

lever_status lv_speculation_end_prefill(lv_speculation *s, lever_error *error) {
    if (!s->options.costs->frozen) atomic_store(&s->stop, true);
    return finish_job(s, error);
}

void lv_speculation_get_counters(const lv_speculation *s, lv_speculation_counters *counters) {
    *counters = s->counters;
}
