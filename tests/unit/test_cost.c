/* Costs: the prior's shape, what a measurement moves and what it leaves alone, and the text. */
#include "spec/cost.h"

#include <math.h>

#include "support/check.h"

enum { TEXT_BYTES = 8192 };

static const uint32_t point_rows[LV_COST_POINTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
static const double layers_shape[LV_COST_POINTS] = {1, 1.05, 1.15, 1.6, 2.2, 3.0, 4.7, 6.4, 9.5, 12.5, 18.5};
static const double head_shape[LV_COST_POINTS] = {1, 1.05, 1.1, 1.25, 1.6, 2.0, 3, 4, 6, 8, 12};

/* cmocka's own compares as float. */
static void check_near(double value, double wanted, double tolerance) {
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("%.12g instead of %.12g", value, wanted);
}

/* Target 20 ms a row, draft 10, head 6; reading 300 ms, of which the ring holds 40. */
static lv_costs costs_new(void) {
    lv_costs costs;
    lv_costs_init(&costs, .020, .010, .006, .300, .040);
    return costs;
}

/* A pass behind which nothing is known of reading but what it waited for. */
static void learn_pass(lv_costs *costs, lv_split split, uint32_t rows, double pass, double compute, double wait,
                       double idle) {
    const lv_pass_seconds took = {.pass = pass, .compute = compute, .wait = wait, .idle = idle, .read = HUGE_VAL};
    lv_costs_learn_pass(costs, split, rows, &took);
}

static void check_monotone(const lv_cost_curve *curve) {
    double last = 0;
    for (uint32_t rows = 0; rows <= 200; rows++) {
        const double seconds = lv_cost_curve_at(curve, rows);
        if (!(seconds >= last)) fail_msg("%u rows: %g after %g", rows, seconds, last);
        last = seconds;
    }
}

static void test_prior(void **state) {
    (void)state;
    const lv_costs costs = costs_new();
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        const uint32_t rows = point_rows[i];
        check_near(lv_cost_curve_at(&costs.layers[LV_SPLIT_ALL], rows), .020 * layers_shape[i], 1e-12);
        check_near(lv_cost_curve_at(&costs.layers[LV_SPLIT_ONE], rows), .036 * layers_shape[i], 1e-12);
        check_near(lv_cost_curve_at(&costs.draft[LV_SPLIT_ALL], rows), .010 * layers_shape[i], 1e-12);
        check_near(lv_cost_curve_at(&costs.draft[LV_SPLIT_ONE], rows), .018 * layers_shape[i], 1e-12);
        check_near(lv_cost_curve_at(&costs.head, rows), .006 * head_shape[i], 1e-12);
    }
    check_near(lv_cost_curve_at(&costs.head, 0), 0, 0);
    check_near(lv_cost_curve_at(&costs.head, 3), .006 * 1.075, 1e-12);
    check_near(lv_cost_curve_at(&costs.layers[LV_SPLIT_ALL], 56), .020 * 11, 1e-12);
    check_near(lv_cost_curve_at(&costs.head, 192), .006 * 24, 1e-12);
    for (int split = 0; split < LV_SPLITS_COUNT; split++) {
        check_monotone(&costs.layers[split]);
        check_monotone(&costs.draft[split]);
    }
    check_monotone(&costs.head);
    assert_false(costs.frozen);
}

/* The first measurement, at a point, between points or beyond the last, sets the scale of the whole curve. */
static void test_first_measurement_scales_all(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 3, 8, 10, 14, 95, 96, 150};
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        static const double factors[] = {.1, .7, 1.5, 3.9};
        for (size_t f = 0; f < sizeof(factors) / sizeof(*factors); f++) {
            lv_costs costs = costs_new();
            const lv_cost_curve before = costs.head;
            lv_cost_curve_learn(&costs.head, rows[r], lv_cost_curve_at(&before, rows[r]) * factors[f]);
            for (uint32_t n = 1; n < 200; n++) {
                check_near(lv_cost_curve_at(&costs.head, n), lv_cost_curve_at(&before, n) * factors[f], 1e-9);
            }
        }
    }
}

/* Measured at 2 and 16 rows: 4 to 12 change gradually from one factor to the other; from 24 on all have the latter. */
static void test_unmeasured_points_keep_the_shape(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    lv_cost_curve *curve = &costs.layers[LV_SPLIT_ALL];
    lv_cost_curve_learn(curve, 2, .020 * layers_shape[1]);
    lv_cost_curve_learn(curve, 16, .120);
    static const double factors[LV_COST_POINTS] = {1, 1, 1.25, 1.5, 1.75, 2, 2, 2, 2, 2, 2};
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        check_near(curve->seconds[i], .020 * layers_shape[i] * factors[i], 1e-9);
        assert_int_equal(curve->samples[i], i == 1 || i == 5);
    }
    check_monotone(curve);
}

/* A measurement moves the two points around it, more the nearer one, and no other point that was measured. */
static void test_only_neighbours_move(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    lv_cost_curve *curve = &costs.layers[LV_SPLIT_ALL];
    for (int n = 0; n < 20; n++) {
        for (size_t i = 0; i < LV_COST_POINTS; i++) lv_cost_curve_learn(curve, point_rows[i], .020 * layers_shape[i]);
    }
    const lv_cost_curve before = *curve;
    lv_cost_curve_learn(curve, 30, lv_cost_curve_at(curve, 30) * 1.2); /* 24 .. 30 . 32 */
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        const double moved = curve->seconds[i] / before.seconds[i] - 1;
        const double wanted = i == 6 ? .25 * .2 / 8 : i == 7 ? .75 * .2 / 8 : 0;
        check_near(moved, wanted, 1e-9);
        assert_int_equal(curve->samples[i] - before.samples[i], i == 7);
    }
}

/* Beyond the last point it is the last one that moves, as if it were measured itself. */
static void test_beyond_the_last_point(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    lv_cost_curve_learn(&costs.head, 64, .048);
    for (int n = 0; n < 20; n++) lv_cost_curve_learn(&costs.head, 192, .144);
    check_near(lv_cost_curve_at(&costs.head, 96), .072, 1e-9);
    lv_cost_curve_learn(&costs.head, 192, .144 * 1.2);
    check_near(lv_cost_curve_at(&costs.head, 96), .072 * (1 + .2 / 8), 1e-9);
    check_near(lv_cost_curve_at(&costs.head, 192), .144 * (1 + .2 / 8), 1e-9);
    check_near(lv_cost_curve_at(&costs.head, 64), .048, 1e-9);
}

/* A machine of another shape, with noise, at rows in no order: after a while the curve is that of the machine. */
static void test_converges(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    lv_cost_curve *curve = &costs.layers[LV_SPLIT_ONE];
    uint32_t number = 1;
    for (int n = 0; n < 4000; n++) {
        number = number * 1664525u + 1013904223u;
        const uint32_t rows = 1 + (number >> 16) % 96;
        const double noise = 1 + ((double)(number >> 8 & 0xff) / 255 - .5) * .1;
        lv_cost_curve_learn(curve, rows, (.050 + .001 * rows) * noise);
        if (n % 50 == 0) check_monotone(curve);
    }
    for (uint32_t rows = 1; rows <= 96; rows++) {
        const double wanted = .050 + .001 * rows;
        check_near(lv_cost_curve_at(curve, rows), wanted, .05 * wanted);
    }
    /* The machine becomes half as fast. Points that are not measured any more hold back for a while. */
    for (int n = 0; n < 300; n++) lv_cost_curve_learn(curve, 8, .116);
    check_near(lv_cost_curve_at(curve, 8), .116, .002);
}

static void test_stays_monotone(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    lv_cost_curve *curve = &costs.head;
    lv_cost_curve_learn(curve, 16, .012);
    lv_cost_curve_learn(curve, 32, .006); /* cheaper than 16 rows: both are in doubt alike */
    check_monotone(curve);
    check_near(lv_cost_curve_at(curve, 16), .009, 1e-9);
    check_near(lv_cost_curve_at(curve, 32), .009, 1e-9);
    uint32_t number = 7;
    for (int n = 0; n < 2000; n++) {
        number = number * 1664525u + 1013904223u;
        lv_cost_curve_learn(curve, (number >> 16) % 130, (double)(number >> 8 & 0xffff) / 1e5);
        check_monotone(curve);
    }
}

static void test_outliers(void **state) {
    (void)state;
    static const double factors[] = {4.1, 10, 1e6, 1e300};
    for (size_t f = 0; f < sizeof(factors) / sizeof(*factors); f++) {
        for (int samples = 0; samples < 12; samples += 3) {
            lv_costs costs = costs_new();
            lv_cost_curve *curve = &costs.layers[LV_SPLIT_ALL];
            for (int n = 0; n < samples; n++) lv_cost_curve_learn(curve, 12, .044);
            const lv_cost_curve before = *curve;
            lv_cost_curve_learn(curve, 12, .044 * factors[f]);
            assert_true(lv_cost_curve_at(curve, 12) > lv_cost_curve_at(&before, 12) * 1.1);
            for (uint32_t rows = 1; rows < 200; rows++) {
                assert_true(lv_cost_curve_at(curve, rows) <= lv_cost_curve_at(&before, rows) * (2 + 1e-9));
            }
            /* When it goes on it is believed. */
            if (f == 1) {
                for (int n = 0; n < 60; n++) lv_cost_curve_learn(curve, 12, .44);
                check_near(lv_cost_curve_at(curve, 12), .44, .02);
            }
        }
    }
}

/* A curve that is well known at some points. */
static lv_cost_curve known_curve(void) {
    const lv_costs costs = costs_new();
    lv_cost_curve curve = costs.layers[LV_SPLIT_ALL];
    for (int n = 0; n < 20; n++) {
        for (size_t i = 0; i < 8; i++) lv_cost_curve_learn(&curve, point_rows[i], .020 * layers_shape[i]);
    }
    return curve;
}

/* The third measurement in a row that says the same moves the whole curve, by the least that they say, whatever the
 * rows. One that is as usual, or off to the other side, begins anew; what was hardly known cannot be off. */
static void test_a_change_is_believed(void **state) {
    (void)state;
    static const struct {
        double factors[6];
        double moved; /* where nothing of it was measured: at 1 row */
    } rows[] = {
        {{4, 4, 4}, 4},          {{4.4, 3.6, 4, 1, 1}, 3.6}, {{.25, .26, .24}, .26},    {{4, 4}, 1},
        {{4, 4, 1, 4, 4}, 1},    {{4, 4, .25, .25}, 1},      {{1.4, 1.4, 1.4, 1.4}, 1}, {{100, 200, 50}, 50},
        {{4, 4, 4, 1, 1, 1}, 1}, {{.1, .1, .1, 1, 1, 1}, 1},
    };
    static const uint32_t at[] = {16, 24, 12, 32, 8, 20};
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        lv_cost_curve curve = known_curve();
        double moved = 1;
        for (size_t i = 0; i < 6 && rows[r].factors[i] > 0; i++) {
            const lv_cost_curve known = known_curve();
            moved *= lv_cost_curve_learn(&curve, at[i], rows[r].factors[i] * lv_cost_curve_at(&known, at[i]));
            check_monotone(&curve);
        }
        check_near(moved, rows[r].moved, 1e-6);
        check_near(lv_cost_curve_at(&curve, 1), .020 * rows[r].moved, 1e-6);
    }
    lv_costs costs = costs_new();
    for (int n = 0; n < 9; n++) assert_true(lv_cost_curve_learn(&costs.head, point_rows[n], .024 * head_shape[n]) == 1);
}

/* Ten measurements are enough for any of the rows. */
static void test_a_change_is_known_soon(void **state) {
    (void)state;
    static const double factors[] = {4, .25, 10, 1.8};
    for (size_t f = 0; f < sizeof(factors) / sizeof(*factors); f++) {
        lv_cost_curve curve = known_curve();
        const lv_cost_curve before = curve;
        for (uint32_t n = 0; n < 10; n++) {
            const uint32_t rows = 1 + n * 37 % 32;
            const double noise = 1 + .1 * ((double)(n * 7 % 11) / 5 - 1);
            lv_cost_curve_learn(&curve, rows, factors[f] * noise * lv_cost_curve_at(&before, rows));
        }
        for (uint32_t rows = 1; rows <= 32; rows++) {
            const double wanted = factors[f] * lv_cost_curve_at(&before, rows);
            check_near(lv_cost_curve_at(&curve, rows), wanted, .15 * wanted);
        }
    }
}

/* What makes passes of one split faster is a reason to try the other, and a short forward is hoped to be faster; what
 * makes them slower says nothing of the other. */
static void test_the_other_split(void **state) {
    (void)state;
    for (uint32_t faster = 0; faster < 2; faster++) {
        for (uint32_t all = 0; all < 2; all++) {
            lv_costs costs = costs_new();
            const lv_costs before = costs;
            const lv_split split = all ? LV_SPLIT_ALL : LV_SPLIT_ONE, other = all ? LV_SPLIT_ONE : LV_SPLIT_ALL;
            const double factor = faster ? .25 : 4;
            for (int n = 0; n < 23; n++) {
                assert_false(costs.ahead.is_due[0] || costs.ahead.is_due[1]);
                const double now = n < 20 ? 1 : factor;
                lv_costs_learn_layers(&costs, split, 8, .050 * now);
                lv_costs_learn_draft(&costs, split, 1, .015 * now);
            }
            assert_int_equal(costs.ahead.is_due[all], faster);
            assert_false(costs.ahead.is_due[!all]);
            for (uint32_t rows = 1; rows <= 96; rows += 5) {
                check_near(lv_cost_curve_at(&costs.layers[other], rows), lv_cost_curve_at(&before.layers[other], rows),
                           0);
                check_near(lv_cost_curve_at(&costs.draft[other], rows),
                           (faster ? factor : 1) * lv_cost_curve_at(&before.draft[other], rows), 1e-9);
            }
        }
    }
}

/* The head, which all threads compute, became faster: reason to try them for the layers, where only one had these. */
static void test_the_head_tells_of_all_threads(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 4; n++) {
        lv_costs costs = costs_new();
        const lv_split split = n % 2 ? LV_SPLIT_ONE : LV_SPLIT_ALL;
        const double factor = n / 2 ? .25 : 4;
        for (int i = 0; i < 20; i++) lv_costs_learn_head(&costs, split, 4, .0066);
        for (int i = 0; i < 3; i++) lv_costs_learn_head(&costs, split, 4, .0066 * factor);
        check_near(lv_cost_curve_at(&costs.head, 16), .012 * factor, 1e-9);
        assert_int_equal(costs.ahead.is_due[0], n == 3);
        assert_false(costs.ahead.is_due[1]);
    }
}

static void test_refuses_nonsense(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    const lv_costs before = costs;
    static const double values[] = {0, -1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        lv_cost_curve_learn(&costs.head, 4, values[i]);
        learn_pass(&costs, LV_SPLIT_ALL, 4, values[i], .020, .1, 0);
    }
    lv_cost_curve_learn(&costs.head, 0, .01);
    learn_pass(&costs, LV_SPLIT_ALL, 0, .5, .020, .1, 0);
    learn_pass(&costs, LV_SPLIT_ALL, 4, .5, .020, -.1, 0);
    learn_pass(&costs, LV_SPLIT_ALL, 4, .5, .020, .1, (double)NAN);
    assert_memory_equal(&costs, &before, sizeof(before));
}

static void test_pass(void **state) {
    (void)state;
    const lv_costs costs = costs_new();
    static const struct {
        lv_split split;
        uint32_t rows;
        double idle, wanted;
    } rows[] = {
        {LV_SPLIT_ALL, 0, 0, 0},        {LV_SPLIT_ALL, 1, 0, .300},
        {LV_SPLIT_ALL, 1, .010, .290},                               /* what was read while nobody computed */
        {LV_SPLIT_ALL, 1, .500, .260},                               /* no more than the ring holds */
        {LV_SPLIT_ALL, 1, -1, .300},    {LV_SPLIT_ALL, 64, 0, .300}, /* 250 ms of computing: hidden behind reading */
        {LV_SPLIT_ALL, 96, .500, .370},                              /* computing is what takes longer */
        {LV_SPLIT_ONE, 32, .500, .260}, {LV_SPLIT_ONE, 48, 0, .342},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        check_near(lv_costs_pass(&costs, rows[i].split, rows[i].rows, rows[i].idle), rows[i].wanted, 1e-9);
    }
}

static void test_learns_from_passes(void **state) {
    (void)state;
    /* A disk half as fast: reading and the ring's part of it go there. */
    lv_costs costs = costs_new();
    const double head_before = lv_cost_curve_at(&costs.head, 8);
    for (int n = 0; n < 100; n++) learn_pass(&costs, LV_SPLIT_ALL, 8, .520, .048, .470, .200);
    check_near(costs.io_seconds, .600, .001);
    check_near(costs.ring_seconds, .080, .001);
    check_near(lv_costs_pass(&costs, LV_SPLIT_ALL, 8, .200), .520, .001);
    check_near(lv_cost_curve_at(&costs.layers[LV_SPLIT_ALL], 8), .048, 1e-6);
    check_near(lv_cost_curve_at(&costs.layers[LV_SPLIT_ONE], 8), .0576, 1e-9); /* not the other split's */
    check_near(lv_cost_curve_at(&costs.head, 8), head_before, 0);

    /* A pass that did not wait says nothing of reading, but that it is not slower. */
    costs = costs_new();
    learn_pass(&costs, LV_SPLIT_ALL, 96, .400, .390, .005, 0);
    check_near(costs.io_seconds, .300, 0);
    for (int n = 0; n < 100; n++) learn_pass(&costs, LV_SPLIT_ALL, 32, .130, .130, 0, 0);
    check_near(costs.io_seconds, .130, .001);

    /* What was being read is less than a pass that computing took. */
    costs = costs_new();
    lv_pass_seconds took = {.pass = .130, .compute = .130, .idle = .02, .read = .075};
    for (int n = 0; n < 3; n++) lv_costs_learn_pass(&costs, LV_SPLIT_ALL, 32, &took);
    check_near(costs.io_seconds, .075, 1e-9);
    check_near(costs.ring_seconds, .010, 1e-9);
    took.read = .2;
    lv_costs_learn_pass(&costs, LV_SPLIT_ALL, 32, &took);
    check_near(costs.io_seconds, .075, 1e-9);
    took.read = 0; /* all is pinned now */
    for (int n = 0; n < 3; n++) lv_costs_learn_pass(&costs, LV_SPLIT_ALL, 32, &took);
    check_near(costs.io_seconds, 0, 0);

    /* A disk that is four times slower is known after three passes, and fast again after three. */
    costs = costs_new();
    for (int n = 0; n < 3; n++) learn_pass(&costs, LV_SPLIT_ALL, 8, 1.160, .048, 1.112, .200);
    check_near(costs.io_seconds, 1.2, .05);
    check_near(costs.ring_seconds, costs.io_seconds * 2 / 15, 1e-9);
    for (int n = 0; n < 3; n++) learn_pass(&costs, LV_SPLIT_ALL, 8, .160, .048, .112, 0);
    check_near(costs.io_seconds, .160, .001);

    /* One slow read does not double it. */
    costs = costs_new();
    learn_pass(&costs, LV_SPLIT_ALL, 1, 30, .020, 29.9, 0);
    assert_true(costs.io_seconds > .300 && costs.io_seconds <= .600);

    /* Nothing to read stays nothing, until a pass waits: blocks that were pinned are streamed now. */
    lv_costs_init(&costs, .020, .010, .006, 0, 0);
    learn_pass(&costs, LV_SPLIT_ALL, 1, .021, .020, 0, 0);
    check_near(costs.io_seconds, 0, 0);
    learn_pass(&costs, LV_SPLIT_ALL, 1, .180, .020, .160, 0);
    check_near(costs.io_seconds, .180, 1e-9);
    check_near(costs.ring_seconds, 0, 0);
}

static void test_frozen_does_not_learn(void **state) {
    (void)state;
    lv_costs costs = costs_new();
    costs.frozen = true;
    const lv_costs before = costs;
    learn_pass(&costs, LV_SPLIT_ALL, 8, .520, .048, .470, .200);
    assert_memory_equal(&costs, &before, sizeof(before));
}

static void check_same_curve(const lv_cost_curve *a, const lv_cost_curve *b) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        check_near(a->seconds[i], b->seconds[i], 1e-9);
        assert_int_equal(a->samples[i], b->samples[i]);
    }
}

static lv_costs costs_taught(void) {
    lv_costs costs = costs_new();
    for (uint32_t n = 1; n < 90; n += 7) {
        learn_pass(&costs, n % 2 ? LV_SPLIT_ALL : LV_SPLIT_ONE, n, .4, .03 + .001 * n, .2, .01);
        lv_cost_curve_learn(&costs.draft[n % 2], n, .01 + .0007 * n);
        lv_cost_curve_learn(&costs.head, n, .005 + .0003 * n);
        lv_ahead_learn(&costs.ahead, n % LV_AHEAD_LEVELS, n % 3 == 0, .1 + .01 * n);
        lv_ahead_keep(&costs.ahead, n % 2, 1.5);
    }
    return costs;
}

static void test_text_round_trip(void **state) {
    (void)state;
    const lv_costs written = costs_taught();
    char text[TEXT_BYTES], part[TEXT_BYTES];
    const size_t length = lv_costs_write(&written, text, sizeof(text));
    assert_true(length > 0 && length < sizeof(text) && length == strlen(text));
    assert_int_equal(strncmp(text, "lever costs 2\nlayers-one 1 ", 27), 0);

    lv_costs read;
    lv_costs_init(&read, 1, 1, 1, 1, 1);
    read.frozen = true;
    assert_true(lv_costs_read(&read, text));
    assert_true(read.frozen);
    for (int split = 0; split < LV_SPLITS_COUNT; split++) {
        check_same_curve(&read.layers[split], &written.layers[split]);
        check_same_curve(&read.draft[split], &written.draft[split]);
    }
    check_same_curve(&read.head, &written.head);
    check_near(read.io_seconds, written.io_seconds, 1e-9);
    check_near(read.ring_seconds, written.ring_seconds, 1e-9);
    uint32_t cycles = 0;
    for (size_t i = 0; i < (size_t)2 * LV_AHEAD_LEVELS; i++) {
        const lv_ahead_drafted *of_read = &read.ahead.levels[i / 2].drafted[i % 2];
        const lv_ahead_drafted *of_written = &written.ahead.levels[i / 2].drafted[i % 2];
        check_near(of_read->steps, of_written->steps, 1e-6);
        assert_int_equal(of_read->cycles, of_written->cycles);
        cycles += of_read->cycles;
    }
    assert_int_equal(cycles, 13);
    for (size_t i = 0; i < 2; i++) check_near(read.ahead.kept[i], written.ahead.kept[i], 1e-6);

    assert_int_equal(lv_costs_write(&written, NULL, 0), length);
    for (size_t capacity = 1; capacity <= length; capacity++) {
        memset(part, '#', sizeof(part));
        assert_int_equal(lv_costs_write(&written, part, capacity), length);
        assert_int_equal(strlen(part), capacity - 1);
        assert_memory_equal(part, text, capacity - 1);
    }

    /* The extremes that are allowed come back, too. */
    lv_costs_init(&read, 1e12, 0, 1e-12, 0, 0);
    for (int n = 0; n < 9; n++) lv_cost_curve_learn(&read.head, 96, 1e-12);
    lv_costs_write(&read, text, sizeof(text));
    assert_true(lv_costs_read(&read, text));
    check_near(read.io_seconds, 0, 0);
}

static void check_refused(const char *text) {
    lv_costs costs = costs_new();
    const lv_costs before = costs;
    if (lv_costs_read(&costs, text)) fail_msg("accepted: '%s'", text);
    assert_memory_equal(&costs, &before, sizeof(before));
}

/* Replaces the first `what` by `with`. */
static void replace(char *text, const char *what, const char *with) {
    char rest[TEXT_BYTES];
    char *at = strstr(text, what);
    assert_non_null(at);
    snprintf(rest, sizeof(rest), "%s", at + strlen(what));
    const size_t left = TEXT_BYTES - (size_t)(at - text);
    snprintf(at, left, "%s%s", with, rest);
}

static void test_damaged_text(void **state) {
    (void)state;
    static const struct {
        const char *what, *with;
    } rows[] = {
        {"lever costs 2", "lever costs 1"},
        {"lever costs 2", "lever calibration 1"},
        {"layers-one 1 36000000 0\n", ""},
        {"layers-one 1 36000000 0\n", "layers-one 1 36000000\n"},
        {"layers-one 1 36000000 0\n", "layers-one 1 36000000 0 0\n"},
        {"layers-one 1 36000000 0\n", "layers-one 3 36000000 0\n"},
        {"layers-one 1 36000000 0\n", "layers-all 1 36000000 0\n"},
        {"layers-one 1 36000000 0\n", "layers-one 1 36000000 0 "},
        {"layers-one 1 36000000", "layers-one 1 0"},
        {"layers-one 1 36000000", "layers-one 1 -36000000"},
        {"layers-one 1 36000000", "layers-one 1 nan"},
        {"layers-one 1 36000000", "layers-one 1 inf"},
        {"layers-one 1 36000000", "layers-one 1 36000000.5"},
        {"layers-one 1 36000000", "layers-one 1 360000000000000000000000"},
        {"layers-one 1 36000000", "layers-one 1 37900000"}, /* more than 2 rows */
        {"layers-one 1 36000000 0", "layers-one 1 36000000 -1"},
        {"layers-one 1 36000000 0", "layers-one 1 36000000 4294967299"},
        {"head 96", "tail 96"},
        {"io 300000000", "io -300000000"},
        {"io 300000000", "io x"},
        {"io 300000000\n", ""},
        {"ring 40000000\n", "ring 40000000\nring 40000000\n"},
        {"ring 40000000", "ring -4"},
        {"ahead 0 0 0 0\n", ""},
        {"ahead 0 0 0 0", "ahead 0 1 0 0"},
        {"ahead 0 0 0 0", "ahead 1 0 0 0"},
        {"ahead 0 0 0 0", "ahead 0 0 5 0"},
        {"ahead 0 0 0 0", "ahead 0 0 -5 1"},
        {"ahead 0 0 0 0", "ahead 0 0 5 9999999"},
        {"ahead 3 1 0 0\n", "ahead 3 1 0 0\nahead 3 1 0 0\n"},
        {"kept 0 0\n", ""},
        {"kept 0 0", "kept 1 0"},
        {"kept 0 0", "kept 0 -1"},
        {"kept 0 0", "kept 0 4000001"},
    };
    const lv_costs costs = costs_new();
    char sound[TEXT_BYTES], text[TEXT_BYTES];
    const size_t length = lv_costs_write(&costs, sound, sizeof(sound));
    assert_true(length < sizeof(sound));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        snprintf(text, sizeof(text), "%s", sound);
        replace(text, rows[i].what, rows[i].with);
        check_refused(text);
    }
    check_refused(NULL);
    for (size_t kept = 0; kept < length; kept++) {
        snprintf(text, sizeof(text), "%.*s", (int)kept, sound);
        check_refused(text);
    }
    lv_costs read = costs;
    assert_true(lv_costs_read(&read, sound));
}

/* One text holds both, in either order; each reader takes its own and refuses what is no section behind it. */
static void test_text_with_other_sections(void **state) {
    (void)state;
    const lv_costs costs = costs_taught();
    char own[TEXT_BYTES], text[TEXT_BYTES + 64];
    lv_costs_write(&costs, own, sizeof(own));
    static const struct {
        const char *before, *behind;
        bool sound;
    } rows[] = {
        {"", "lever calibration 1\nend 0\n", true},
        {"lever calibration 1\nend 0\n", "", true},
        {"", "ring 1\n", false},
        {"", "\n", false},
        {"x", "", false},
        {"lever calibration 1\nend 0", "", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        snprintf(text, sizeof(text), "%s%s%s", rows[i].before, own, rows[i].behind);
        lv_costs read = costs_new();
        if (lv_costs_read(&read, text) != rows[i].sound) fail_msg("row %zu", i);
        if (rows[i].sound) check_same_curve(&read.head, &costs.head);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prior),
        cmocka_unit_test(test_first_measurement_scales_all),
        cmocka_unit_test(test_unmeasured_points_keep_the_shape),
        cmocka_unit_test(test_only_neighbours_move),
        cmocka_unit_test(test_beyond_the_last_point),
        cmocka_unit_test(test_converges),
        cmocka_unit_test(test_stays_monotone),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_a_change_is_believed),
        cmocka_unit_test(test_a_change_is_known_soon),
        cmocka_unit_test(test_the_other_split),
        cmocka_unit_test(test_the_head_tells_of_all_threads),
        cmocka_unit_test(test_refuses_nonsense),
        cmocka_unit_test(test_pass),
        cmocka_unit_test(test_learns_from_passes),
        cmocka_unit_test(test_frozen_does_not_learn),
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_text_with_other_sections),
        cmocka_unit_test(test_damaged_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
