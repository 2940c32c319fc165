/* Numbers of rows that a device takes: what others are padded to, when a tree is cut down instead, and who computes. */
#include "compute/placement.h"
#include "spec/drafting.h"
#include "support/check.h"

static const lv_buckets npu = {.rows = {1, 4, 8, 16, 32, 64}, .count = 6}, one = {.rows = {8}, .count = 1}, any = {0};

static void test_padding(void **state) {
    (void)state;
    static const struct {
        const lv_buckets *buckets;
        uint32_t rows, next, padded, below;
    } cases[] = {
        {&npu, 1, 1, 1, 0},     {&npu, 2, 4, 4, 1},     {&npu, 4, 4, 4, 1},        {&npu, 5, 8, 8, 4},
        {&npu, 9, 16, 16, 8},   {&npu, 33, 64, 64, 32}, {&npu, 64, 64, 64, 32},    {&npu, 65, 64, 65, 64},
        {&npu, 70, 64, 72, 68}, {&npu, 96, 64, 96, 80}, {&npu, 129, 64, 129, 128}, {&one, 1, 8, 8, 0},
        {&one, 8, 8, 8, 0},     {&one, 9, 8, 16, 8},    {&one, 16, 8, 16, 8},      {&any, 13, 13, 13, 12},
        {&any, 1, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t got[] = {lv_buckets_next(cases[i].buckets, cases[i].rows),
                                lv_buckets_padded(cases[i].buckets, cases[i].rows),
                                lv_buckets_below(cases[i].buckets, cases[i].rows)};
        if (got[0] != cases[i].next || got[1] != cases[i].padded || got[2] != cases[i].below)
            fail_msg("%u rows: %u, %u, %u", cases[i].rows, got[0], got[1], got[2]);
    }
}

/* Whatever the number, runs of `next` take all rows, and compute as many as `padded` says. */
static void test_runs_take_all(void **state) {
    (void)state;
    const lv_buckets *const all[] = {&npu, &one, &any};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t rows = 1; rows < 300; rows++) {
            uint32_t computed = 0, left = rows;
            while (left > 0) {
                const uint32_t run = lv_buckets_next(all[i], left);
                computed += run;
                left = left > run ? left - run : 0;
            }
            assert_int_equal(computed, lv_buckets_padded(all[i], rows));
            const uint32_t below = lv_buckets_below(all[i], rows);
            assert_true(below < rows);
            assert_int_equal(lv_buckets_padded(all[i], below), below);
        }
    }
}

/* Costs of a device: a pass takes 4 ms, and some by the rows computed, which are those of a bucket; or reading takes
 * longer. */
static lv_costs costs_of(double milliseconds_a_row, double io_milliseconds) {
    lv_costs costs;
    lv_costs_init(&costs, 1e-3, 1e-3, 1e-6, io_milliseconds * 1e-3, 0);
    static const uint32_t points[LV_COST_POINTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        costs.layers[LV_SPLIT_ALL].seconds[i] = 1e-3 * (4 + milliseconds_a_row * points[i]);
        costs.head.seconds[i] = 1e-9;
    }
    costs.buckets = npu;
    return costs;
}

static void test_padded_or_cut(void **state) {
    (void)state;
    lv_drafting drafting;
    lv_drafting_init(&drafting, LEVER_STRATEGY_CHAIN);
    static const struct {
        const char *name;
        uint32_t count; /* nodes, each with the weight; `last` for those from `cut` on */
        float weight, last;
        uint32_t cut;
        double row, io;
        uint32_t wanted;
    } cases[] = {
        /* rows are nodes and the root: 8 nodes are 9 rows */
        {"fits", 7, 0.9f, 0.9f, 7, 1, 0, 7},
        {"one node too many, of little value", 8, 0.9f, 0.01f, 7, 1, 0, 7},
        {"half a bucket too many, likely", 13, 0.99f, 0.99f, 13, 0.1, 5, 13},
        {"reading hides the padding", 8, 0.5f, 0.01f, 7, 1, 1000, 8},
        {"hardly anything is likely: the root alone", 8, 0.01f, 0.01f, 8, 1, 0, 0},
        {"nothing to cut", 0, 0, 0, 0, 1, 0, 0},
        {"two buckets down", 20, 0.9f, 0.001f, 7, 1, 0, 7},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const lv_costs costs = costs_of(cases[i].row, cases[i].io);
        const lv_drafting_view view = {.costs = &costs, .split = LV_SPLIT_ALL};
        float weights[LV_DRAFTING_NODES_MAX];
        for (uint32_t n = 0; n < cases[i].count; n++) weights[n] = n < cases[i].cut ? cases[i].weight : cases[i].last;
        const uint32_t got = lv_drafting_fit(&drafting, &view, weights, cases[i].count);
        if (got != cases[i].wanted) fail_msg("%s: %u", cases[i].name, got);
    }
    lv_costs costs = costs_of(1, 0);
    costs.buckets = any;
    const lv_drafting_view view = {.costs = &costs, .split = LV_SPLIT_ALL};
    const float unlikely[8] = {0};
    assert_int_equal(lv_drafting_fit(&drafting, &view, unlikely, 8), 8);
}

/* A pass costs what its bucket costs, and what was learned from 5 rows is known of 8. */
static void test_costs_know_buckets(void **state) {
    (void)state;
    lv_costs costs = costs_of(1, 0);
    assert_true(lv_costs_pass(&costs, LV_SPLIT_ALL, 5, 0) == lv_costs_pass(&costs, LV_SPLIT_ALL, 8, 0));
    assert_true(lv_costs_pass(&costs, LV_SPLIT_ALL, 9, 0) > lv_costs_pass(&costs, LV_SPLIT_ALL, 8, 0));
    const uint32_t before = costs.layers[LV_SPLIT_ALL].samples[3];
    lv_costs_learn_layers(&costs, LV_SPLIT_ALL, 5, 0.009);
    assert_int_equal(costs.layers[LV_SPLIT_ALL].samples[3], before + 1);
    char text[8192];
    assert_true(lv_costs_write(&costs, text, sizeof(text)) < sizeof(text));
    assert_true(lv_costs_read(&costs, text));
    assert_int_equal(costs.buckets.count, npu.count);
}

static void test_placement(void **state) {
    (void)state;
    lv_placement p = {.buckets = npu};
    /* Both are tried, then the faster one computes, by bucket. */
    assert_true(lv_placement_choose(&p, 1));
    lv_placement_learn(&p, true, 1, 0.004);
    assert_false(lv_placement_choose(&p, 1));
    lv_placement_learn(&p, false, 1, 0.001);
    assert_false(lv_placement_choose(&p, 1));
    assert_true(lv_placement_choose(&p, 16));
    lv_placement_learn(&p, true, 16, 0.004);
    assert_false(lv_placement_choose(&p, 9));
    lv_placement_learn(&p, false, 9, 0.016);
    assert_true(lv_placement_choose(&p, 12));
    /* The other one is tried again now and then, and a mean follows it. */
    uint32_t tried = 0;
    for (uint32_t i = 0; i < 3 * LV_PLACEMENT_RETRY; i++) {
        if (!lv_placement_choose(&p, 16)) tried++;
    }
    assert_int_equal(tried, 3);
    for (uint32_t i = 0; i < 30; i++) lv_placement_learn(&p, true, 16, 0.1);
    assert_false(lv_placement_choose(&p, 16));
    lv_placement_learn(&p, true, 1000, 0.5); /* counts as the largest */
    assert_false(lv_placement_choose(&p, 64));
    p.always = true;
    assert_true(lv_placement_choose(&p, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padding),       cmocka_unit_test(test_runs_take_all),
        cmocka_unit_test(test_padded_or_cut), cmocka_unit_test(test_costs_know_buckets),
        cmocka_unit_test(test_placement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
