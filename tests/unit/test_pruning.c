/* Pruning: what is promised of the rows that go on, over random trees; the choice against every other; the watch. */
#include "spec/pruning.h"

#include <stdlib.h>

#include "base/rng.h"
#include "support/check.h"

enum { TREES = 400 };

static uint32_t random_at(uint32_t a, uint32_t b) {
    const uint32_t counter[4] = {a, b, 0, 0}, key[2] = {21, 0};
    return lv_philox(counter, key).word[0];
}

static float share_at(uint32_t a, uint32_t b) {
    return (float)(random_at(a, b) % 1000 + 1) / 1100;
}

typedef struct {
    lv_tree tree;
    uint32_t nodes[LV_DRAFTING_NODES_MAX], nodes_count;
    lv_pruning_view view;
} world;

/* A random tree, a random part of which, closed towards the root, is in the pass. */
static void grow(world *w, uint32_t seed, uint32_t nodes_wanted) {
    lever_error error;
    memset(w, 0, sizeof(*w));
    CHECK_OK(lv_tree_open(&w->tree, NULL, &error));
    for (uint32_t n = 0; n < nodes_wanted; n++) {
        const uint32_t parent = random_at(seed, n * 4) % w->tree.nodes_count;
        const lv_feature feature = {.rank = (uint8_t)(n % 8), .estimate = 0.3f};
        (void)lv_tree_add(&w->tree, parent, (int32_t)(random_at(seed, n * 4 + 1) % 50), &feature,
                          share_at(seed, n * 4 + 2) * 0.5f);
    }
    for (uint32_t i = 1; i < w->tree.nodes_count && w->nodes_count < LV_DRAFTING_NODES_MAX; i++) {
        lv_node *node = &w->tree.nodes[i];
        const bool reached = node->parent == LV_TREE_ROOT || w->tree.nodes[node->parent].row != LV_TREE_NONE;
        if (!reached || random_at(seed, i * 4 + 3) % 3 == 0) continue;
        w->nodes[w->nodes_count++] = i;
        node->row = w->nodes_count;
    }
    lv_pruning_take(&w->view, &w->tree, w->nodes, w->nodes_count);
    for (uint32_t c = 0; c < w->view.candidates_first[w->view.rows_count]; c++) {
        w->view.candidates[c].share = share_at(seed + 1000, c);
    }
    w->view.scored = true;
    lv_pruning_spread(&w->view);
}

static void test_view(void **state) {
    (void)state;
    for (uint32_t t = 0; t < TREES; t++) {
        world w;
        grow(&w, t, t % 900);
        const lv_pruning_view *v = &w.view;
        assert_int_equal(v->rows_count, w.nodes_count + 1);
        assert_true(v->candidates_first[v->rows_count] <= LV_PRUNING_CANDIDATES_MAX);
        for (uint32_t row = 0; row < v->rows_count; row++) {
            const uint32_t node = row == 0 ? LV_TREE_ROOT : w.nodes[row - 1];
            for (uint32_t c = v->candidates_first[row]; c < v->candidates_first[row + 1]; c++) {
                assert_int_equal(w.tree.nodes[v->candidates[c].node].parent, node);
                assert_int_equal(w.tree.nodes[v->candidates[c].node].row, v->candidates[c].row);
            }
            if (row == 0) continue;
            assert_int_equal(v->candidates[v->candidate_of[row]].row, row);
            assert_true(v->parents[row] < row && v->west[row] <= v->west[v->parents[row]]);
        }
        lv_pruning_apply(v, &w.tree);
        assert_true(lv_tree_is_sound(&w.tree));
        for (uint32_t row = 1; row < v->rows_count; row++) {
            assert_float_equal(w.tree.nodes[w.nodes[row - 1]].w, v->west[row], 1e-6);
        }
        lv_tree_close(&w.tree);
    }
}

/* What was scored stays in the tree until the next cycle, but is never taken for what the draft said. */
static void test_scores_are_not_drafted(void **state) {
    (void)state;
    world w;
    grow(&w, 3, 200);
    const uint32_t count = w.view.candidates_first[w.view.rows_count];
    float *drafted = calloc(count, sizeof(float));
    assert_non_null(drafted);
    for (uint32_t c = 0; c < count; c++) drafted[c] = w.view.candidates[c].a;
    lv_pruning_apply(&w.view, &w.tree);
    lv_pruning_view again;
    lv_pruning_take(&again, &w.tree, w.nodes, w.nodes_count);
    assert_int_equal(again.candidates_first[again.rows_count], count);
    uint32_t scored = 0;
    for (uint32_t c = 0; c < count; c++) {
        assert_true(again.candidates[c].a == drafted[c]);
        scored += w.tree.nodes[again.candidates[c].node].a != drafted[c];
    }
    assert_true(scored > count / 2);
    free(drafted);
    lv_tree_close(&w.tree);
}

/* The backbone, by hand: down the likeliest rows. */
static uint32_t backbone_child(const lv_pruning_view *v, uint32_t row) {
    uint32_t best = 0;
    for (uint32_t r = row + 1; r < v->rows_count; r++) {
        if (v->parents[r] == row && (best == 0 || v->west[r] > v->west[best])) best = r;
    }
    return best;
}

static void check_kept(const lv_pruning_view *v, const lv_pruning *p, const uint32_t *keep, uint32_t count) {
    bool stays[LV_PRUNING_ROWS_MAX] = {false};
    assert_true(count >= 1 && keep[0] == 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(i == 0 || keep[i] > keep[i - 1]);
        stays[keep[i]] = true;
        assert_true(stays[v->parents[keep[i]]]);
    }
    for (uint32_t row = 0; (row = backbone_child(v, row)) != 0;) assert_true(stays[row]);
    assert_true((float)(v->rows_count - count) <= p->cap * (float)(v->rows_count - 1) + 1e-3f);
}

static double worth(const lv_pruning_view *v, const lv_pruning *p, const lv_costs *costs, const bool *stays) {
    double west = 0;
    uint32_t rows = 0;
    for (uint32_t r = 0; r < v->rows_count; r++) {
        if (!stays[r]) continue;
        west += (double)v->west[r];
        rows++;
    }
    return west - p->rate * (1 - (double)p->before) * lv_costs_pass(costs, p->split, rows, p->idle_seconds);
}

static void test_cap_backbone_and_worth(void **state) {
    (void)state;
    static const float caps[] = {0, 0.1f, 0.4f, 0.5f, 1};
    uint32_t pruned = 0;
    for (uint32_t t = 0; t < TREES; t++) {
        world w;
        uint32_t keep[LV_PRUNING_ROWS_MAX];
        lv_costs costs;
        grow(&w, t, t % 300);
        /* Every other machine waits for reading unless the pass is large. */
        lv_costs_init(&costs, .002, .001, .0002, t % 2 ? .01 : 0, 0);
        for (size_t c = 0; c < sizeof(caps) / sizeof(*caps); c++) {
            lv_pruning p = {.before = 0.25f, .cap = caps[c], .rate = 30, .split = LV_SPLIT_ALL, .forced = t % 5 == 0};
            const uint32_t count = lv_pruning_choose(&p, &w.view, &costs, keep);
            check_kept(&w.view, &p, keep, count);
            pruned += w.view.rows_count - count;
            if (caps[c] <= 0) assert_int_equal(count, w.view.rows_count);
            if (p.forced) continue;
            bool all[LV_PRUNING_ROWS_MAX], stays[LV_PRUNING_ROWS_MAX] = {false};
            memset(all, true, sizeof(all));
            for (uint32_t i = 0; i < count; i++) stays[keep[i]] = true;
            assert_true(worth(&w.view, &p, &costs, stays) >= worth(&w.view, &p, &costs, all) - 1e-9);
        }
        lv_tree_close(&w.tree);
    }
    assert_true(pruned > 1000);
}

/* Rows that cost nothing go on: while the pass waits for reading. */
static void test_free_rows_stay(void **state) {
    (void)state;
    world w;
    uint32_t keep[LV_PRUNING_ROWS_MAX];
    lv_costs costs;
    grow(&w, 3, 200);
    lv_costs_init(&costs, .002, .001, .0002, 100, 0);
    const lv_pruning p = {.before = 0.25f, .cap = 1, .rate = 30, .split = LV_SPLIT_ALL};
    assert_int_equal(lv_pruning_choose(&p, &w.view, &costs, keep), w.view.rows_count);
    lv_tree_close(&w.tree);
}

/* On small trees no set of rows that may go on, closed towards the root, with root and backbone, is worth more. */
static void test_nothing_is_better(void **state) {
    (void)state;
    for (uint32_t t = 0; t < 60; t++) {
        world w;
        uint32_t keep[LV_PRUNING_ROWS_MAX];
        lv_costs costs;
        grow(&w, 5000 + t, 14);
        lv_costs_init(&costs, .002, .001, .0002, 0, 0);
        const lv_pruning p = {.before = 0.5f, .cap = 1, .rate = 60, .split = LV_SPLIT_ALL};
        const uint32_t rows = w.view.rows_count, count = lv_pruning_choose(&p, &w.view, &costs, keep);
        bool stays[LV_PRUNING_ROWS_MAX] = {false};
        for (uint32_t i = 0; i < count; i++) stays[keep[i]] = true;
        const double got = worth(&w.view, &p, &costs, stays);
        for (uint32_t bits = 0; bits < 1u << (rows - 1); bits++) {
            bool other[LV_PRUNING_ROWS_MAX] = {true};
            bool fine = true;
            for (uint32_t r = 1; r < rows; r++) {
                other[r] = bits >> (r - 1) & 1u;
                if (other[r] && !other[w.view.parents[r]]) fine = false;
            }
            for (uint32_t row = 0; fine && (row = backbone_child(&w.view, row)) != 0;) fine = other[row];
            if (fine) assert_true(worth(&w.view, &p, &costs, other) <= got + 1e-9);
        }
        lv_tree_close(&w.tree);
    }
}

static void test_knowing(void **state) {
    (void)state;
    world w;
    grow(&w, 8, 150);
    uint32_t path[LV_TREE_DEPTH_MAX];
    int32_t text[LV_TREE_DEPTH_MAX];
    const uint32_t depth = lv_tree_path(&w.tree, w.nodes[w.nodes_count - 1], path);
    for (uint32_t i = 0; i < depth; i++) text[i] = w.tree.nodes[path[i]].token;
    lv_pruning_know(&w.view, text, depth);
    for (uint32_t row = 1; row < w.view.rows_count; row++) {
        bool on_path = false;
        for (uint32_t i = 0; i < depth; i++) on_path = on_path || path[i] == w.nodes[row - 1];
        assert_int_equal(w.view.west[row] > 0.9f, on_path);
    }
    lv_pruning_know(&w.view, text, 0);
    for (uint32_t row = 1; row < w.view.rows_count; row++) assert_true(w.view.west[row] < 0.01f);
    lv_tree_close(&w.tree);
}

static void test_watch(void **state) {
    (void)state;
    lv_pruning_watch watch = {0};
    for (uint32_t i = 0; i < 5000; i++) assert_false(lv_pruning_watch_step(&watch, 3, i % 50 == 0, 0.98f));
    assert_float_equal(lv_pruning_cap(&watch, 0.5f), 0.5f, 1e-9);
    uint32_t rises = 0;
    for (uint32_t i = 0; i < 5000; i++) rises += lv_pruning_watch_step(&watch, 2, i % 4 == 0, 0.98f);
    assert_int_equal(rises, LV_PRUNING_LEVELS);
    assert_true(lv_pruning_cap(&watch, 0.5f) <= 0);
    watch = (lv_pruning_watch){.level = 1};
    assert_float_equal(lv_pruning_cap(&watch, 0.5f), 0.25f, 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_scores_are_not_drafted),
        cmocka_unit_test(test_cap_backbone_and_worth),
        cmocka_unit_test(test_free_rows_stay),
        cmocka_unit_test(test_nothing_is_better),
        cmocka_unit_test(test_knowing),
        cmocka_unit_test(test_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
