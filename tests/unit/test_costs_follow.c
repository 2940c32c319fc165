/* A machine that becomes four times slower, or faster, in one of its parts: what cycles learn of it within ten of them
 * is enough to decide nearly as well as who knows the truth. Models and clock are played; time is what the true costs
 * say, with noise. */
#include <math.h>

#include "spec/candidates.h"
#include "spec/cycle.h"
#include "support/check.h"

enum {
    VOCABULARY = 1000,
    TEXT_MAX = 12000,
    PROMPT = 4,
    WARM = 100, /* cycles before the change */
    KNOWN = 10, /* and after it */
    JUDGED_FROM = 9000,
    JUDGED = 1200 /* tokens by whose time decisions are compared */
};

/* Of the speed with the truth. */
#define WORTH_LEAST 0.95
#define NOISE 0.1

typedef struct {
    lv_costs truth;
    int32_t text[TEXT_MAX + LV_TREE_DEPTH_MAX];
    size_t text_count;
    uint32_t batch[LV_HEAD_ROWS_MAX];
    uint32_t state; /* of the noise */
    double now, pass_end;
    lv_cycle cycle;
    uint32_t cycles, nodes; /* verified */
} world;

static uint32_t hash_of(uint32_t a, uint32_t b) {
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h = (h ^ h >> 12) * 0x297a2d39u;
    return h ^ h >> 15;
}

static int32_t token_at(size_t position) {
    return (int32_t)(hash_of((uint32_t)position, 1) % VOCABULARY);
}

static double noisy(world *w, double seconds) {
    w->state = w->state * 1664525u + 1013904223u;
    return seconds * (1 + NOISE * ((double)(w->state >> 8 & 0xffff) / 65535 - 0.5) * 2);
}

/* What follows a node: the text, where its path is that of the text. */
static int32_t token_behind(const world *w, const lv_tree *tree, uint32_t node, size_t *position) {
    uint32_t path[LV_TREE_DEPTH_MAX];
    const uint32_t depth = lv_tree_path(tree, node, path);
    *position = w->text_count + depth;
    for (uint32_t i = 0; i < depth; i++) {
        if (tree->nodes[path[i]].token == token_at(w->text_count + i)) continue;
        return (int32_t)(hash_of((uint32_t)tree->nodes[node].token, (uint32_t)*position) % VOCABULARY);
    }
    return token_at(*position);
}

/* --- The draft --------------------------------------------------------------------------------------------------- */

/* Easy places and hard ones, in which the draft is as often right as it says. */
static void guess(world *w, lv_tree *tree, uint32_t node) {
    static const float first[] = {0.95f, 0.8f, 0.5f, 0.3f};
    size_t position;
    const int32_t right = token_behind(w, tree, node, &position);
    const uint32_t number = hash_of((uint32_t)position, 2);
    const float best = first[number % 4], chance = (float)(number / 4 % 1000) / 1000;
    lv_candidate found[LV_TREE_CHILDREN_MAX];
    float sum = 0, estimate = best;
    for (uint32_t i = 0; i < w->cycle.drafting.children; i++) {
        const bool is_right = chance >= sum && chance < sum + estimate;
        found[i] = (lv_candidate){is_right ? right : (right + 1 + (int32_t)i) % VOCABULARY, estimate};
        sum += estimate;
        estimate = (1 - sum) / 2;
    }
    lv_candidates_add(tree, node, LV_SOURCE_DRAFT, &w->cycle.calibration, found, w->cycle.drafting.children);
    tree->nodes[node].expanded = true;
}

static double forward(world *w, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split) {
    for (uint32_t i = 0; i < count; i++) guess(w, tree, nodes[i]);
    const double seconds = noisy(w, lv_cost_curve_at(&w->truth.draft[split], count));
    lv_costs_learn_draft(&w->cycle.costs, split, count, seconds);
    return seconds;
}

static lever_status expand(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                           uint32_t *expanded, double *seconds, lever_error *error) {
    world *w = user;
    (void)error;
    *expanded = count;
    *seconds = forward(w, tree, nodes, count, split);
    w->now += *seconds;
    return LEVER_OK;
}

static void ahead_begin(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds) {
    world *w = user;
    for (;;) {
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
        const uint32_t count = lv_drafting_next_ahead(drafting, view, nodes);
        if (count == 0) return;
        const double taken = lv_cost_curve_at(&w->truth.draft[LV_SPLIT_ONE], count);
        if (taken > seconds) return;
        seconds -= taken;
        forward(w, view->tree, nodes, count, LV_SPLIT_ONE);
        for (uint32_t i = 0; i < count; i++) view->tree->nodes[nodes[i]].ahead = true;
    }
}

static lever_status ahead_end(void *user, lever_error *error) {
    (void)user;
    (void)error;
    return LEVER_OK;
}

static void drafter_commit(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    (void)user;
    (void)tree;
    (void)path;
    (void)path_count;
}

static void rerooted(void *user, lv_tree *tree) {
    (void)user;
    (void)tree;
}

/* --- The target -------------------------------------------------------------------------------------------------- */

static lever_status verify(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                           const lv_pause *pause, lever_error *error) {
    world *w = user;
    (void)tree;
    (void)nodes;
    (void)pause;
    (void)error;
    const double idle = w->now - w->pass_end;
    const double compute = noisy(w, lv_cost_curve_at(&w->truth.layers[split], count + 1));
    const double read = noisy(w, w->truth.io_seconds);
    const double pass = fmax(compute, read - fmin(idle, w->truth.ring_seconds));
    w->now = w->pass_end = w->now + pass;
    const lv_pass_seconds took = {
        .pass = pass, .compute = compute, .wait = pass - compute, .idle = idle, .read = fmin(read, pass + idle)};
    lv_costs_learn_pass(&w->cycle.costs, split, count + 1, &took);
    return LEVER_OK;
}

static lever_status head(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lever_error *error) {
    world *w = user;
    (void)tree;
    (void)nodes;
    (void)error;
    w->now += noisy(w, lv_cost_curve_at(&w->truth.head, count));
    return LEVER_OK;
}

static int32_t token(void *user, const lv_tree *tree, uint32_t node, uint32_t index) {
    size_t position;
    (void)index;
    return token_behind(user, tree, node, &position);
}

static void target_commit(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    (void)user;
    (void)tree;
    (void)path;
    (void)path_count;
}

static double now(void *user) {
    return ((const world *)user)->now;
}

static void run_one(world *w) {
    const lv_drafter drafter = {w, expand, ahead_begin, ahead_end, drafter_commit, rerooted, NULL};
    const lv_target target = {w, verify, head, token, target_commit, now};
    lv_cycle_result result;
    lever_error error;
    CHECK_OK(lv_cycle_run(&w->cycle, &drafter, &target, w->text, w->text_count, NULL, NULL, &result, &error));
    for (uint32_t n = 0; n < result.path_count; n++) w->text[w->text_count++] = result.path_tokens[n];
    w->text[w->text_count++] = result.token;
    assert_true(w->text_count < TEXT_MAX);
    w->cycles++;
    w->nodes += result.choice.nodes_count;
}

static void run(world *w, uint32_t cycles) {
    for (uint32_t i = 0; i < cycles; i++) run_one(w);
}

/* --- What changes ------------------------------------------------------------------------------------------------ */

typedef enum { READ, LAYERS, LAYERS_ALL, HEAD, DRAFT, EVERYTHING, PARTS_COUNT } part;
static const char *const part_names[PARTS_COUNT] = {"reading", "layers",    "layers with all threads",
                                                    "head",    "the draft", "everything"};

static void scale(lv_cost_curve *curve, double factor) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) curve->seconds[i] *= factor;
}

static void change(lv_costs *truth, part what, double factor) {
    if (what == READ || what == EVERYTHING) {
        truth->io_seconds *= factor;
        truth->ring_seconds *= factor;
    }
    if (what == LAYERS || what == EVERYTHING) scale(&truth->layers[LV_SPLIT_ONE], factor);
    if (what == LAYERS || what == LAYERS_ALL || what == EVERYTHING) scale(&truth->layers[LV_SPLIT_ALL], factor);
    if (what == HEAD || what == EVERYTHING) scale(&truth->head, factor);
    if (what == DRAFT || what == EVERYTHING) {
        scale(&truth->draft[LV_SPLIT_ONE], factor);
        scale(&truth->draft[LV_SPLIT_ALL], factor);
    }
}

typedef struct {
    const char *name;
    double layers, draft, head, io, ring, one; /* seconds of a row; what one thread takes, of all threads' time */
} machine;

static void set_truth(lv_costs *truth, const machine *m) {
    lv_costs_init(truth, m->layers, m->draft, m->head, m->io, m->ring);
    truth->layers[LV_SPLIT_ONE] = truth->layers[LV_SPLIT_ALL];
    truth->draft[LV_SPLIT_ONE] = truth->draft[LV_SPLIT_ALL];
    scale(&truth->layers[LV_SPLIT_ONE], m->one);
    scale(&truth->draft[LV_SPLIT_ONE], m->one);
}

static void go_to(world *w, size_t position) {
    w->text_count = position;
    lv_tree_reset(&w->cycle.tree, w->text[position - 1]);
}

static void open_world(world *w, const machine *m) {
    lever_error error;
    memset(w, 0, sizeof(*w));
    CHECK_OK(lv_cycle_open(&w->cycle, NULL, &error));
    w->cycle.ahead = true;
    set_truth(&w->truth, m);
    w->cycle.costs = w->truth;
    for (size_t i = 0; i < JUDGED_FROM; i++) w->text[i] = token_at(i);
    go_to(w, PROMPT);
    run(w, WARM);
    w->cycle.calibration.frozen = true;
}

/* Seconds that a part of the text takes with decisions by the costs as they are now. */
static double judged_seconds(world *w) {
    assert_true(w->text_count < JUDGED_FROM);
    go_to(w, JUDGED_FROM);
    w->cycle.costs.frozen = true;
    w->cycles = w->nodes = 0;
    const double begin = w->now;
    while (w->text_count < JUDGED_FROM + JUDGED) run_one(w);
    return w->now - begin;
}

/* With the truth, and the record of drafting ahead that shows under it. */
static double true_seconds(const machine *m, part what, double factor, double *nodes) {
    static world w;
    open_world(&w, m);
    change(&w.truth, what, factor);
    w.cycle.costs = w.truth;
    w.cycle.costs.frozen = true;
    run(&w, WARM);
    const double seconds = judged_seconds(&w);
    *nodes = (double)w.nodes / w.cycles;
    lv_cycle_close(&w.cycle);
    return seconds;
}

static const machine machines[] = {
    {"streamed", .layers = .02, .draft = .004, .head = .006, .io = .3, .ring = .03, .one = 1.8},
    {"half in memory", .layers = .02, .draft = .004, .head = .006, .io = .06, .ring = .03, .one = 1.2},
    {"in memory", .layers = .02, .draft = .004, .head = .003, .one = 1.2},
};

static void test_a_change_is_followed(void **state) {
    (void)state;
    static const double factors[] = {4, 0.25};
    uint32_t bad = 0;
    for (uint32_t n = 0; n < 3u * PARTS_COUNT * 2; n++) {
        static world w;
        const machine *m = &machines[n / 2 / PARTS_COUNT];
        const part what = (part)(n / 2 % PARTS_COUNT);
        if (what == READ && m->io <= 0) continue;
        double nodes;
        const double factor = factors[n % 2], wanted = true_seconds(m, what, factor, &nodes);
        open_world(&w, m);
        change(&w.truth, what, factor);
        run(&w, KNOWN);
        const double got = judged_seconds(&w);
        print_message("%s, %s times %g: %.2f of the speed with the truth; %.1f nodes, %.1f with the truth\n", m->name,
                      part_names[what], factor, wanted / got, (double)w.nodes / w.cycles, nodes);
        bad += wanted < WORTH_LEAST * got;
        lv_cycle_close(&w.cycle);
    }
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_change_is_followed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
