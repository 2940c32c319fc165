/* What drafting ahead saves, by level, and that both ways are tried again. */
#include "spec/ahead.h"

#include <math.h>

#include "support/check.h"

static void test_levels(void **state) {
    (void)state;
    static const struct {
        double tokens;
        uint32_t level;
    } rows[] = {{0, 0}, {1, 0}, {3.9, 0}, {4, 1}, {7.9, 1}, {8, 2}, {15.9, 2}, {16, 3}, {60, 3}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(lv_ahead_level(rows[i].tokens), rows[i].level);
    }
}

static void test_what_is_saved(void **state) {
    (void)state;
    lv_ahead_record record = {0};
    assert_true(lv_ahead_saved(&record, 1) == 0);
    /* Ahead was never tried: all might be saved. */
    for (uint32_t i = 0; i < 4; i++) lv_ahead_learn(&record, 1, false, .1 + .02 * (i % 2));
    assert_true(fabs(lv_ahead_saved(&record, 1) - .11) < 1e-9);
    lv_ahead_learn(&record, 1, true, .05);
    assert_true(fabs(lv_ahead_saved(&record, 1) - .06) < 1e-9);
    /* It never costs drafting. */
    for (uint32_t i = 0; i < 100; i++) lv_ahead_learn(&record, 1, true, .2);
    assert_true(lv_ahead_saved(&record, 1) == 0);
    /* A mean follows what changes. */
    for (uint32_t i = 0; i < 100; i++) lv_ahead_learn(&record, 1, false, .5);
    assert_true(fabs(lv_ahead_saved(&record, 1) - .3) < 1e-3);
    /* One level says nothing about another. */
    assert_true(lv_ahead_saved(&record, 0) == 0 && lv_ahead_saved(&record, 2) == 0);
    lv_ahead_learn(&record, 2, false, -1);
    lv_ahead_learn(&record, 2, false, (double)NAN);
    assert_int_equal(record.levels[2].drafted[0].cycles, 0);
}

static void test_what_is_kept_of_what_was_expected(void **state) {
    (void)state;
    lv_ahead_record record = {0};
    assert_true(lv_ahead_rate(&record, true, 8) == 8 && lv_ahead_rate(&record, false, 8) == 8);
    for (uint32_t i = 0; i < 1000; i++) lv_ahead_keep(&record, true, i % 2 ? .3 : 1.3);
    assert_true(fabs(lv_ahead_rate(&record, true, 10) - 8) < .1);
    assert_true(lv_ahead_rate(&record, false, 10) == 10);
    /* One that comes far off, or is no number, does not count for more than it should. */
    lv_ahead_keep(&record, false, 1e30);
    assert_true(lv_ahead_rate(&record, false, 10) < 10.4);
    lv_ahead_keep(&record, false, (double)NAN);
    lv_ahead_keep(&record, false, 0);
    assert_true(lv_ahead_rate(&record, false, 10) >= 10 && lv_ahead_rate(&record, false, 10) < 10.4);
}

static void test_the_other_way_is_tried_again(void **state) {
    (void)state;
    for (uint32_t better = 0; better < 2; better++) {
        lv_ahead_record record = {0};
        uint32_t others = 0, last = 0;
        for (uint32_t i = 1; i <= 10 * LV_AHEAD_RETRY_CYCLES; i++) {
            if (lv_ahead_choose(&record, 3, better) == better) continue;
            others++;
            assert_true(i - last >= LV_AHEAD_RETRY_CYCLES);
            last = i;
        }
        assert_in_range(others, 9, 10);
    }
    /* Where both are taken in turn nothing is due. */
    lv_ahead_record record = {0};
    for (uint32_t i = 0; i < 10 * LV_AHEAD_RETRY_CYCLES; i++) {
        assert_int_equal(lv_ahead_choose(&record, 0, i % 2), i % 2);
    }
}

/* Because the machine has changed: once, at any level, and then as before. */
static void test_a_way_that_is_due(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 4; n++) {
        const bool better = n % 2, due = n / 2;
        lv_ahead_record record = {0};
        assert_int_equal(lv_ahead_choose(&record, 1, better), better);
        lv_ahead_set_due(&record, due);
        assert_int_equal(lv_ahead_choose(&record, 3, better), due);
        for (uint32_t i = 0; i < 5; i++) assert_int_equal(lv_ahead_choose(&record, 3, better), better);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_a_way_that_is_due),
        cmocka_unit_test(test_what_is_saved),
        cmocka_unit_test(test_what_is_kept_of_what_was_expected),
        cmocka_unit_test(test_the_other_way_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
