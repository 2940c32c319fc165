/* The policies on trees and costs in which the right choice is known: by trying every set of nodes, or by hand. */
#include "spec/drafting.h"

#include <math.h>

#include "support/check.h"

enum { SMALL_NODES = 11, ROUNDS = 300 };

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

typedef struct {
    lv_tree tree;
    lv_costs costs;
    lv_calibration calibration;
    lv_drafting drafting;
    lv_drafting_view view;
} world;

static void open_world(world *w, lever_strategy strategy) {
    lever_error error;
    memset(w, 0, sizeof(*w));
    CHECK_OK(lv_tree_open(&w->tree, NULL, &error));
    lv_tree_reset(&w->tree, 1);
    lv_costs_init(&w->costs, 1e-3, 1e-3, 1e-4, .01, 0);
    lv_calibration_init(&w->calibration);
    lv_drafting_init(&w->drafting, strategy);
    w->view = (lv_drafting_view){.tree = &w->tree,
                                 .costs = &w->costs,
                                 .calibration = &w->calibration,
                                 .split = LV_SPLIT_ALL,
                                 .draft_split = LV_SPLIT_ALL};
}

static void close_world(world *w) {
    lv_tree_close(&w->tree);
}

/* The draft's child number `rank`; a is the estimate. */
static uint32_t add(world *w, uint32_t parent, uint8_t rank, float a) {
    const lv_feature feature = {.source = LV_SOURCE_DRAFT, .rank = rank, .estimate = a, .margin = a};
    const uint32_t node = lv_tree_add(&w->tree, parent, 100 + rank, &feature, a);
    assert_int_not_equal(node, LV_TREE_NONE);
    w->tree.nodes[parent].expanded = true;
    return node;
}

/* A chain of nodes that all have this a; returns the last. */
static uint32_t add_chain(world *w, uint32_t parent, uint32_t length, float a) {
    for (uint32_t i = 0; i < length; i++) parent = add(w, parent, 0, a);
    return parent;
}

/* Seconds at 1, 2, 4, 8, 12, 16, 24, 32, 48, 64 and 96 rows, as measured. */
static void set_curve(lv_cost_curve *curve, const double seconds[LV_COST_POINTS]) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        curve->seconds[i] = seconds[i];
        curve->samples[i] = 100;
    }
}

static const double nothing[LV_COST_POINTS] = {1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9};

/* --- The best set, by brute force --------------------------------------------------------------------------------- */

static double seconds_of(const world *w, uint32_t nodes_count) {
    return w->view.drafted_seconds +
           lv_costs_pass(w->view.costs, w->view.split, nodes_count + 1, w->view.drafted_seconds);
}

static double score_of(const world *w, double tokens, uint32_t nodes_count) {
    const double seconds = seconds_of(w, nodes_count);
    if (w->drafting.stop_rule == LEVER_STOP_LONGRUN && w->drafting.rate > 0) return tokens - w->drafting.rate * seconds;
    return tokens / seconds;
}

/* Over every set of nodes that has their parents. */
static double best_score(const world *w) {
    double best = -(double)INFINITY;
    const uint32_t count = w->tree.nodes_count - 1;
    for (uint32_t set = 0; set < 1u << count; set++) {
        double tokens = 1;
        uint32_t members = 0;
        bool is_tree = true;
        for (uint32_t i = 0; i < count; i++) {
            if (!(set >> i & 1)) continue;
            const lv_node *node = &w->tree.nodes[i + 1];
            is_tree = is_tree && (node->parent == LV_TREE_ROOT || (set >> (node->parent - 1) & 1));
            tokens += (double)node->w;
            members++;
        }
        if (is_tree && score_of(w, tokens, members) > best) best = score_of(w, tokens, members);
    }
    return best;
}

static void random_costs(world *w, uint32_t *random) {
    double seconds[LV_COST_POINTS], at = .001 * (1 + draw(random, 10));
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        if (draw(random, 2)) at += .001 * draw(random, 12); /* stairs */
        seconds[i] = at;
    }
    set_curve(&w->costs.layers[LV_SPLIT_ALL], seconds);
    set_curve(&w->costs.head, nothing);
    w->costs.io_seconds = .001 * draw(random, 15);
    w->view.drafted_seconds = .001 * draw(random, 5);
}

static void test_choice_is_the_best_set(void **state) {
    (void)state;
    uint32_t random = 1, empty = 0, whole = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        world w;
        open_world(&w, LEVER_STRATEGY_LEVER);
        random_costs(&w, &random);
        for (uint32_t i = 1; i < SMALL_NODES; i++) {
            const uint32_t parent = draw(&random, i);
            add(&w, parent, (uint8_t)i, 0.01f + (float)draw(&random, 98) / 100);
        }
        if (round % 2) {
            w.drafting.stop_rule = LEVER_STOP_LONGRUN;
            w.drafting.rate = 20 + draw(&random, 400);
        }
        lv_drafting_choice choice;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        double tokens = 1;
        for (uint32_t i = 0; i < choice.nodes_count; i++) {
            const lv_node *node = &w.tree.nodes[choice.nodes[i]];
            bool has_parent = node->parent == LV_TREE_ROOT;
            for (uint32_t j = 0; j < i; j++) has_parent = has_parent || choice.nodes[j] == node->parent;
            assert_true(has_parent);
            assert_true(i == 0 || choice.nodes[i] > choice.nodes[i - 1]);
            tokens += (double)node->w;
        }
        assert_true(fabs(choice.tokens - tokens) < 1e-6);
        assert_true(fabs(choice.seconds - seconds_of(&w, choice.nodes_count)) < 1e-6);
        const double score = score_of(&w, tokens, choice.nodes_count), best = best_score(&w);
        if (!(fabs(score - best) <= 1e-5 * (1 + fabs(best)))) fail_msg("round %u: %g, not %g", round, score, best);
        empty += choice.nodes_count == 0;
        whole += choice.nodes_count == SMALL_NODES - 1;
        close_world(&w);
    }
    assert_true(empty > 3 && whole > 3);
}

/* Rows up to 8 cost the same, and so do those from 12 to 24: the first node beyond the step does not pay, all do. */
static void test_a_group_pays_where_one_does_not(void **state) {
    (void)state;
    static const double stairs[LV_COST_POINTS] = {.01, .01, .01, .01, .02, .02, .02, .2, .4, .8, 1};
    static const struct {
        float a;
        uint32_t there, chosen;
    } cases[] = {{.4f, 8, 7}, {.4f, 30, 23}, {.05f, 30, 7}, {.4f, 3, 3}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        open_world(&w, LEVER_STRATEGY_LEVER);
        w.costs.io_seconds = 0;
        set_curve(&w.costs.layers[LV_SPLIT_ALL], stairs);
        set_curve(&w.costs.head, nothing);
        for (uint32_t n = 0; n < cases[i].there; n++) add(&w, LV_TREE_ROOT, (uint8_t)n, cases[i].a);
        lv_drafting_choice choice;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, cases[i].chosen);
        close_world(&w);
    }
}

/* --- Whether to draft -------------------------------------------------------------------------------------------- */

static void test_when_to_draft(void **state) {
    (void)state;
    static const struct {
        double io, row, draft; /* seconds */
        bool pays;
    } cases[] = {
        {.3, .001, .002, true},   /* a streamed target */
        {0, .02, .001, true},     /* in memory, but rows share the weights */
        {0, .001, .010, false},   /* the draft is slower than the target */
        {.001, .001, .05, false}, /* much slower */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        open_world(&w, LEVER_STRATEGY_LEVER);
        lv_costs_init(&w.costs, cases[i].row, cases[i].draft, 1e-4, cases[i].io, 0);
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
        const uint32_t count = lv_drafting_next(&w.drafting, &w.view, nodes);
        assert_int_equal(count, cases[i].pays);
        if (count) assert_int_equal(nodes[0], LV_TREE_ROOT);
        lv_drafting_choice choice;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, 0);
        assert_true(choice.tokens == 1);
        close_world(&w);
    }
}

/* One forward that gives five tokens a pass is worth at most what the long-run rate says of its time. */
static void test_long_run_rate(void **state) {
    (void)state;
    world w;
    open_world(&w, LEVER_STRATEGY_LEVER);
    lv_costs_init(&w.costs, 1e-4, .01, 1e-6, .1, 0);
    uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
    w.drafting.stop_rule = LEVER_STOP_LONGRUN;
    w.drafting.rate = 50; /* 10 ms are worth half a token; the children together about one */
    assert_int_equal(lv_drafting_next(&w.drafting, &w.view, nodes), 1);
    w.drafting.rate = 200; /* two tokens */
    assert_int_equal(lv_drafting_next(&w.drafting, &w.view, nodes), 0);
    w.drafting.rate = 0; /* not known: as by its own average */
    assert_int_equal(lv_drafting_next(&w.drafting, &w.view, nodes), 1);
    close_world(&w);
}

/* Wherever a forward is asked for: nodes that are not expanded, in no wider a batch than allowed, the likeliest first,
 * each behind its parent; until nothing more pays. */
static void test_forwards_come_to_an_end(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        world w;
        uint32_t random = round, forwards = 0;
        open_world(&w, LEVER_STRATEGY_LEVER);
        w.drafting.width_max = 1 + draw(&random, LV_DRAFTING_WIDTH_MAX);
        w.drafting.nodes_max = 1 + draw(&random, LV_DRAFTING_NODES_MAX);
        w.drafting.depth_max = 1 + draw(&random, 12);
        if (round % 4 == 0) w.drafting.nodes_fixed = 1 + draw(&random, 60);
        lv_costs_init(&w.costs, 1e-4, 1e-4, 1e-5, .02 + .001 * draw(&random, 300), 0);
        for (;; forwards++) {
            uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
            const uint32_t count = lv_drafting_next(&w.drafting, &w.view, nodes);
            if (count == 0) break;
            assert_true(count <= w.drafting.width_max);
            for (uint32_t i = 0; i < count; i++) {
                const lv_node *node = &w.tree.nodes[nodes[i]];
                assert_false(node->expanded);
                assert_true(node->feature.depth < w.drafting.depth_max);
                assert_true(i == 0 || node->w <= w.tree.nodes[nodes[i - 1]].w);
                assert_true(nodes[i] == LV_TREE_ROOT || w.tree.nodes[node->parent].expanded);
                const float first = 0.3f + (float)draw(&random, 60) / 100;
                for (int32_t c = 0; c < LV_TREE_CHILDREN_MAX; c++) {
                    add(&w, nodes[i], (uint8_t)c, c == 0 ? first : (1 - first) / (float)(2u << c));
                }
            }
            w.view.drafted_seconds += 1e-4;
        }
        assert_true(forwards > 0 && forwards < 400);
        lv_drafting_choice choice;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_true(choice.nodes_count >= 1 && choice.nodes_count <= w.drafting.nodes_max);
        for (uint32_t i = 0; i < choice.nodes_count; i++)
            assert_true(w.tree.nodes[choice.nodes[i]].feature.depth <= w.drafting.depth_max);
        if (w.drafting.nodes_fixed > 0) {
            uint32_t most =
                w.drafting.nodes_fixed < w.drafting.nodes_max ? w.drafting.nodes_fixed : w.drafting.nodes_max;
            if (most > w.tree.nodes_count - 1) most = w.tree.nodes_count - 1;
            assert_int_equal(choice.nodes_count, most);
        }
        close_world(&w);
    }
}

static void test_no_room(void **state) {
    (void)state;
    for (lever_strategy strategy = LEVER_STRATEGY_LEVER; strategy <= LEVER_STRATEGY_EDGE; strategy++) {
        world w;
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
        lv_drafting_choice choice;
        open_world(&w, strategy);
        add_chain(&w, LV_TREE_ROOT, 5, .9f);
        w.drafting.depth_max = 0;
        assert_int_equal(lv_drafting_next(&w.drafting, &w.view, nodes), 0);
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, 0);
        w.drafting.depth_max = 3;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, strategy == LEVER_STRATEGY_AR ? 0 : 3);
        w.drafting.nodes_max = 2;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, strategy == LEVER_STRATEGY_AR ? 0 : 2);
        close_world(&w);
    }
}

static void test_fixed_number_of_nodes(void **state) {
    (void)state;
    for (uint32_t fixed = 1; fixed <= 9; fixed++) {
        world w;
        lv_drafting_choice choice;
        open_world(&w, LEVER_STRATEGY_LEVER);
        for (uint8_t i = 0; i < 7; i++) add(&w, LV_TREE_ROOT, i, 0.001f * (float)(9 - i)); /* none of them pays */
        w.drafting.nodes_fixed = fixed;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, fixed < 7 ? fixed : 7);
        for (uint32_t i = 0; i < choice.nodes_count; i++) assert_int_equal(choice.nodes[i], i + 1);
        close_world(&w);
    }
}

/* --- Chains ------------------------------------------------------------------------------------------------------ */

static void test_chain(void **state) {
    (void)state;
    static const struct {
        uint32_t length, nodes_max, depth_max, wanted;
    } cases[] = {{8, 95, 96, 8}, {1, 95, 96, 1}, {24, 10, 96, 10}, {24, 95, 5, 5}, {95, 95, 96, 95}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX], forwards = 0, end = LV_TREE_ROOT;
        open_world(&w, LEVER_STRATEGY_CHAIN);
        w.drafting.chain_length = cases[i].length;
        w.drafting.nodes_max = cases[i].nodes_max;
        w.drafting.depth_max = cases[i].depth_max;
        while (lv_drafting_next(&w.drafting, &w.view, nodes) > 0) {
            assert_int_equal(nodes[0], end);
            add(&w, end, 1, .2f);
            const uint32_t best = add(&w, end, 0, .5f);
            add(&w, end, 2, .3f);
            end = best;
            forwards++;
        }
        assert_int_equal(forwards, cases[i].wanted);
        lv_drafting_choice choice;
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, cases[i].wanted);
        assert_int_equal(choice.nodes[choice.nodes_count - 1], end);
        for (uint32_t n = 0; n < choice.nodes_count; n++)
            assert_int_equal(w.tree.nodes[choice.nodes[n]].parent, n > 0 ? choice.nodes[n - 1] : LV_TREE_ROOT);
        assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), 0);
        close_world(&w);
    }
}

/* --- EdgeLLM-like ------------------------------------------------------------------------------------------------ */

static void test_edge_children(void **state) {
    (void)state;
    static const struct {
        float a[6];
        uint32_t count, taken;
    } cases[] = {
        {{.95f, .03f, .01f}, 3, 1},
        {{.6f, .2f, .15f, .04f}, 4, 3}, /* .6 + .2 is not yet .9 */
        {{.5f, .42f, .05f}, 3, 2},
        {{.3f, .2f, .15f, .1f, .1f, .1f}, 6, 4}, /* no more than four */
        {{.2f}, 1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        lv_drafting_choice choice;
        open_world(&w, LEVER_STRATEGY_EDGE);
        for (uint8_t n = 0; n < cases[i].count; n++) add(&w, LV_TREE_ROOT, n, cases[i].a[n]);
        lv_drafting_choose(&w.drafting, &w.view, &choice);
        assert_int_equal(choice.nodes_count, cases[i].taken);
        for (uint32_t n = 0; n < choice.nodes_count; n++) assert_int_equal(choice.nodes[n], n + 1);
        close_world(&w);
    }
}

/* The tree grows by a level as long as its best path is likelier than theta. */
static void test_edge_levels(void **state) {
    (void)state;
    static const struct {
        float theta;
        uint32_t levels; /* expanded */
    } cases[] = {{.9f, 1}, {.6f, 1}, {.5f, 2}, {.2f, 3}, {.1f, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX], levels = 0, count;
        open_world(&w, LEVER_STRATEGY_EDGE);
        w.drafting.theta = cases[i].theta;
        while ((count = lv_drafting_next(&w.drafting, &w.view, nodes)) > 0) {
            const uint32_t depth = w.tree.nodes[nodes[0]].feature.depth;
            assert_int_equal(depth, levels++);
            for (uint32_t n = 0; n < count; n++) {
                assert_int_equal(w.tree.nodes[nodes[n]].feature.depth, depth);
                add(&w, nodes[n], 0, .5f); /* .5, .25, .125, ... */
                add(&w, nodes[n], 1, .41f);
                add(&w, nodes[n], 2, .05f); /* beyond the mark */
            }
        }
        assert_int_equal(levels, cases[i].levels);
        close_world(&w);
    }
}

static void test_edge_theta(void **state) {
    (void)state;
    lv_drafting d;
    lv_drafting_init(&d, LEVER_STRATEGY_EDGE);
    d.theta = .2f;
    lv_drafting_learn(&d, 3, 1, true);
    assert_true(d.theta == .1f);
    lv_drafting_learn(&d, 3, 1, false);
    assert_true(d.theta == .2f);
    for (int i = 0; i < 20; i++) lv_drafting_learn(&d, 3, 1, true);
    assert_true(d.theta == .01f);
    for (int i = 0; i < 20; i++) lv_drafting_learn(&d, 3, 1, false);
    assert_true(d.theta == .9f);
}

static void test_edge_ahead(void **state) {
    (void)state;
    world w;
    uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
    open_world(&w, LEVER_STRATEGY_EDGE);
    const uint32_t likely = add(&w, LV_TREE_ROOT, 0, .6f), other = add(&w, LV_TREE_ROOT, 1, .3f);
    const uint32_t leaf = add(&w, likely, 0, .5f);
    w.tree.nodes[likely].row = 1;
    w.tree.nodes[other].row = 2;
    w.tree.nodes[leaf].row = 3;
    assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), 1);
    assert_int_equal(nodes[0], leaf);
    const uint32_t end = add(&w, leaf, 0, .4f); /* not in the pass: from there it goes on */
    assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), 1);
    assert_int_equal(nodes[0], end);
    w.drafting.depth_max = 3;
    assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), 0);
    close_world(&w);
}

/* --- Ahead ------------------------------------------------------------------------------------------------------- */

/* The width with the most mass a second. */
static void test_ahead_by_mass(void **state) {
    (void)state;
    static const double flat[LV_COST_POINTS] = {.01, .01, .01, .01, .01, .01, .01, .01, .01, .01, .01};
    static const double steep[LV_COST_POINTS] = {.01, .02, .04, .08, .12, .16, .24, .32, .48, .64, .96};
    static const double step[LV_COST_POINTS] = {.01, .01, .01, .08, .12, .16, .24, .32, .48, .64, .96};
    static const struct {
        const double *curve;
        uint32_t wanted;
    } cases[] = {{flat, 8}, {steep, 1}, {step, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
        open_world(&w, LEVER_STRATEGY_LEVER);
        for (uint8_t n = 0; n < 8; n++) add(&w, LV_TREE_ROOT, n, .12f - .001f * (float)n);
        set_curve(&w.costs.draft[LV_SPLIT_ONE], cases[i].curve);
        assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), cases[i].wanted);
        for (uint32_t n = 0; n < cases[i].wanted; n++) assert_int_equal(nodes[n], n + 1);
        close_world(&w);
    }
    world w;
    uint32_t nodes[LV_DRAFTING_WIDTH_MAX];
    open_world(&w, LEVER_STRATEGY_LEVER);
    add(&w, LV_TREE_ROOT, 0, .001f); /* too unlikely to be looked at */
    assert_int_equal(lv_drafting_next_ahead(&w.drafting, &w.view, nodes), 0);
    close_world(&w);
}

static void test_rate(void **state) {
    (void)state;
    lv_drafting d;
    lv_drafting_init(&d, LEVER_STRATEGY_LEVER);
    lv_drafting_learn(&d, 4, 0, true);
    assert_true(d.rate == 0);
    lv_drafting_learn(&d, 4, 2, true);
    assert_true(d.rate == 2);
    for (int i = 0; i < 200; i++) lv_drafting_learn(&d, 6, 1, false);
    assert_true(fabs(d.rate - 6) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_is_the_best_set),
        cmocka_unit_test(test_a_group_pays_where_one_does_not),
        cmocka_unit_test(test_when_to_draft),
        cmocka_unit_test(test_long_run_rate),
        cmocka_unit_test(test_forwards_come_to_an_end),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_fixed_number_of_nodes),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_edge_children),
        cmocka_unit_test(test_edge_levels),
        cmocka_unit_test(test_edge_theta),
        cmocka_unit_test(test_edge_ahead),
        cmocka_unit_test(test_ahead_by_mass),
        cmocka_unit_test(test_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
