/* Cycles with mock models: a target whose next token is a known function of its text, and a draft that guesses it well
 * or badly. Whatever is drafted, the text is that of the function; every failure is passed up; the interfaces are used
 * as they promise. */
#include "spec/cycle.h"

#include "spec/candidates.h"
#include "support/check.h"

enum {
    VOCABULARY = 40,
    PROMPT = 12,
    ANSWER = 90,
    TEXT = PROMPT + ANSWER,
    CONTEXT_OF_TOKEN = 2,
    AHEAD_FORWARDS = 3,
    PREDICTOR_WIDTH = 16
};

typedef enum { CALL_EXPAND, CALL_VERIFY, CALL_HEAD, CALL_AHEAD_END, CALL_EMBEDDING, CALLS_COUNT } call;

typedef struct {
    int32_t text[TEXT + LV_TREE_DEPTH_MAX];
    size_t text_count;
    uint32_t quality; /* in hundred first guesses, how many are right */
    uint32_t
        partial; /* every how many-th expansion does only one node, and every how many-th of these none; 0: never */
    uint32_t children; /* of a node */

    uint32_t calls[CALLS_COUNT];
    uint32_t fail_at[CALLS_COUNT]; /* 0: never */

    bool is_ahead;
    uint32_t ahead_begun, ahead_ended;
    const lv_drafting *drafting;
    lv_drafting_view view;
    lv_calibration *calibration;

    lv_predictor *predictor;
    float hidden[LV_PRUNING_ROWS_MAX][PREDICTOR_WIDTH], rows[LV_PREDICTOR_CANDIDATES_MAX * PREDICTOR_WIDTH];
    uint32_t pauses, scored_ahead, rows_pruned, nodes_verified;

    uint32_t batch[LV_HEAD_ROWS_MAX], batch_count, head_rows_max;
    uint32_t passes, target_commits, drafter_commits, reroots;
    uint32_t path[LV_TREE_DEPTH_MAX], path_count; /* that the target committed */
    double now;

    lv_cycle_result seen;     /* the last cycle that was watched */
    uint32_t grown, in_shade; /* nodes that were drafted before its pass, and those of them that were not in it */
} world;

static uint32_t hash_of(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    return h ^ h >> 13;
}

/* A second-order chain, which soon repeats itself: look-ups find something. */
static int32_t true_token(const int32_t *text, size_t count) {
    const uint32_t last = (uint32_t)text[count - 1], before = (uint32_t)text[count - 2];
    return (int32_t)(hash_of(last, before, 1) % VOCABULARY);
}

static size_t text_of_node(const world *w, const lv_tree *tree, uint32_t node, int32_t text[CONTEXT_OF_TOKEN]) {
    for (int32_t i = CONTEXT_OF_TOKEN; i-- > 0;) {
        if (node == LV_TREE_NONE) break;
        text[i] = tree->nodes[node].token;
        node = tree->nodes[node].parent;
        if (node == LV_TREE_NONE && i > 0) text[i - 1] = w->text[w->text_count - 2];
    }
    return CONTEXT_OF_TOKEN;
}

static int32_t token_behind(const world *w, const lv_tree *tree, uint32_t node) {
    int32_t text[CONTEXT_OF_TOKEN];
    return true_token(text, text_of_node(w, tree, node, text));
}

static lever_status count_call(world *w, call which, lever_error *error) {
    w->calls[which]++;
    if (w->calls[which] != w->fail_at[which]) return LEVER_OK;
    return lv_fail(error, LEVER_E_IO, "call %d of kind %d was to fail", (int)w->calls[which], (int)which);
}

/* --- The draft --------------------------------------------------------------------------------------------------- */

static void guess(world *w, lv_tree *tree, uint32_t node) {
    lv_candidate found[LV_TREE_CHILDREN_MAX];
    const int32_t right = token_behind(w, tree, node);
    const uint32_t number = hash_of((uint32_t)right, (uint32_t)tree->nodes[node].token, 7);
    const bool is_right = number % 100 < w->quality;
    /* A wrong guess has the right token second, or not at all. */
    const uint32_t at = is_right ? 0 : number / 100 % 2 ? 1 : LV_TREE_CHILDREN_MAX;
    for (uint32_t i = 0; i < w->children; i++) {
        const int32_t wrong = (int32_t)(((uint32_t)right + 1 + i) % VOCABULARY);
        found[i] = (lv_candidate){i == at ? right : wrong, i == 0 ? 0.7f : 0.2f / (float)(1u << i)};
    }
    lv_candidates_add(tree, node, LV_SOURCE_DRAFT, w->calibration, found, w->children);
    tree->nodes[node].expanded = true;
}

static lever_status mock_expand(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                                uint32_t *expanded, double *seconds, lever_error *error) {
    world *w = user;
    (void)split;
    assert_false(w->is_ahead);
    assert_true(count >= 1 && count <= LV_DRAFTING_WIDTH_MAX);
    LV_TRY(count_call(w, CALL_EXPAND, error));
    *expanded = count;
    if (w->partial && w->calls[CALL_EXPAND] % w->partial == 0) *expanded = 1;
    if (w->partial && w->calls[CALL_EXPAND] % (w->partial * w->partial) == 0) *expanded = 0;
    for (uint32_t i = 0; i < *expanded; i++) {
        assert_true(nodes[i] < tree->nodes_count);
        assert_false(tree->nodes[nodes[i]].expanded);
        /* Its parent has been computed, or is in front of it. */
        assert_true(nodes[i] == LV_TREE_ROOT || tree->nodes[tree->nodes[nodes[i]].parent].expanded);
        guess(w, tree, nodes[i]);
    }
    *seconds = 0.001;
    return LEVER_OK;
}

static void draft_ahead(world *w) {
    for (uint32_t n = 0; n < AHEAD_FORWARDS; n++) {
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
        const uint32_t count = lv_drafting_next_ahead(w->drafting, &w->view, nodes);
        for (uint32_t i = 0; i < count; i++) {
            lv_node *node = &w->view.tree->nodes[nodes[i]];
            assert_false(node->expanded);
            assert_true(nodes[i] == LV_TREE_ROOT || w->view.tree->nodes[node->parent].expanded);
            guess(w, w->view.tree, nodes[i]);
            node->ahead = true;
        }
    }
}

static void mock_ahead_begin(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds) {
    world *w = user;
    assert_false(w->is_ahead);
    assert_true(seconds > 0);
    w->is_ahead = true;
    w->ahead_begun++;
    w->drafting = drafting;
    w->view = *view;
    draft_ahead(w);
}

static lever_status mock_ahead_end(void *user, lever_error *error) {
    world *w = user;
    assert_true(w->is_ahead);
    draft_ahead(w);
    w->is_ahead = false;
    w->ahead_ended++;
    return count_call(w, CALL_AHEAD_END, error);
}

static void mock_drafter_commit(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    world *w = user;
    assert_int_equal(w->drafter_commits, w->reroots);
    assert_int_equal(++w->drafter_commits, w->target_commits);
    assert_int_equal(path_count, w->path_count);
    assert_memory_equal(path, w->path, path_count * sizeof(*path));
    assert_int_equal(tree->nodes[LV_TREE_ROOT].token, w->text[w->text_count - 1]);
}

static void mock_rerooted(void *user, lv_tree *tree) {
    world *w = user;
    assert_int_equal(++w->reroots, w->drafter_commits);
    assert_true(lv_tree_is_sound(tree));
    for (uint32_t i = 0; i < tree->nodes_count; i++) {
        assert_int_equal(tree->nodes[i].row, LV_TREE_NONE);
        assert_false(tree->nodes[i].ahead || tree->nodes[i].pruned);
    }
}

static void mock_scored(void *user, const lv_pruning_view *view) {
    world *w = user;
    assert_true(w->is_ahead && view->scored && w->view.scored_after > 0);
    w->scored_ahead++;
    lv_pruning_apply(view, w->view.tree);
    assert_true(lv_tree_is_sound(w->view.tree));
    draft_ahead(w);
}

/* --- The target -------------------------------------------------------------------------------------------------- */

static const float *mock_hidden(void *user, uint32_t row) {
    return ((world *)user)->hidden[row];
}

static lever_status mock_embedding(void *user, int32_t token, float *row, lever_error *error) {
    for (uint32_t i = 0; i < PREDICTOR_WIDTH; i++) row[i] = (float)(hash_of((uint32_t)token, i, 3) % 200) / 100 - 1;
    return count_call(user, CALL_EMBEDDING, error);
}

/* The hidden state is half what follows, half noise. */
static lever_status mock_pause(world *w, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                               const lv_pause *pause, lever_error *error) {
    const lv_pruning_source source = {w, mock_hidden, mock_embedding, w->rows};
    uint32_t keep[LV_PRUNING_ROWS_MAX], keep_count = 0;
    assert_true(pause->layers_before > 0 && pause->view->rows_count == count + 1);
    w->pauses++;
    for (uint32_t row = 0; row <= count; row++) {
        const uint32_t right = (uint32_t)token_behind(w, tree, row == 0 ? LV_TREE_ROOT : nodes[row - 1]);
        for (uint32_t i = 0; i < PREDICTOR_WIDTH; i++) w->hidden[row][i] = (float)(hash_of(right, i, 9) % 7);
    }
    LV_TRY(pause->middle(pause->user, &source, keep, &keep_count, error));
    assert_true(keep_count >= 1 && keep_count <= count + 1 && keep[0] == 0);
    for (uint32_t i = 1; i < keep_count; i++) {
        assert_true(keep[i] > keep[i - 1] && keep[i] <= count);
        const uint32_t parent = tree->nodes[nodes[keep[i] - 1]].parent;
        bool found = parent == LV_TREE_ROOT;
        for (uint32_t k = 1; k < i; k++) found = found || nodes[keep[k] - 1] == parent;
        assert_true(found);
    }
    w->rows_pruned += count + 1 - keep_count;
    return LEVER_OK;
}

static lever_status mock_verify(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                                const lv_pause *pause, lever_error *error) {
    world *w = user;
    assert_int_equal(split == LV_SPLIT_ONE, w->is_ahead);
    w->batch_count = 0;
    w->nodes_verified += count;
    for (uint32_t i = 0; i < count; i++) {
        const lv_node *node = &tree->nodes[nodes[i]];
        assert_int_equal(node->row, i + 1);
        assert_true(nodes[i] > (i > 0 ? nodes[i - 1] : LV_TREE_ROOT));
        assert_true(node->parent == LV_TREE_ROOT || tree->nodes[node->parent].row <= i);
    }
    if (pause) LV_TRY(mock_pause(w, tree, nodes, count, pause, error));
    LV_TRY(count_call(w, CALL_VERIFY, error));
    w->passes++;
    return LEVER_OK;
}

static lever_status mock_head(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                              lever_error *error) {
    world *w = user;
    assert_true(count >= 1 && count <= w->head_rows_max);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(nodes[i] == LV_TREE_ROOT || tree->nodes[nodes[i]].row != LV_TREE_NONE);
        for (uint32_t j = 0; j < i; j++) assert_int_not_equal(nodes[i], nodes[j]);
        w->batch[i] = nodes[i];
    }
    LV_TRY(count_call(w, CALL_HEAD, error));
    w->batch_count = count;
    return LEVER_OK;
}

static int32_t mock_token(void *user, const lv_tree *tree, uint32_t node, uint32_t index) {
    const world *w = user;
    assert_true(index < w->batch_count);
    assert_int_equal(w->batch[index], node);
    return token_behind(w, tree, node);
}

static void mock_target_commit(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    world *w = user;
    assert_int_equal(++w->target_commits, w->passes);
    for (uint32_t i = 0; i < path_count; i++) {
        assert_int_equal(tree->nodes[path[i]].parent, i > 0 ? path[i - 1] : LV_TREE_ROOT);
        assert_int_not_equal(tree->nodes[path[i]].row, LV_TREE_NONE);
    }
    w->path_count = path_count;
    memcpy(w->path, path, path_count * sizeof(*path));
}

static double mock_now(void *user) {
    world *w = user;
    return w->now += 0.0005;
}

/* --- An answer --------------------------------------------------------------------------------------------------- */

typedef struct {
    lever_strategy strategy;
    lever_head_mode head;
    bool lookup, ahead, frozen, no_drafter;
    uint32_t nodes_fixed, nodes_max, chain_length, quality, partial, head_rows_max;
    enum { PRUNE_NOT, PRUNE_BY_COST, PRUNE_HALF, PRUNE_ALL, PRUNE_KNOWING, PRUNE_STEERING } prune;
} setup;

static int32_t answer[ANSWER]; /* what will follow the prompt */

static void set_pruning(world *w, lv_cycle *cycle, const setup *s) {
    static lv_predictor *predictor; /* one for all: it does not change */
    const lv_predictor_shape shape = {.layer = 1, .layers_count = 4, .width = PREDICTOR_WIDTH, .rank = 2};
    lever_error error;
    if (s->prune == PRUNE_NOT) return;
    if (!predictor) CHECK_OK(lv_predictor_open(&predictor, &shape, 1, NULL, &error));
    w->predictor = cycle->pruning.predictor = predictor;
    cycle->pruning.cap = s->prune == PRUNE_HALF ? 0.5f : s->prune == PRUNE_STEERING ? 0 : 1;
    cycle->pruning.forced = s->prune == PRUNE_HALF || s->prune == PRUNE_ALL;
    cycle->drafting.prune_before = 0.25;
    if (s->prune != PRUNE_KNOWING) return;
    int32_t text[TEXT];
    memcpy(text, w->text, PROMPT * sizeof(*text));
    for (size_t i = PROMPT; i < TEXT; i++) answer[i - PROMPT] = text[i] = true_token(text, i);
    cycle->pruning.known = answer;
    cycle->pruning.known_first = PROMPT;
    cycle->pruning.known_count = ANSWER;
}

static void begin(world *w, lv_cycle *cycle, const setup *s) {
    lever_error error;
    memset(w, 0, sizeof(*w));
    CHECK_OK(lv_cycle_open(cycle, NULL, &error));
    lv_costs_init(&cycle->costs, 2e-4, 1e-3, 2e-4, .02, .005);
    cycle->costs.frozen = cycle->calibration.frozen = s->frozen;
    lv_drafting_init(&cycle->drafting, s->strategy);
    if (s->nodes_fixed) cycle->drafting.nodes_fixed = s->nodes_fixed;
    if (s->nodes_max) cycle->drafting.nodes_max = s->nodes_max;
    if (s->chain_length) cycle->drafting.chain_length = s->chain_length;
    if (s->head_rows_max) cycle->drafting.head_rows_max = s->head_rows_max;
    w->head_rows_max = cycle->drafting.head_rows_max;
    cycle->head = s->head;
    cycle->lookup = s->lookup;
    cycle->ahead = s->ahead;
    w->calibration = &cycle->calibration;
    w->quality = s->quality;
    w->partial = s->partial;
    w->children = cycle->drafting.children;
    for (w->text_count = 0; w->text_count < PROMPT; w->text_count++)
        w->text[w->text_count] = (int32_t)(w->text_count * 7 % VOCABULARY);
    lv_tree_reset(&cycle->tree, w->text[PROMPT - 1]);
    set_pruning(w, cycle, s);
}

static lever_status run_one(world *w, lv_cycle *cycle, const setup *s, lv_cycle_watch_fn watch, lever_error *error) {
    const lv_drafter drafter = {
        w, mock_expand, mock_ahead_begin, mock_ahead_end, mock_drafter_commit, mock_rerooted, mock_scored};
    const lv_target target = {w, mock_verify, mock_head, mock_token, mock_target_commit, mock_now};
    lv_cycle_result result;
    const size_t left = TEXT - w->text_count - 1;
    cycle->drafting.depth_max = left < LV_TREE_DEPTH_MAX ? (uint32_t)left : LV_TREE_DEPTH_MAX;
    LV_TRY(lv_cycle_run(cycle, s->no_drafter ? NULL : &drafter, &target, w->text, w->text_count, watch, w, &result,
                        error));
    assert_true(result.path_count <= left);
    assert_true(result.lost_count == 0 || result.pruned_count > 0);
    if (s->prune == PRUNE_KNOWING) assert_int_equal(result.lost_count, 0);
    assert_int_equal(result.path_count, w->path_count);
    for (uint32_t i = 0; i < result.path_count; i++) w->text[w->text_count++] = result.path_tokens[i];
    w->text[w->text_count++] = result.token;
    assert_int_equal(cycle->tree.nodes[LV_TREE_ROOT].token, result.token);
    assert_true(lv_tree_is_sound(&cycle->tree));
    return LEVER_OK;
}

static void check_text(const world *w) {
    for (size_t i = PROMPT; i < w->text_count; i++) assert_int_equal(w->text[i], true_token(w->text, i));
}

static lever_status run_all(world *w, lv_cycle *cycle, const setup *s, lever_error *error) {
    begin(w, cycle, s);
    while (w->text_count < TEXT) LV_TRY(run_one(w, cycle, s, NULL, error));
    assert_int_equal(w->text_count, TEXT);
    return LEVER_OK;
}

/* --- Tests ------------------------------------------------------------------------------------------------------- */

static void test_text_is_the_targets(void **state) {
    (void)state;
    static const uint32_t fixed[] = {0, 1, 7, 60}, qualities[] = {0, 55, 100}, partials[] = {0, 3};
    for (uint32_t n = 0; n < 3u * 4 * 4 * 3 * 2 * 8; n++) {
        uint32_t left = n;
        setup s = {.strategy = LEVER_STRATEGY_LEVER};
        static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_CHAIN, LEVER_STRATEGY_EDGE};
        s.strategy = strategies[left % 3];
        s.head = (lever_head_mode)((left /= 3) % 4);
        s.nodes_fixed = s.chain_length = fixed[(left /= 4) % 4];
        s.quality = qualities[(left /= 4) % 3];
        s.partial = partials[(left /= 3) % 2];
        s.lookup = (left /= 2) & 1;
        s.ahead = left & 2;
        s.frozen = left & 4;
        world w;
        lv_cycle cycle;
        lever_error error;
        CHECK_OK(run_all(&w, &cycle, &s, &error));
        check_text(&w);
        assert_int_equal(w.ahead_begun, w.ahead_ended);
        if (!s.ahead || s.strategy == LEVER_STRATEGY_CHAIN) assert_int_equal(w.ahead_begun, 0);
        /* Not when the text leaves room for one more token only. */
        if (s.ahead && s.strategy == LEVER_STRATEGY_EDGE) assert_true(w.ahead_begun + 1 >= w.passes);
        assert_int_equal(w.reroots, w.passes);
        /* What is learned of drafting ahead is of the policy that decides by it, on a machine that is as it was known.
         */
        const lv_ahead_record *ahead = &cycle.costs.ahead;
        const bool learned = ahead->kept[0] > 0 || ahead->kept[1] > 0;
        if (s.strategy != LEVER_STRATEGY_LEVER) assert_false(learned);
        if (s.strategy == LEVER_STRATEGY_LEVER && s.frozen) assert_true(learned);
        lv_cycle_close(&cycle);
    }
}

static void test_plain(void **state) {
    (void)state;
    static const setup setups[] = {{.strategy = LEVER_STRATEGY_AR, .quality = 100, .ahead = true, .lookup = true},
                                   {.strategy = LEVER_STRATEGY_LEVER, .no_drafter = true, .ahead = true},
                                   {.strategy = LEVER_STRATEGY_LEVER, .nodes_max = 1, .nodes_fixed = 1, .quality = 0}};
    for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        world w;
        lv_cycle cycle;
        lever_error error;
        CHECK_OK(run_all(&w, &cycle, &setups[i], &error));
        check_text(&w);
        assert_int_equal(w.passes, ANSWER);
        if (i < 2) assert_int_equal(w.calls[CALL_EXPAND] + w.ahead_begun, 0);
        lv_cycle_close(&cycle);
    }
}

/* A draft that is always right: each chain is accepted to its end, and a tree of n nodes holds a path. */
static void test_a_perfect_draft(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 4, 8, 17};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const setup s = {.strategy = LEVER_STRATEGY_CHAIN, .chain_length = lengths[i], .quality = 100};
        world w;
        lv_cycle cycle;
        lever_error error;
        begin(&w, &cycle, &s);
        while (w.text_count < TEXT) {
            const size_t left = TEXT - w.text_count - 1, before = w.calls[CALL_EXPAND];
            CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
            const size_t wanted = lengths[i] < left ? lengths[i] : left;
            assert_int_equal(w.path_count, wanted);
            assert_int_equal(w.calls[CALL_EXPAND] - before, wanted);
        }
        check_text(&w);
        lv_cycle_close(&cycle);
    }
    const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 100};
    world w;
    lv_cycle cycle;
    lever_error error;
    CHECK_OK(run_all(&w, &cycle, &s, &error));
    assert_true(w.passes < ANSWER / 6);
    lv_cycle_close(&cycle);
}

/* Chains stay chains, whatever the last cycle left and whatever the text holds. */
static void watch_chain(void *user, const lv_cycle *cycle, const lv_cycle_result *result) {
    (void)user;
    for (uint32_t i = 0; i < result->choice.nodes_count; i++) {
        const lv_node *node = &cycle->tree.nodes[result->choice.nodes[i]];
        assert_int_equal(node->feature.source, LV_SOURCE_DRAFT);
        assert_int_equal(node->parent, i > 0 ? result->choice.nodes[i - 1] : LV_TREE_ROOT);
        assert_true(cycle->tree.nodes[node->parent].expanded);
    }
}

static void test_a_chain_is_drafted(void **state) {
    (void)state;
    const setup s = {.strategy = LEVER_STRATEGY_CHAIN, .chain_length = 6, .quality = 55, .lookup = true};
    world w;
    lv_cycle cycle;
    lever_error error;
    begin(&w, &cycle, &s);
    while (w.text_count < TEXT) CHECK_OK(run_one(&w, &cycle, &s, watch_chain, &error));
    check_text(&w);
    lv_cycle_close(&cycle);
}

/* With a useless draft, what stood in the text before is what is accepted. */
static void test_lookup_alone(void **state) {
    (void)state;
    setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 0, .lookup = true, .nodes_fixed = 20};
    world with, without;
    lv_cycle cycle;
    lever_error error;
    CHECK_OK(run_all(&with, &cycle, &s, &error));
    lv_cycle_close(&cycle);
    s.lookup = false;
    CHECK_OK(run_all(&without, &cycle, &s, &error));
    lv_cycle_close(&cycle);
    assert_true(with.passes < without.passes);
}

/* Without a draft a text that repeats itself takes fewer passes, wherever logits have room. */
static void test_lookup_without_a_draft(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 3, LV_HEAD_ROWS_MAX};
    uint32_t head_calls[3];
    for (uint32_t n = 0; n < 3u * 4; n++) {
        const setup s = {.strategy = LEVER_STRATEGY_LEVER,
                         .head = (lever_head_mode)(n % 4),
                         .head_rows_max = rows[n / 4],
                         .no_drafter = true,
                         .lookup = true,
                         .ahead = true};
        world w;
        lv_cycle cycle;
        lever_error error;
        CHECK_OK(run_all(&w, &cycle, &s, &error));
        check_text(&w);
        assert_true(w.passes < ANSWER * 2 / 3);
        assert_int_equal(w.calls[CALL_EXPAND] + w.ahead_begun + w.drafter_commits, 0);
        if (s.head == LEVER_HEAD_PATH) head_calls[n / 4] = w.calls[CALL_HEAD];
        lv_cycle_close(&cycle);
    }
    assert_true(head_calls[0] > head_calls[1] && head_calls[1] >= head_calls[2]);
}

/* --- Ahead or not ------------------------------------------------------------------------------------------------ */

typedef struct {
    double io, all, one, draft; /* seconds: reading; a pass with all threads and with one; a forward of the draft */
    uint32_t quality, children; /* of the draft */
} machine;

static void set_curve(lv_cost_curve *curve, double seconds) {
    /* A few rows cost next to nothing more. */
    for (size_t p = 0; p < LV_COST_POINTS; p++) curve->seconds[p] = seconds * (1 + lv_cost_point_rows(p) / 1e4);
}

static void begin_on(world *w, lv_cycle *cycle, const machine *m) {
    const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = m->quality, .ahead = true};
    begin(w, cycle, &s);
    cycle->costs.frozen = true;
    cycle->costs.io_seconds = m->io;
    cycle->costs.ring_seconds = 0;
    set_curve(&cycle->costs.layers[LV_SPLIT_ALL], m->all);
    set_curve(&cycle->costs.layers[LV_SPLIT_ONE], m->one);
    set_curve(&cycle->costs.draft[LV_SPLIT_ALL], m->draft);
    set_curve(&cycle->costs.draft[LV_SPLIT_ONE], m->draft);
    w->children = cycle->drafting.children = m->children;
    /* A draft that is never right has shown so before. */
    for (uint32_t i = 0; i < 3000 && m->quality == 0; i++) {
        const lv_feature feature = {.source = LV_SOURCE_DRAFT, .depth = 1, .estimate = .7f, .margin = .7f};
        lv_calibration_learn(&cycle->calibration, &feature, false);
    }
}

/* The way that is better by the costs is the one that is taken, but for the few cycles that try the other one. */
static void test_the_better_way_is_taken(void **state) {
    (void)state;
    static const struct {
        machine m;
        bool ahead;
    } cases[] = {
        {{.io = .1, .all = .01, .one = .02, .draft = .001, .quality = 55, .children = 8}, true}, /* reading waits */
        {{.all = .1, .one = .125, .draft = .001, .quality = 55, .children = 8}, false}, /* little to be saved */
        {{.all = .1, .one = .103, .draft = .02, .quality = 90, .children = 8}, true},   /* much to be saved */
        {{.all = .1, .one = .2, .draft = .02, .quality = 90, .children = 8}, false},    /* a thread is half of it */
        {{.all = .15, .one = .158, .draft = .012, .quality = 0, .children = 1},
         false}, /* a draft that is never right */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        lv_cycle cycle;
        lever_error error;
        const setup s = {.strategy = LEVER_STRATEGY_LEVER, .ahead = true};
        begin_on(&w, &cycle, &cases[i].m);
        while (w.text_count < PROMPT + ANSWER / 2) CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
        const uint32_t passes = w.passes, ahead = w.ahead_begun;
        while (w.text_count < TEXT) CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
        const uint32_t taken = w.ahead_begun - ahead, all = w.passes - passes;
        check_text(&w);
        if (cases[i].ahead ? taken * 4 < all * 3 : taken * 4 > all) fail_msg("case %zu: ahead %u of %u", i, taken, all);
        lv_cycle_close(&cycle);
    }
}

/* --- A tree that grows on ---------------------------------------------------------------------------------------- */

/* Seconds: the pass of no row, what a row takes with all threads and with one, a forward of the draft, and what
 * drafting ahead saves. With a draft whose guesses are right and thought to be so by .7 the tree is a chain, and its
 * k-th node is worth .7 to the k-th: what each way gives can be worked out. */
typedef struct {
    double pass, all_row, one_row, forward, saved;
} straight_machine;

static void set_line(lv_cost_curve *curve, double first, double row) {
    for (size_t p = 0; p < LV_COST_POINTS; p++) curve->seconds[p] = first + row * lv_cost_point_rows(p);
}

/* Tokens a second of the best pass over a chain of which `drafted` nodes are expanded; *nodes_count: of that pass. */
static double straight_rate(const straight_machine *m, bool ahead, uint32_t drafted, uint32_t *nodes_count) {
    double tokens = 1, worth = 1, best_tokens = 0, best_seconds = 1;
    for (uint32_t n = 0; n <= drafted; n++) {
        const double seconds = drafted * m->forward + m->pass + (ahead ? m->one_row : m->all_row) * (n + 1);
        if (tokens / seconds > best_tokens / best_seconds) {
            best_tokens = tokens;
            best_seconds = seconds;
            *nodes_count = n;
        }
        tokens += worth *= .7;
    }
    return best_tokens / (best_seconds - (ahead ? m->saved : 0));
}

static void watch_growth(void *user, const lv_cycle *cycle, const lv_cycle_result *result) {
    world *w = user;
    w->seen = *result;
    w->grown = w->in_shade = 0;
    for (uint32_t i = 0; i < cycle->tree.nodes_count; i++) {
        const lv_node *node = &cycle->tree.nodes[i];
        if (i == 0 || cycle->tree.nodes[node->parent].ahead) continue;
        w->grown++;
        w->in_shade += node->row == LV_TREE_NONE;
        /* A chain: what is verified is what comes first. */
        assert_int_equal(node->row == LV_TREE_NONE, node->feature.depth > result->choice.nodes_count);
    }
}

/* One cycle behind one that was ahead or not; cycles ahead have kept `kept` of what was expected of them. */
static void run_straight(world *w, lv_cycle *cycle, const straight_machine *m, bool was_ahead, double kept) {
    const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 100, .ahead = true};
    lever_error error;
    begin(w, cycle, &s);
    w->children = cycle->drafting.children = 1;
    lv_costs_init(&cycle->costs, m->pass, m->forward, m->forward, 0, 0);
    cycle->costs.frozen = true;
    set_line(&cycle->costs.layers[LV_SPLIT_ALL], m->pass, m->all_row);
    set_line(&cycle->costs.layers[LV_SPLIT_ONE], m->pass, m->one_row);
    set_line(&cycle->costs.draft[LV_SPLIT_ALL], m->forward, 0);
    set_line(&cycle->costs.draft[LV_SPLIT_ONE], m->forward, 0);
    set_line(&cycle->costs.head, 0, 0);
    cycle->costs.ahead.levels[0].drafted[0] = (lv_ahead_drafted){.steps = m->saved / m->forward, .cycles = 9};
    cycle->costs.ahead.levels[0].drafted[1] = (lv_ahead_drafted){.steps = 0, .cycles = 9};
    cycle->costs.ahead.kept[1] = kept;
    cycle->last.ahead = was_ahead;
    CHECK_OK(run_one(w, cycle, &s, watch_growth, &error));
    assert_int_equal(w->seen.forwards_count, w->grown);
    assert_int_equal(w->seen.expanded_count, w->grown);
}

/* The draft was always right: the next root is the first node that was not in the pass, and whatever was drafted below
 * it is there. The last one that was drafted is not expanded but by drafting ahead. */
static void check_nothing_is_lost(const world *w, const lv_cycle *cycle) {
    const uint32_t verified = w->seen.choice.nodes_count, ahead = w->seen.expanded_ahead_count;
    const uint32_t before = w->grown - 1, gone = verified < w->grown + (ahead > 0) ? verified + 1 : verified;
    uint32_t expanded = 0;
    assert_int_equal(w->seen.path_count, verified);
    assert_int_equal(w->in_shade, w->grown - verified);
    for (uint32_t i = 0; i < cycle->tree.nodes_count; i++) expanded += cycle->tree.nodes[i].expanded;
    assert_int_equal(expanded, 1 + before + ahead - gone);
    assert_int_equal(cycle->tree.nodes[LV_TREE_ROOT].expanded, expanded > 0);
}

/* Behind a cycle that drafted ahead the tree is grown for a pass with one thread. Where the other way is near or better
 * by this tree, it grows to what a pass with all threads wants, and only then one is chosen; where it is far behind,
 * nothing more is drafted. */
static void test_a_tree_that_grows_on(void **state) {
    (void)state;
    static const straight_machine machines[] = {
        {.pass = .1, .all_row = .0005, .one_row = .004, .forward = .001},
        {.pass = .1, .all_row = .0005, .one_row = .004, .forward = .001, .saved = .02},
        {.pass = .2, .all_row = .002, .one_row = .0085, .forward = .002, .saved = .004},
    };
    static const struct {
        double ratio; /* ahead to not ahead, by the tree that was grown for one thread */
        bool grows, ahead;
    } cases[] = {
        {.3, true, false},  {.9, true, false},   {1.02, true, false}, /* by the small tree it would be ahead */
        {1.18, true, true}, {1.22, false, true}, {3, false, true},
    };
    for (size_t i = 0; i < 3 * sizeof(cases) / sizeof(cases[0]); i++) {
        const straight_machine *m = &machines[i % 3];
        const size_t c = i / 3;
        world w;
        lv_cycle cycle;
        uint32_t small_nodes = 0, one_nodes = 0, all_nodes = 0;
        /* How far each way's tree grows by itself. */
        run_straight(&w, &cycle, m, true, LV_AHEAD_KEPT_MOST);
        const uint32_t small = w.grown;
        lv_cycle_close(&cycle);
        run_straight(&w, &cycle, m, false, 1);
        const uint32_t large = w.grown;
        lv_cycle_close(&cycle);
        assert_true(small < large);
        const double by_small =
            straight_rate(m, true, small, &small_nodes) / straight_rate(m, false, small, &all_nodes);
        const double by_large = straight_rate(m, true, large, &one_nodes) / straight_rate(m, false, large, &all_nodes);
        const double kept = cases[c].ratio / by_small;
        if (cases[c].grows && (kept * by_large >= 1) != cases[c].ahead)
            fail_msg("machine %zu, ratio %g: the case is another one", i % 3, cases[c].ratio);

        run_straight(&w, &cycle, m, true, kept);
        if (w.grown != (cases[c].grows ? large : small) || w.seen.ahead != cases[c].ahead)
            fail_msg("machine %zu, ratio %g: %u of %u nodes, ahead %d", i % 3, cases[c].ratio, w.grown, large,
                     w.seen.ahead);
        assert_int_equal(w.seen.choice.nodes_count, !cases[c].ahead  ? all_nodes
                                                    : cases[c].grows ? one_nodes
                                                                     : small_nodes);
        assert_int_equal(w.ahead_begun, cases[c].ahead);
        check_nothing_is_lost(&w, &cycle);
        lv_cycle_close(&cycle);

        /* Behind a cycle that did not draft ahead it is grown for all threads at once; the choice is that of the tree.
         */
        run_straight(&w, &cycle, m, false, kept);
        assert_int_equal(w.grown, large);
        assert_int_equal(w.seen.ahead, kept * by_large >= 1);
        assert_int_equal(w.seen.choice.nodes_count, w.seen.ahead ? one_nodes : all_nodes);
        check_nothing_is_lost(&w, &cycle);
        lv_cycle_close(&cycle);
    }
}

static void test_head_modes(void **state) {
    (void)state;
    setup s = {.strategy = LEVER_STRATEGY_CHAIN, .chain_length = 20, .quality = 100, .frozen = true};
    uint32_t calls[4];
    for (uint32_t head = 0; head < 4; head++) {
        world w;
        lv_cycle cycle;
        lever_error error;
        s.head = (lever_head_mode)head;
        begin(&w, &cycle, &s);
        CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
        assert_int_equal(w.path_count, 20);
        calls[head] = w.calls[CALL_HEAD];
        lv_cycle_close(&cycle);
    }
    assert_int_equal(calls[LEVER_HEAD_DEMAND], 21);
    assert_int_equal(calls[LEVER_HEAD_PATH], 2);
    assert_int_equal(calls[LEVER_HEAD_ALL], 2);
    assert_true(calls[LEVER_HEAD_AUTO] >= 2 && calls[LEVER_HEAD_AUTO] <= 21);
}

/* Each call fails once: the failure comes back as it was, the draft is never left running ahead, and what had become
 * text is right. */
static void test_failures_are_passed_up(void **state) {
    (void)state;
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_EDGE};
    for (uint32_t n = 0; n < 2u * CALLS_COUNT; n++) {
        const setup s = {
            .strategy = strategies[n % 2], .quality = 55, .ahead = true, .lookup = true, .prune = PRUNE_HALF};
        const uint32_t which = n / 2;
        uint32_t failures = 0;
        if (which == CALL_EMBEDDING && s.strategy != LEVER_STRATEGY_LEVER) continue; /* which is never asked for any */
        for (uint32_t nth = 1;; nth += which == CALL_EMBEDDING ? 97 : 1) {
            world w;
            lv_cycle cycle;
            lever_error error = {0};
            begin(&w, &cycle, &s);
            w.fail_at[which] = nth;
            lever_status status = LEVER_OK;
            while (w.text_count < TEXT && status == LEVER_OK) status = run_one(&w, &cycle, &s, NULL, &error);
            check_text(&w);
            assert_false(w.is_ahead);
            assert_int_equal(w.ahead_begun, w.ahead_ended);
            lv_cycle_close(&cycle);
            if (status == LEVER_OK) break;
            assert_int_equal(status, LEVER_E_IO);
            assert_int_equal(error.status, LEVER_E_IO);
            assert_non_null(strstr(error.message, "was to fail"));
            assert_int_equal(w.calls[which], nth);
            failures++;
        }
        assert_true(failures > 3);
    }
}

/* When both the pass and the draft fail, the pass is what is told. */
static void test_two_failures_at_once(void **state) {
    (void)state;
    const setup s = {.strategy = LEVER_STRATEGY_EDGE, .quality = 55, .ahead = true};
    world w;
    lv_cycle cycle;
    lever_error error;
    begin(&w, &cycle, &s);
    w.fail_at[CALL_VERIFY] = w.fail_at[CALL_AHEAD_END] = 1;
    CHECK_FAILS(run_one(&w, &cycle, &s, NULL, &error), LEVER_E_IO, "of kind 1");
    assert_int_equal(w.target_commits + w.drafter_commits + w.reroots, 0);
    lv_cycle_close(&cycle);
}

/* Whatever the predictor says, the text is the target's; a pruner that knows loses nothing. */
static void test_pruning_keeps_the_text(void **state) {
    (void)state;
    static const uint32_t fixed[] = {0, 5, 40}, qualities[] = {0, 55, 100};
    uint32_t pruned = 0, lost_passes = 0, scored = 0;
    for (uint32_t n = 0; n < 4u * 3 * 3 * 4 * 8; n++) {
        uint32_t left = n;
        setup s = {.strategy = LEVER_STRATEGY_LEVER};
        static const uint32_t prunes[] = {PRUNE_BY_COST, PRUNE_HALF, PRUNE_ALL, PRUNE_KNOWING};
        const uint32_t prune = prunes[left % 4];
        s.nodes_fixed = fixed[(left /= 4) % 3];
        s.quality = qualities[(left /= 3) % 3];
        s.head = (lever_head_mode)((left /= 3) % 4);
        s.ahead = (left /= 4) & 1;
        s.frozen = left & 2;
        s.lookup = left & 4;
        world w;
        lv_cycle cycle;
        lever_error error;
        CHECK_OK(run_all(&w, &cycle, &s, &error));
        const uint32_t passes = w.passes;
        lv_cycle_close(&cycle);
        s.prune = prune;
        CHECK_OK(run_all(&w, &cycle, &s, &error));
        check_text(&w);
        if (s.prune != PRUNE_BY_COST) assert_true(w.pauses > 0 || s.quality == 0);
        if (!s.ahead) assert_int_equal(w.scored_ahead, 0);
        if (s.prune == PRUNE_ALL && s.nodes_fixed > 5) assert_true(w.rows_pruned > w.passes);
        pruned += w.rows_pruned;
        scored += w.scored_ahead;
        lost_passes += w.passes > passes;
        lv_cycle_close(&cycle);
    }
    assert_true(pruned > 0 && lost_passes > 0 && scored > 0);
}

/* With a cap of 0 the predictor is asked for the draft's sake alone, whether rows could be saved or not. */
static void test_a_predictor_that_only_steers(void **state) {
    (void)state;
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 55, .ahead = ahead, .prune = PRUNE_STEERING};
        world w;
        lv_cycle cycle;
        lever_error error;
        CHECK_OK(run_all(&w, &cycle, &s, &error));
        check_text(&w);
        assert_true(w.pauses > 0);
        assert_int_equal(w.rows_pruned, 0);
        if (!ahead) assert_int_equal(w.scored_ahead, 0);
        lv_cycle_close(&cycle);
    }
}

/* Trees are sized by the share of nodes that goes on: it follows what passes did, and is all where none may go. */
static void test_the_share_that_goes_on(void **state) {
    (void)state;
    static const struct {
        uint32_t prune, level;
        double io_seconds, before, least, most;
    } rows[] = {
        {PRUNE_BY_COST, LV_PRUNING_LEVELS, 0, 0.6, 1, 1}, /* pruning has ended */
        {PRUNE_BY_COST, LV_PRUNING_LEVELS, 0.02, 0.6, 1, 1},
        {PRUNE_STEERING, 0, 0, 0.6, 1, 1},        /* none may go */
        {PRUNE_BY_COST, 0, 100, 0.6, 0.64, 0.64}, /* rows are free beside reading: it was not asked */
        {PRUNE_BY_COST, 0, 100, 1, 1, 1},
        {PRUNE_ALL, 0, 0, 1, 0.9, 0.99}, /* a pass with rows that went */
        {PRUNE_ALL, LV_PRUNING_LEVELS, 0, 0.6, 1, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 55, .prune = rows[i].prune, .nodes_fixed = 20};
        world w;
        lv_cycle cycle;
        lever_error error;
        begin(&w, &cycle, &s);
        lv_costs_init(&cycle.costs, 2e-4, 1e-3, 2e-4, rows[i].io_seconds, 0);
        cycle.drafting.prune_kept = rows[i].before;
        cycle.pruning.watch.level = rows[i].level;
        CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
        const double kept = cycle.drafting.prune_kept;
        if (kept < rows[i].least - 1e-9 || kept > rows[i].most + 1e-9) fail_msg("row %zu: %g", i, kept);
        lv_cycle_close(&cycle);
    }
}

/* When pruning has ended, trees are those of a session without a predictor. */
static void test_trees_when_pruning_has_ended(void **state) {
    (void)state;
    uint32_t verified[3];
    for (uint32_t i = 0; i < 3; i++) {
        const setup s = {.strategy = LEVER_STRATEGY_LEVER,
                         .quality = 55,
                         .frozen = true,
                         .prune = i == 0 ? PRUNE_NOT : PRUNE_BY_COST};
        world w;
        lv_cycle cycle;
        lever_error error;
        begin(&w, &cycle, &s);
        lv_costs_init(&cycle.costs, 2e-3, 1e-4, 2e-4, 0, 0);
        cycle.costs.frozen = true;
        if (i > 0) cycle.drafting.prune_kept = 0.3;
        if (i == 1) cycle.pruning.watch.level = LV_PRUNING_LEVELS;
        CHECK_OK(run_one(&w, &cycle, &s, NULL, &error));
        verified[i] = w.nodes_verified;
        lv_cycle_close(&cycle);
    }
    assert_int_equal(verified[1], verified[0]);
    assert_true(verified[2] > verified[0]); /* else this test says nothing */
}

/* A predictor that was refined is watched anew, by every session that uses it; else the watch goes on. */
static void test_a_refined_predictor_is_watched_anew(void **state) {
    (void)state;
    const setup s = {.strategy = LEVER_STRATEGY_LEVER, .quality = 55, .prune = PRUNE_BY_COST};
    world w[2];
    lv_cycle cycles[2];
    lever_error error;
    for (uint32_t i = 0; i < 2; i++) {
        begin(&w[i], &cycles[i], &s);
        CHECK_OK(run_one(&w[i], &cycles[i], &s, NULL, &error));
        cycles[i].pruning.watch = (lv_pruning_watch){.level = LV_PRUNING_LEVELS, .found = 3, .lost = 2};
        CHECK_OK(run_one(&w[i], &cycles[i], &s, NULL, &error));
        assert_int_equal(cycles[i].pruning.watch.level, LV_PRUNING_LEVELS);
    }
    w[0].predictor->version++;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(run_one(&w[i], &cycles[i], &s, NULL, &error));
        assert_int_equal(cycles[i].pruning.watch.level, 0);
        lv_cycle_close(&cycles[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_the_targets),
        cmocka_unit_test(test_pruning_keeps_the_text),
        cmocka_unit_test(test_a_predictor_that_only_steers),
        cmocka_unit_test(test_the_share_that_goes_on),
        cmocka_unit_test(test_trees_when_pruning_has_ended),
        cmocka_unit_test(test_a_refined_predictor_is_watched_anew),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_a_perfect_draft),
        cmocka_unit_test(test_a_chain_is_drafted),
        cmocka_unit_test(test_lookup_alone),
        cmocka_unit_test(test_lookup_without_a_draft),
        cmocka_unit_test(test_the_better_way_is_taken),
        cmocka_unit_test(test_a_tree_that_grows_on),
        cmocka_unit_test(test_head_modes),
        cmocka_unit_test(test_failures_are_passed_up),
        cmocka_unit_test(test_two_failures_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
